"""The schema of what the records hold: from writer schemas where there are any, else from all JSON of the frame."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from icecdc_core.ingest.formats.json_text import JSON_READ_OPTIONS, MALFORMED, text_at
from icecdc_core.ingest.formats.record_keys import KEY_TEXT
from icecdc_core.ingest.rows.type_conflicts import TypeConflicts
from icecdc_core.ingest.rows.type_widening import merged_schemas, widened
from icecdc_core.ingest.rows.variant_schema import GUESSED, variant_schema


def inferred(
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

    Args:
        decoded: What `formats.decoded` returned; records with a `problem` are left out. Not a streaming frame.
        current: The columns of the table whose schema may change.
        widen: Whether to look at the values once more where an int or float column may need a wider type for a guessed
            bigint or double (not inside arrays and maps).
        any_case: Whether a field belongs to the column of its name in any case.

    Returns:
        The schema; guessed fields are optional and marked in their metadata. Empty when no record has a field.
    """
    schemas = _schemas(decoded)
    if current is None:
        return merged_schemas(schemas)
    conflicts = TypeConflicts(current, any_case)
    seen = conflicts.without(schemas)
    tried: list[T.StructType] = []
    # Each pass may show names that bad values hid in the pass before.
    while conflicts.exist(merged_schemas(schemas)) and (lenient := conflicts.lenient(seen)) not in tried:
        tried.append(lenient)
        read_as = T.StructType([*lenient.fields, T.StructField(MALFORMED, T.StringType())])
        bad = F.from_json("payload", read_as, JSON_READ_OPTIONS)[MALFORMED].isNotNull()
        decoded = decoded.where(F.col("problem").isNull() & ~bad)
        schemas = _schemas(decoded)
        seen = conflicts.with_spellings(conflicts.without(schemas), seen)
    return _proven(decoded.where("problem is null"), seen, current) if widen else seen


def begins_object(column: str) -> Column:
    """Whether a JSON text is an object, if it is well-formed; Spark's `ltrim` alone takes no line ends away."""
    return F.ltrim(F.col(column), F.lit(" \t\r\n")).startswith("{")


def _schemas(decoded: DataFrame) -> list[T.StructType]:
    """The schema guessed from JSON values, and those of the writers; without those that have no field."""
    good = F.col("problem").isNull() & begins_object("payload")
    guess = F.when(good & F.col("payload_type").isNull(), F.try_parse_json(F.col("payload")))
    written = F.col("problem").isNull() & (F.col("payload_type") != KEY_TEXT)
    asked = decoded.agg(
        F.schema_of_variant_agg(guess).alias("guessed"),
        F.collect_set(F.when(written, F.col("payload_type"))).alias("written"),
    )
    with _exact_names(decoded.sparkSession):
        found = asked.first()
    assert found is not None
    known = [T.StructType.fromJson(json.loads(text)) for text in sorted(found["written"])]
    # A field that a schema lacks becomes optional; an empty schema must not make any field so.
    return [schema for schema in (variant_schema(found["guessed"]), *known) if schema.fields]


@contextmanager
def _exact_names(spark: SparkSession) -> Iterator[None]:
    """Let the tasks of this thread tell names apart by case.

    Else, of two objects that differ only in the case of names, Spark's aggregation forgets the names of one.
    """
    context, key = spark.sparkContext, "spark.sql.caseSensitive"
    before = context.getLocalProperty(key)
    context.setLocalProperty(key, "true")
    try:
        yield
    finally:
        context.setLocalProperty(key, before)  # type: ignore[arg-type]


def _proven(decoded: DataFrame, seen: T.StructType, current: T.StructType) -> T.StructType:
    """Take the mark of a guess from those fields that hold a value too big for their column."""
    candidates = list(_candidates(seen, current, ()))
    if not candidates:
        return seen
    limits: dict[type[T.DataType], float] = {T.IntegerType: 2**31 - 1, T.FloatType: 3.4028234663852886e38}
    tests = [
        F.max(F.abs(text_at(F.col("payload"), path).try_cast(wide)) > F.lit(limits[type(narrow)])).alias(str(place))
        for place, (path, narrow, wide) in enumerate(candidates)
    ]
    found = decoded.agg(*tests).first()
    assert found is not None
    return _unmarked(seen, {path for (path, _, _), big in zip(candidates, found, strict=True) if big})


def _candidates(
    seen: T.StructType, current: T.StructType, outer: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], T.DataType, T.DataType]]:
    columns = {column.name.lower(): column.dataType for column in current.fields}
    for each in seen.fields:
        path, kind = (*outer, each.name), columns.get(each.name.lower())
        if isinstance(each.dataType, T.StructType) and isinstance(kind, T.StructType):
            yield from _candidates(each.dataType, kind, path)
            continue
        narrow = GUESSED in each.metadata and isinstance(kind, (T.IntegerType, T.FloatType))
        if narrow and kind is not None and widened(kind, each.dataType) is not None:
            yield path, kind, each.dataType


def _unmarked(seen: T.StructType, paths: set[tuple[str, ...]], outer: tuple[str, ...] = ()) -> T.StructType:
    fields = []
    for each in seen.fields:
        path, kind = (*outer, each.name), each.dataType
        if isinstance(kind, T.StructType):
            kind = _unmarked(kind, paths, path)
        fields.append(T.StructField(each.name, kind, each.nullable, {} if path in paths else each.metadata))
    return T.StructType(fields)
