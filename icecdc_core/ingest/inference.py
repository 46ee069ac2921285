"""Infers the schema of records: from the schemas of their writers, else from the JSON values of the whole frame."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from icecdc_core.ingest.column_types import Path, map_value_type, merge_schemas, promote_type
from icecdc_core.ingest.formats.decode_results import JSON_READ_OPTIONS, MALFORMED, text_at
from icecdc_core.ingest.formats.record_keys import TEXT_KEY
from icecdc_core.session.jvm import SPARK_HAS_ENDED

GUESSED = "icecdc.guessed"
"""Metadata key of a field whose type was guessed from values, so that nobody knows whether it is optional."""

_TOKEN = re.compile(r"`((?:[^`]|``)*)`|(\w+)(?:\((\d+),\s*(\d+)\))?|([<>:,])|\s+")
_SCALARS: dict[str, T.DataType] = {
    "BOOLEAN": T.BooleanType(),
    "BIGINT": T.LongType(),
    "DOUBLE": T.DoubleType(),
    "FLOAT": T.DoubleType(),
}
_LONG_DIGITS = 18


def variant_schema(text: str) -> T.StructType:
    """Return the schema that Spark's ``schema_of_variant`` functions wrote, by the rules of `infer_schema`.

    Example:
        >>> variant_schema("OBJECT<a: BIGINT, `b c`: ARRAY<DECIMAL(2,1)>, d: VOID>").simpleString()
        'struct<a:bigint,b c:array<double>>'
    """
    kind = _Parser(text).kind()
    return kind if isinstance(kind, T.StructType) else T.StructType()


class _Parser:
    """A recursive descent parser for Spark's text; an unknown type is None."""

    def __init__(self, text: str) -> None:
        self._tokens = [match for match in _TOKEN.finditer(text) if not match[0].isspace()]
        self._position = 0

    def kind(self) -> T.DataType | None:
        token = self._next()
        name = token[2].upper()
        if name == "OBJECT":
            return self._object()
        if name == "ARRAY":
            self._next()
            element = self.kind()
            self._next()
            return None if element is None else T.ArrayType(element)
        if name == "DECIMAL":
            whole = token[4] == "0" and int(token[3]) > _LONG_DIGITS
            return T.DecimalType(38, 0) if whole else T.DoubleType()
        return None if name == "VOID" else _SCALARS.get(name, T.StringType())

    def _object(self) -> T.DataType | None:
        fields = []
        self._next()
        while self._tokens[self._position][0] != ">":
            token = self._next()
            name = token[2] if token[1] is None else token[1].replace("``", "`")
            self._next()
            kind = self.kind()
            if kind is not None:
                fields.append(T.StructField(name, kind, True, {GUESSED: True}))
            if self._tokens[self._position][0] == ",":
                self._next()
        self._next()
        return T.StructType(fields) if fields else None

    def _next(self) -> re.Match[str]:
        self._position += 1
        return self._tokens[self._position - 1]


_WHOLE = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_NO_NUMBER = (T.StringType, T.BooleanType, T.StructType, T.ArrayType, T.MapType)


