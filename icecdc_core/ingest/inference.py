"""Infers the schema of records: from the schemas of their writers, else from the JSON values of the whole frame."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import cast

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from icecdc_core.ingest.column_types import Path, map_value_type, merge_schemas, merge_types, promote_type
from icecdc_core.ingest.formats.decode_results import (
    JSON_READ_OPTIONS,
    MALFORMED,
    SECRET,
    wrap_object,
    wrapped_record,
)
from icecdc_core.ingest.formats.record_keys import TEXT_KEY
from icecdc_core.ingest.readers import ColumnMatching, Reader, StructReader
from icecdc_core.session.jvm import SPARK_HAS_ENDED, java_class

GUESSED = "icecdc.guessed"
"""Metadata key of a field whose type was guessed from values, so that nobody knows whether it is optional."""

_NO_NAME = f"{SECRET}."
_PARSED = "_icecdc_inferred"
# The largest value of the type from which Iceberg can promote a column to this one.
_LIMITS: dict[type[T.DataType], float] = {T.LongType: 2**31 - 1, T.DoubleType: 3.4028234663852886e38}


def infer_schema(
    decoded: DataFrame, current: T.StructType | None = None, widen: bool = True, any_case: bool = False
) -> T.StructType:
    """Return the schema of all payloads of a frame.

    Records with a writer schema (Avro, JSON Schema, Debezium with its ``schema`` part) count with that schema; of two
    versions the wider type counts. For plain JSON the values decide, by Spark's inference.

    With ``current``, a record whose value has another kind than its column is left out, as it fits the table neither
    before nor after a change, and must not hide what other records need. A writer schema whose field cannot widen its
    column counts with the column's own type.
    """
    decoded = decoded.where(F.col("problem").isNull())
    is_plain = F.col("payload_type").isNull()
    written = decoded.where(~is_plain & (F.col("payload_type") != TEXT_KEY)).select("payload_type").distinct().collect()
    schemas = [T.StructType.fromJson(json.loads(text)) for (text,) in sorted(written)]
    plain = decoded.where(is_plain)
    seen = _guess(plain)
    if current is None:
        return merge_schemas([seen, *schemas])
    matching = ColumnMatching(any_case)
    promoted = [cast(T.StructType, _promoted(matching.struct_reader(current, each), each)) for each in schemas]
    return merge_schemas([_leave_out_invalid(plain, matching, current, seen, widen), *promoted])


def _guess(plain: DataFrame) -> T.StructType:
    """The schema that Spark infers from JSON values."""
    payload = F.col("payload")
    # For Spark's inference an empty text is null, and a field without a name is none.
    named = F.regexp_replace(payload, r'(?<!\\)""(?=\s*:)', f'"{_NO_NAME}"')
    filled = F.regexp_replace(named, r'""(?!\s*:)', '"?"')
    text = F.when(F.contains(payload, F.lit('""')), filled).otherwise(payload)
    # By default, Spark's `ltrim` does not remove line breaks.
    is_object = F.ltrim(payload, F.lit(" \t\r\n")).startswith("{")
    texts = plain.where(is_object).select(wrap_object(text).alias("value"))
    spark = plain.sparkSession
    reader = spark.read.options(**{**JSON_READ_OPTIONS, "mode": "DROPMALFORMED", "dropFieldIfAllNull": "true"})
    # PySpark offers this reader only for RDDs of Python texts.
    encoder = java_class(spark, "org.apache.spark.sql.Encoders").STRING()
    with _case_sensitive_names(spark):
        found = reader._jreader.json(getattr(texts._jdf, "as")(encoder)).schema().json()
    wrapped = {field.name: field.dataType for field in T.StructType.fromJson(json.loads(found))}
    records = wrapped.get(SECRET, T.ArrayType(T.StructType()))
    assert isinstance(records, T.ArrayType)
    guessed = cast(T.StructType, _guessed(records.elementType))
    return T.StructType([field for field in guessed if field.name != SECRET])


@contextmanager
def _case_sensitive_names(spark: SparkSession) -> Iterator[None]:
    """Let Spark distinguish names by case in the tasks of this thread, and where it merges their results.

    Otherwise, its inference drops one of two objects whose names differ only in case.
    """
    context, key = spark.sparkContext, "spark.sql.caseSensitive"
    sessions = java_class(spark, "org.apache.spark.sql.SparkSession")
    before, active = context.getLocalProperty(key), sessions.getActiveSession()
    sensitive = spark._jsparkSession.newSession()
    sensitive.conf().set(key, "true")
    try:
        context.setLocalProperty(key, "true")
        sessions.setActiveSession(sensitive)
        yield
    finally:
        with suppress(*SPARK_HAS_ENDED):
            context.setLocalProperty(key, before)  # type: ignore[arg-type]
            sessions.setActiveSession(active.get() if active.isDefined() else None)


def _guessed(kind: T.DataType) -> T.DataType:
    """A type of Spark's inference by our rules."""
    if isinstance(kind, T.StructType):
        fields: dict[str, T.DataType] = {}
        # Of names that differ only in case, the first becomes a column: the one in lower case.
        for field in sorted(kind.fields, key=lambda each: each.name.swapcase()):
            name, inner = field.name.replace(_NO_NAME, ""), _guessed(field.dataType)
            fields[name] = merge_types(fields[name], inner) if name in fields else inner
        return T.StructType([T.StructField(name, inner, True, {GUESSED: True}) for name, inner in fields.items()])
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_guessed(kind.elementType))
    return T.DecimalType(38, 0) if isinstance(kind, T.DecimalType) else kind


