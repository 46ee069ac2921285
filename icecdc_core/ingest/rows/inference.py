"""The schema of what the records hold: from writer schemas where there are any, else from all JSON of the frame."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from icecdc_core.columns import OWN_PREFIX
from icecdc_core.ingest.formats.record_keys import KEY_TEXT, text_at
from icecdc_core.ingest.rows.type_widening import merged, widened

GUESSED = "icecdc.guessed"
"""Metadata key of a field whose type was taken from values: it says nothing about whether the field is optional."""

_TOKEN = re.compile(r"`((?:[^`]|``)*)`|(\w+)(?:\((\d+),\s*(\d+)\))?|([<>:,])|\s+")
_SCALARS: dict[str, T.DataType] = {
    "BOOLEAN": T.BooleanType(),
    "BIGINT": T.LongType(),
    "DOUBLE": T.DoubleType(),
    "FLOAT": T.DoubleType(),
}
_LONG_DIGITS = 18
_BAD = f"{OWN_PREFIX}bad"
_COMPLEX = (T.StructType, T.ArrayType, T.MapType)


def inferred(decoded: DataFrame, current: T.StructType | None = None, widen: bool = True) -> T.StructType:
    """Return the schema of all payloads of a frame, found in one distributed aggregation.

    Records with a writer schema (Avro, JSON Schema, Debezium with its ``schema`` part) count with that schema; of two
    versions the wider type holds. For plain JSON the values decide (Spark's ``schema_of_variant_agg``):

    - whole numbers are ``bigint``, or ``decimal(38,0)`` where one is too long for it; other numbers are ``double``
    - texts stay ``string``: no date or time is guessed
    - a field that is a text here and something else there is ``string``; fields come in alphabetical order
    - a field that was only ever null, ``[]`` or ``{}`` has no type, so it is not in the result yet

    Args:
        decoded: What `formats.decoded` returned; records with a `problem` are left out. Not a streaming frame.
        current: The columns of the table that is to follow. With them, a record with a value of quite another kind
            than its column says nothing: it fits neither before nor after, and must not hide what others need.
        widen: Whether values are looked at once more where a column of the type int or float may have to be widened for
            a guessed bigint or double (not inside arrays and maps).

    Returns:
        The schema; guessed fields are optional and marked in their metadata. Empty when no record tells anything.
    """
    seen = _seen(decoded)
    if current is None:
        return seen
    if _differs(current, seen):
        shell = T.StructType([*_lenient(current).fields, T.StructField(_BAD, T.StringType())])
        broken = F.from_json("payload", shell, {"columnNameOfCorruptRecord": _BAD})[_BAD].isNotNull()
        decoded = decoded.where(F.col("problem").isNull() & ~broken)
        seen = _seen(decoded)
    return _proven(decoded.where("problem is null"), seen, current) if widen else seen


def begins_object(column: str) -> Column:
    """Whether a JSON text is an object, if it is well-formed; Spark's `ltrim` alone takes no line ends away."""
    return F.ltrim(F.col(column), F.lit(" \t\r\n")).startswith("{")


def _seen(decoded: DataFrame) -> T.StructType:
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
    # A field that a schema lacks becomes optional, which nothing must make it that says nothing at all.
    telling = [schema for schema in (variant_schema(found["guessed"]), *known) if schema.fields]
    return _merged(telling) if telling else T.StructType()


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


def _differs(kind: T.DataType, seen: T.DataType) -> bool:
    """Whether some value is of another kind than its column, so that nothing is known of the others there."""
    if isinstance(kind, T.StructType):
        if not isinstance(seen, T.StructType):
            return True
        columns = {column.name.lower(): column.dataType for column in kind.fields}
        return any(_differs(columns[f.name.lower()], f.dataType) for f in seen.fields if f.name.lower() in columns)
    if isinstance(kind, T.ArrayType):
        return not isinstance(seen, T.ArrayType) or _differs(kind.elementType, seen.elementType)
    if isinstance(kind, T.MapType):
        if isinstance(seen, T.StructType):
            return any(_differs(kind.valueType, field.dataType) for field in seen.fields)
        return not isinstance(seen, T.MapType) or _differs(kind.valueType, seen.valueType)
    if isinstance(kind, T.IntegerType):
        return not isinstance(seen, (T.ByteType, T.ShortType, T.IntegerType, T.LongType))
    return isinstance(kind, T.FloatType) and isinstance(seen, (T.StringType, T.BooleanType, *_COMPLEX))


def _lenient(kind: T.DataType) -> Any:
    """The type with which a value is read that its column may take after widening."""
    if isinstance(kind, T.StructType):
        return T.StructType([T.StructField(field.name, _lenient(field.dataType)) for field in kind.fields])
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_lenient(kind.elementType))
    if isinstance(kind, T.MapType):
        return T.MapType(T.StringType(), _lenient(kind.valueType))
    if isinstance(kind, T.IntegerType):
        return T.LongType()
    return T.DoubleType() if isinstance(kind, T.FloatType) else T.StringType()


def variant_schema(text: str) -> T.StructType:
    """Read what Spark's ``schema_of_variant`` functions say, with the rules of `inferred`.

    Example:
        >>> variant_schema("OBJECT<a: BIGINT, `b c`: ARRAY<DECIMAL(2,1)>, d: VOID>").simpleString()
        'struct<a:bigint,b c:array<double>>'
    """
    kind = _Parser(text).kind()
    return kind if isinstance(kind, T.StructType) else T.StructType()


def _merged(schemas: Sequence[T.StructType]) -> T.StructType:
    result = schemas[0]
    for schema in schemas[1:]:
        together = merged(result, schema)
        assert isinstance(together, T.StructType)
        result = together
    return result


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


class _Parser:
    """Recursive descent over Spark's text; a type of which nothing is known is None."""

    def __init__(self, text: str) -> None:
        self._tokens = [match for match in _TOKEN.finditer(text) if not match[0].isspace()]
        self._at = 0

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
        while self._tokens[self._at][0] != ">":
            token = self._next()
            name = token[2] if token[1] is None else token[1].replace("``", "`")
            self._next()
            kind = self.kind()
            if kind is not None:
                fields.append(T.StructField(name, kind, True, {GUESSED: True}))
            if self._tokens[self._at][0] == ",":
                self._next()
        self._next()
        return T.StructType(fields) if fields else None

    def _next(self) -> re.Match[str]:
        self._at += 1
        return self._tokens[self._at - 1]