class TypeConflicts:
    """Compares the columns of a table with the fields of records."""

    def __init__(self, columns: T.StructType, any_case: bool) -> None:
        self._columns, self._any_case = columns, any_case

    def exist(self, seen: T.StructType) -> bool:
        """Whether some values are of another kind than their column, which hides the types of the other values."""
        return self._conflict(self._columns, seen, False)

    def merge_without_conflicts(self, schemas: Sequence[T.StructType]) -> T.StructType:
        """Merge schemas; a field that a writer gives a conflicting type gets the type of its column."""
        return merge_schemas([self._without_struct(self._columns, schema) for schema in schemas])

    def lenient_schema(self, seen: T.StructType) -> T.StructType:
        """Return the schema that reads exactly the values that the columns can store, perhaps after a promotion."""
        schema = _lenient(self._own(self._columns, seen))
        assert isinstance(schema, T.StructType)
        return schema

    def with_spellings(self, seen: T.StructType, earlier: T.StructType) -> T.StructType:
        """Add the fields of columns that only records left out since then have, with the type of the column.

        A field that is missing in the schema counts as missing in its record too, so its record would seem to fit.
        """
        schema = _with_missing(seen, self._own(self._columns, earlier))
        assert isinstance(schema, T.StructType)
        return schema

    def _conflict(self, column: T.DataType, seen: T.DataType, guessed: bool) -> bool:
        if isinstance(column, T.StructType):
            if not isinstance(seen, T.StructType):
                return True
            return any(
                kind is not None and self._conflict(kind, field.dataType, GUESSED in field.metadata)
                for kind, field in self._pairs(column, seen)
            )
        if isinstance(column, T.ArrayType):
            return not isinstance(seen, T.ArrayType) or self._conflict(column.elementType, seen.elementType, guessed)
        if isinstance(column, T.MapType):
            if isinstance(seen, T.StructType):
                return any(
                    self._conflict(column.valueType, field.dataType, GUESSED in field.metadata) for field in seen.fields
                )
            return not isinstance(seen, T.MapType) or self._conflict(column.valueType, seen.valueType, guessed)
        if isinstance(column, T.IntegerType):
            return not isinstance(seen, _WHOLE)
        if isinstance(column, T.DecimalType):
            # A guessed type never widens a decimal column, so there is nothing to hide.
            return not guessed and not isinstance(seen, (T.DecimalType, *_WHOLE))
        return isinstance(column, T.FloatType) and isinstance(seen, _NO_NUMBER)

    def _without(self, column: T.DataType, seen: T.DataType) -> T.DataType:
        if isinstance(column, T.StructType) and isinstance(seen, T.StructType):
            return self._without_struct(column, seen)
        if isinstance(column, T.ArrayType) and isinstance(seen, T.ArrayType):
            return T.ArrayType(self._without(column.elementType, seen.elementType), seen.containsNull)
        if isinstance(column, T.MapType) and isinstance(seen, T.MapType):
            return T.MapType(seen.keyType, self._without(column.valueType, seen.valueType), seen.valueContainsNull)
        # Iceberg gives a decimal column no larger scale.
        larger = isinstance(column, T.DecimalType) and isinstance(seen, T.DecimalType) and seen.scale > column.scale
        return column if larger or self._conflict(column, seen, False) else seen

    def _without_struct(self, columns: T.StructType, seen: T.StructType) -> T.StructType:
        fields = []
        for column, field in self._pairs(columns, seen):
            if column is None or GUESSED in field.metadata:
                fields.append(field)
            else:
                fields.append(_with_type(field, self._without(column, field.dataType)))
        return T.StructType(fields)

    def _own(self, column: T.DataType, seen: T.DataType | None) -> T.DataType:
        """The column's type with the names in the records, and only with those fields that the records have."""
        if isinstance(column, T.StructType) and isinstance(seen, T.StructType):
            return T.StructType(
                [
                    T.StructField(field.name, self._own(kind, field.dataType), True, {GUESSED: True})
                    for kind, field in self._pairs(column, seen)
                    if kind is not None
                ]
            )
        if isinstance(column, T.ArrayType) and isinstance(seen, T.ArrayType):
            return T.ArrayType(self._own(column.elementType, seen.elementType))
        if isinstance(column, T.MapType):
            return T.MapType(T.StringType(), self._own(column.valueType, map_value_type(seen)))
        return column

    def _pairs(self, columns: T.StructType, seen: T.StructType) -> Iterator[tuple[T.DataType | None, T.StructField]]:
        """Each field with the type of its column; None for a field without a column."""
        types = {self._folded(column.name): column.dataType for column in columns.fields}
        for field in seen.fields:
            yield types.get(self._folded(field.name)), field

    def _folded(self, name: str) -> str:
        return name.lower() if self._any_case else name


def _with_missing(seen: T.DataType, own: T.DataType) -> T.DataType:
    if isinstance(seen, T.StructType) and isinstance(own, T.StructType):
        others = {field.name: field for field in own.fields}
        fields = []
        for field in seen.fields:
            other = others.pop(field.name, None)
            fields.append(field if other is None else _with_type(field, _with_missing(field.dataType, other.dataType)))
        return T.StructType([*fields, *others.values()])
    if isinstance(seen, T.StructType) and isinstance(own, T.MapType):
        # Spark guesses a struct from the JSON of a map.
        return T.StructType([_with_type(field, _with_missing(field.dataType, own.valueType)) for field in seen.fields])
    if isinstance(seen, T.ArrayType) and isinstance(own, T.ArrayType):
        return T.ArrayType(_with_missing(seen.elementType, own.elementType), seen.containsNull)
    if isinstance(seen, T.MapType) and isinstance(own, T.MapType):
        return T.MapType(seen.keyType, _with_missing(seen.valueType, own.valueType), seen.valueContainsNull)
    return seen


def _lenient(kind: T.DataType) -> T.DataType:
    if isinstance(kind, T.StructType):
        # Sorted, so that `infer_schema` recognizes a schema that it has tried.
        fields = sorted(kind.fields, key=lambda field: field.name)
        return T.StructType([T.StructField(field.name, _lenient(field.dataType)) for field in fields])
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_lenient(kind.elementType))
    if isinstance(kind, T.MapType):
        return T.MapType(T.StringType(), _lenient(kind.valueType))
    if isinstance(kind, T.IntegerType):
        return T.LongType()
    if isinstance(kind, T.DecimalType):
        return T.DecimalType(38, kind.scale)
    return T.DoubleType() if isinstance(kind, T.FloatType) else T.StringType()


def _with_type(field: T.StructField, kind: T.DataType) -> T.StructField:
    return T.StructField(field.name, kind, field.nullable, field.metadata)


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