def _leave_out_invalid(
    plain: DataFrame, matching: ColumnMatching, current: T.StructType, seen: T.StructType, widen: bool
) -> T.StructType:
    """The fields of the records whose values could be stored in their columns, perhaps after a promotion."""
    lenient, names = cast(T.StructType, _lenient(current, widen)), seen
    reader, tried = matching.struct_reader(lenient, names), None
    # Each pass may show names that bad values hid in the pass before.
    while not _fits(reader, seen) and names != tried:
        plain = plain.where(reader.parse(F.col("payload"))[MALFORMED].isNull())
        seen, tried = _guess(plain), names
        names = cast(T.StructType, _with_names(seen, _guessed(reader.json_type)))
        reader = matching.struct_reader(lenient, names)
    parsed = plain.select(reader.parse(F.col("payload")).alias(_PARSED))
    tests = dict(_widening_tests(reader, wrapped_record(F.col(_PARSED)), seen, ())) if widen else {}
    if not tests:
        return names
    results = parsed.agg(*(F.max(test).alias(str(place)) for place, test in enumerate(tests.values()))).first()
    assert results is not None
    return _without_mark(names, {path for path, too_big in zip(tests, results, strict=True) if too_big}, ())


def _lenient(kind: T.DataType, widen: bool) -> T.DataType:
    """The type that reads what a column can store, perhaps after a promotion. What can hide nothing is a string."""
    if isinstance(kind, T.StructType):
        return T.StructType([T.StructField(field.name, _lenient(field.dataType, widen)) for field in kind.fields])
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_lenient(kind.elementType, widen))
    if isinstance(kind, T.MapType):
        return T.MapType(T.StringType(), _lenient(kind.valueType, widen))
    if widen and isinstance(kind, (T.IntegerType, T.FloatType)):
        return T.LongType() if isinstance(kind, T.IntegerType) else T.DoubleType()
    return T.StringType()


def _fits(reader: Reader | None, seen: T.DataType) -> bool:
    """Whether no value is of another kind than its column, which would hide the types of the other values."""
    if isinstance(reader, StructReader):
        types = {field.name: field.dataType for field in seen.fields} if isinstance(seen, T.StructType) else None
        pairs = [(field.reader, name) for field in reader.fields for name in field.spellings]
        return types is not None and all(_fits(each, types[name]) for each, name in pairs if name in types)
    if reader is not None and isinstance(reader.kind, T.ArrayType):
        return isinstance(seen, T.ArrayType) and _fits(reader.item, seen.elementType)
    if reader is not None and isinstance(reader.kind, T.MapType):
        value = map_value_type(seen)
        return isinstance(seen, T.StructType) and (value is None or _fits(reader.item, value))
    if reader is not None and isinstance(reader.kind, T.DoubleType):
        return isinstance(seen, T.NumericType)
    return reader is None or isinstance(reader.kind, T.StringType) or seen == reader.kind


