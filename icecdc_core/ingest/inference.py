"""What records bring: the schemas of their writers, and the one that their JSON values suggest."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import cast

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from icecdc_core.ingest.column_types import Path, field_names, merge_schemas, merge_types
from icecdc_core.ingest.formats.decode_results import (
    JSON_READ_OPTIONS,
    SECRET,
    is_whole_object,
    wrap_object,
    wrapped_record,
)
from icecdc_core.ingest.formats.record_keys import TEXT_KEY
from icecdc_core.ingest.readers import ColumnMatching, StructReader
from icecdc_core.session.jvm import java_class
from icecdc_core.session.threads import active_session

_NO_NAME = f"{SECRET}."
# A name with its quotes, before a colon; looked ahead, so that no match begins in another. A group that repeats without
# a limit would make Java recurse.
_NAMES = r'(?=("[^"\\]*+(?:\\.[^"\\]*+){0,50}")\s*:)'
_MAX_FLOAT = 3.4028234663852886e38


@dataclass(frozen=True)
class Seen:
    guessed: T.StructType = field(default_factory=T.StructType)
    written: list[T.StructType] = field(default_factory=list)
    widened: dict[Path, T.DataType] = field(default_factory=dict)
    """The columns that a value in plain JSON does not fit, with the type that it fits."""

    @property
    def schemas(self) -> list[T.StructType]:
        """All schemas; of a field with two types in them, each has its own."""
        return [self.guessed, *self.written]


def infer_schema(decoded: DataFrame) -> T.StructType:
    """Return the schema of all payloads: the writers' schemas, and Spark's inference for plain JSON."""
    plain, written = _plain_and_written(decoded)
    return merge_schemas([_guess(plain), *written])


def look_at(
    decoded: DataFrame, current: T.StructType, spellings: Mapping[str, Path] | None = None, widen: bool = True
) -> Seen:
    """Return what the records bring that could be stored; others must not hide what these need."""
    plain, written = _plain_and_written(decoded)
    reader = ColumnMatching(spellings).struct_reader(cast(T.StructType, _lenient(current)))
    parsed = reader.parse(F.col("payload"))
    plain = plain.where(is_whole_object(parsed))
    tests = list(_widening_tests(reader, wrapped_record(parsed))) if widen else []
    found = plain.agg(*(F.max(is_wider) for _, _, is_wider in tests)).first() if tests else None
    widened = {path: kind for (path, kind, _), is_wider in zip(tests, found or (), strict=True) if is_wider}
    return Seen(_guess(plain), written, widened)


def find_spellings(texts: DataFrame, schema: T.StructType) -> dict[str, Path]:
    """Return the names in JSON texts, in `payload`, that are a field's in any case, by their lower-case form."""
    wanted = {name.lower() for name in field_names(schema)}
    name = F.col("name")
    found = texts.select(F.explode(F.regexp_extract_all("payload", F.lit(_NAMES), F.lit(1))).alias("name"))
    found = found.where(F.lower(name).isin([f'"{each}"' for each in wanted]) | F.contains(name, F.lit("\\")))
    spellings: dict[str, Path] = {}
    for each in sorted({_unquoted(row.name) for row in found.distinct().collect()}):
        if each.lower() in wanted:
            spellings[each.lower()] = (*spellings.get(each.lower(), ()), each)
    return spellings


def _unquoted(name: str) -> str:
    try:
        return str(json.loads(name))
    except ValueError:
        return ""


def _plain_and_written(decoded: DataFrame) -> tuple[DataFrame, list[T.StructType]]:
    """The records in plain JSON, and the schemas of the writers of all others."""
    decoded = decoded.where(F.col("problem").isNull())
    kinds = decoded.select("payload_type").where(F.col("payload_type") != TEXT_KEY).distinct().collect()
    written = [T.StructType.fromJson(json.loads(kind)) for (kind,) in sorted(kinds)]
    return decoded.where(F.col("payload_type").isNull()), written


def _guess(plain: DataFrame) -> T.StructType:
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
    with active_session(spark):  # it says whether names differ by case
        found = reader._jreader.json(getattr(texts._jdf, "as")(encoder)).schema().json()
    wrapped = {each.name: each.dataType for each in T.StructType.fromJson(json.loads(found))}
    records = wrapped.get(SECRET, T.ArrayType(T.StructType()))
    assert isinstance(records, T.ArrayType)
    guessed = cast(T.StructType, _by_our_rules(records.elementType))
    return T.StructType([each for each in guessed if each.name != SECRET])


def _by_our_rules(kind: T.DataType) -> T.DataType:
    """A type of Spark's inference with names as they are, and whole numbers of any length."""
    if isinstance(kind, T.StructType):
        fields: dict[str, T.DataType] = {}
        # Of names that differ only in case, the first becomes a column: the one in lower case.
        for each in sorted(kind.fields, key=lambda each: each.name.swapcase()):
            name, inner = each.name.replace(_NO_NAME, ""), _by_our_rules(each.dataType)
            fields[name] = merge_types(fields[name], inner) if name in fields else inner
        return T.StructType([T.StructField(name, inner) for name, inner in fields.items()])
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_by_our_rules(kind.elementType))
    return T.DecimalType(38, 0) if isinstance(kind, T.DecimalType) else kind


def _lenient(kind: T.DataType) -> T.DataType:
    """The type that reads what a column can store, perhaps after a promotion. What can hide nothing is a string."""
    if isinstance(kind, T.StructType):
        return T.StructType([T.StructField(each.name, _lenient(each.dataType)) for each in kind.fields])
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_lenient(kind.elementType))
    if isinstance(kind, T.MapType):
        return T.MapType(T.StringType(), _lenient(kind.valueType))
    if isinstance(kind, (T.IntegerType, T.FloatType)):
        return T.LongType() if isinstance(kind, T.IntegerType) else T.DoubleType()
    return T.StringType()


def _widening_tests(
    reader: StructReader, parsed: Column, parent: Path = ()
) -> Iterator[tuple[Path, T.DataType, Column]]:
    """The columns of a `_lenient` type that can be widened, that type, and whether a value does not fit the column."""
    for each in reader.fields:
        path, value, kind = (*parent, each.name), each.parsed(parsed), each.reader.kind if each.reader else None
        if isinstance(each.reader, StructReader):
            yield from _widening_tests(each.reader, value, path)
        elif isinstance(kind, T.LongType):
            yield path, kind, ~value.between(-(2**31), 2**31 - 1)
        elif isinstance(kind, T.DoubleType):
            yield path, kind, (F.abs(value) > _MAX_FLOAT) & (F.abs(value) < float("inf"))
