"""Infers the schema of records: from the schemas of their writers, else from the JSON values of the whole frame."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from icecdc_core.ingest.formats.json_text import JSON_READ_OPTIONS, MALFORMED, text_at
from icecdc_core.ingest.formats.record_keys import TEXT_KEY
from icecdc_core.ingest.rows.column_names import Path
from icecdc_core.ingest.rows.type_conflicts import TypeConflicts
from icecdc_core.ingest.rows.type_widening import merge_schemas, promote_type
from icecdc_core.ingest.rows.variant_schema import GUESSED, variant_schema
from icecdc_core.session.jvm import SPARK_HAS_ENDED


def infer_schema(
    decoded: DataFrame, current: T.StructType | None = None, widen: bool = True, any_case: bool = False
) -> T.StructType:
    """Return the schema of all payloads of a frame, found in one distributed aggregation.

    Records with a writer schema (Avro, JSON Schema, Debezium with its ``schema`` part) count with that schema; of two
    versions the wider type counts. For plain JSON the values decide (Spark's ``schema_of_variant_agg``):

    - whole numbers are ``bigint``, or ``decimal(38,0)`` where one is too long for it; other numbers are ``double``
    - texts stay ``string``: no date or time is guessed
    - a field with texts and other values is ``string``; fields come in alphabetical order
    - a field that is always null, ``[]`` or ``{}`` has no type, so it is not in the result yet

    With ``current``, a record whose value has another kind than its column is left out, as it fits the table neither
    before nor after a change, and must not hide what other records need. A writer schema whose field cannot widen its
    column counts with the column's own type.
    """
    schemas = _schemas(decoded)
    if current is None:
        return merge_schemas(schemas)
    conflicts = TypeConflicts(current, any_case)
    seen = conflicts.merge_without_conflicts(schemas)
    tried: list[T.StructType] = []
    # Each pass may show names that bad values hid in the pass before.
    while conflicts.exist(merge_schemas(schemas)) and (lenient := conflicts.lenient_schema(seen)) not in tried:
        tried.append(lenient)
        read_as = T.StructType([*lenient.fields, T.StructField(MALFORMED, T.StringType())])
        bad = F.from_json("payload", read_as, JSON_READ_OPTIONS)[MALFORMED].isNotNull()
        decoded = decoded.where(F.col("problem").isNull() & ~bad)
        schemas = _schemas(decoded)
        seen = conflicts.with_spellings(conflicts.merge_without_conflicts(schemas), seen)
    return _confirm_widening(decoded.where("problem is null"), seen, current) if widen else seen


def begins_object(column: str) -> Column:
    """Whether a well-formed JSON text is an object. By default, Spark's `ltrim` does not remove line breaks."""
    return F.ltrim(F.col(column), F.lit(" \t\r\n")).startswith("{")


def _schemas(decoded: DataFrame) -> list[T.StructType]:
    """The schema guessed from JSON values, and those of the writers; without those that have no field."""
    good = F.col("problem").isNull() & begins_object("payload")
    value = F.when(good & F.col("payload_type").isNull(), F.try_parse_json(F.col("payload")))
    written = F.col("problem").isNull() & (F.col("payload_type") != TEXT_KEY)
    aggregated = decoded.agg(
        F.schema_of_variant_agg(value).alias("guessed"),
        F.collect_set(F.when(written, F.col("payload_type"))).alias("written"),
    )
    with _case_sensitive_names(decoded.sparkSession):
        schemas = aggregated.first()
    assert schemas is not None
    written_schemas = [T.StructType.fromJson(json.loads(text)) for text in sorted(schemas["written"])]
    # A field that a schema lacks becomes optional; an empty schema must not make any field so.
    return [schema for schema in (variant_schema(schemas["guessed"]), *written_schemas) if schema.fields]


@contextmanager
def _case_sensitive_names(spark: SparkSession) -> Iterator[None]:
    """Let the tasks of this thread distinguish names by case.

    Otherwise, Spark's aggregation drops one of two objects whose names differ only in case.
    """
    context, key = spark.sparkContext, "spark.sql.caseSensitive"
    before = context.getLocalProperty(key)
    context.setLocalProperty(key, "true")
    try:
        yield
    finally:
        with suppress(*SPARK_HAS_ENDED):
            context.setLocalProperty(key, before)  # type: ignore[arg-type]


def _confirm_widening(decoded: DataFrame, seen: T.StructType, current: T.StructType) -> T.StructType:
    """Remove the mark of a guess from the fields with a value that is too big for their column."""
    candidates = list(_widening_candidates(seen, current, ()))
    if not candidates:
        return seen
    limits: dict[type[T.DataType], float] = {T.IntegerType: 2**31 - 1, T.FloatType: 3.4028234663852886e38}
    tests = [
        F.max(F.abs(text_at(F.col("payload"), path).try_cast(wide)) > F.lit(limits[type(narrow)])).alias(str(index))
        for index, (path, narrow, wide) in enumerate(candidates)
    ]
    results = decoded.agg(*tests).first()
    assert results is not None
    confirmed = {path for (path, _, _), too_big in zip(candidates, results, strict=True) if too_big}
    return _without_guess_mark(seen, confirmed)


def _widening_candidates(
    seen: T.StructType, current: T.StructType, parent: Path
) -> Iterator[tuple[Path, T.DataType, T.DataType]]:
    """The guessed fields that could widen their column: path, type of the column, type of the field."""
    columns = {column.name.lower(): column.dataType for column in current.fields}
    for field in seen.fields:
        path, kind = (*parent, field.name), columns.get(field.name.lower())
        if isinstance(field.dataType, T.StructType) and isinstance(kind, T.StructType):
            yield from _widening_candidates(field.dataType, kind, path)
            continue
        is_narrow = GUESSED in field.metadata and isinstance(kind, (T.IntegerType, T.FloatType))
        if is_narrow and kind is not None and promote_type(kind, field.dataType) is not None:
            yield path, kind, field.dataType


def _without_guess_mark(seen: T.StructType, paths: set[Path], parent: Path = ()) -> T.StructType:
    fields = []
    for field in seen.fields:
        path, kind = (*parent, field.name), field.dataType
        if isinstance(kind, T.StructType):
            kind = _without_guess_mark(kind, paths, path)
        fields.append(T.StructField(field.name, kind, field.nullable, {} if path in paths else field.metadata))
    return T.StructType(fields)