def _with_names(seen: T.DataType, names: T.DataType) -> T.DataType:
    """The type with the fields of columns that only records left out since then have.

    A field that is missing in the schema counts as missing in its record too, so its record would seem to fit.
    """
    if isinstance(names, T.StructType) and isinstance(seen, T.StructType):
        others = {field.name: field for field in names.fields}
        fields = []
        for field in seen.fields:
            other = others.pop(field.name, field)
            kind = _with_names(field.dataType, other.dataType)
            fields.append(T.StructField(field.name, kind, True, field.metadata))
        return T.StructType([*fields, *others.values()])
    if isinstance(names, T.MapType) and isinstance(seen, T.StructType):
        # Spark guesses a struct from the JSON of a map.
        kinds = [_with_names(field.dataType, names.valueType) for field in seen.fields]
        pairs = zip(seen.fields, kinds, strict=True)
        return T.StructType([T.StructField(field.name, kind, True, field.metadata) for field, kind in pairs])
    if isinstance(names, T.ArrayType) and isinstance(seen, T.ArrayType):
        return T.ArrayType(_with_names(seen.elementType, names.elementType))
    return names if isinstance(names, (T.StructType, T.ArrayType, T.MapType)) else seen


def _widening_tests(
    reader: StructReader, parsed: Column, seen: T.StructType, parent: Path
) -> Iterator[tuple[Path, Column]]:
    """The guessed fields that could widen their column, and whether a value does not fit the narrow type."""
    types = {field.name: field.dataType for field in seen.fields}
    for field, columns in reader.parsed_fields(parsed):
        for name, column in zip(field.spellings, columns, strict=True):
            path, kind = (*parent, name), types.get(name)
            if isinstance(field.reader, StructReader) and isinstance(kind, T.StructType):
                yield from _widening_tests(field.reader, column, kind, path)
            elif field.reader is not None and field.reader.kind == kind and type(kind) in _LIMITS:
                yield path, F.abs(column) > _LIMITS[type(kind)]


def _without_mark(seen: T.StructType, paths: set[Path], parent: Path) -> T.StructType:
    """The schema, in which some fields count as if a writer's schema had them."""
    fields = []
    for field in seen.fields:
        path, kind = (*parent, field.name), field.dataType
        if isinstance(kind, T.StructType):
            kind = _without_mark(kind, paths, path)
        fields.append(T.StructField(field.name, kind, field.nullable, {} if path in paths else field.metadata))
    return T.StructType(fields)


def _promoted(reader: Reader, seen: T.DataType) -> T.DataType:
    """A type in a writer's schema, which cannot give a column another type than one to which Iceberg promotes it."""
    if isinstance(reader, StructReader) and isinstance(seen, T.StructType):
        readers = {name: field.reader for field in reader.fields for name in field.spellings}
        fields = []
        for field in seen.fields:
            column = readers.get(field.name)
            kind = field.dataType if column is None else _promoted(column, field.dataType)
            fields.append(T.StructField(field.name, kind, field.nullable, field.metadata))
        return T.StructType(fields)
    if reader.item is not None and isinstance(seen, T.ArrayType) and isinstance(reader.kind, T.ArrayType):
        return T.ArrayType(_promoted(reader.item, seen.elementType), seen.containsNull)
    if reader.item is not None and isinstance(seen, T.MapType) and isinstance(reader.kind, T.MapType):
        return T.MapType(seen.keyType, _promoted(reader.item, seen.valueType), seen.valueContainsNull)
    return promote_type(reader.kind, seen) or reader.kind
