"""How each value of a record is read: the type with which `from_json` reads it, and when it does not fit its column."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from operator import or_
from typing import Any

from pyspark.sql import Column, functions as F, types as T

from icecdc_core.ingest.formats.decode_results import has_too_big_number, parse_object

Path = tuple[str, ...]
"""The names from a top-level field down to a nested one."""

WRITTEN_AS, DEFAULT = "icecdc.written_as", "icecdc.default"
"""Metadata keys: the Iceberg type that Spark does not show (uuid or fixed), as JSON, and `write-default`, as SQL."""

_FLOATS = (T.FloatType, T.DoubleType)
TIMES = (T.DateType, T.TimestampType, T.TimestampNTZType)
"""The types that are read as ISO 8601 text."""

_INFINITIES = tuple(f"{sign}{word}" for sign in ("", "+", "-") for word in ("Infinity", "INF"))
# In Java, "$" also matches before a final line break.
_NO_ZONE = r"^[0-9-]+([T ][0-9:.]*)?\z"
_UUID = r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\z"


@dataclass(frozen=True)
class Record:
    payload: Column
    is_delete: Column


Violations = Callable[[Column, Column | None, Record], list[Column]]
"""The conditions under which what was parsed does not fit, given it, its converted value if known, and its record."""


@dataclass
class Reader:
    """How a value is read: `from_json` reads the `json_type`; `convert` makes the column's type of it, or null."""

    kind: T.DataType
    json_type: T.DataType
    convert: Callable[[Column], Column] | None = None
    violations: Violations = lambda *_: []

    def value(self, parsed: Column) -> Column:
        return parsed if self.convert is None else self.convert(parsed)


@dataclass(frozen=True)
class FieldReader:
    """Reads a field of a struct, under each of its spellings; a field without a reader has no column."""

    name: str
    spellings: Path
    reader: Reader | None
    type_name: str = "string"
    required: bool = False
    identifies: bool = False
    default: str | None = None

    @property
    def json_fields(self) -> list[T.StructField]:
        """The field under each spelling; Spark's parser fills in the default of a missing one."""
        kind = T.StringType() if self.reader is None else self.reader.json_type
        defaults = {"EXISTS_DEFAULT": self.default} if self.default and len(self.spellings) == 1 else {}
        return [T.StructField(name, kind, True, defaults) for name in self.spellings]

    def parsed(self, parent: Column) -> Column:
        if len(self.spellings) == 1:
            return parent.getField(self.spellings[0])
        # Which of several spellings is missing says nothing, so that here a null gets the default, too.
        default = [F.expr(self.default)] if self.default else []
        return F.coalesce(*map(parent.getField, self.spellings), *default)

    def is_twice(self, parent: Column) -> Column:
        there = (F.when(parent.getField(name).isNotNull(), F.lit(1)) for name in self.spellings)
        return F.size(F.array_compact(F.array(*there))) > 1

    def violations(self, parent: Column, value: Column | None, record: Record) -> list[Column]:
        parsed = self.parsed(parent)
        if self.reader is None:
            return [parsed.isNotNull() & ~record.is_delete]
        found = list(self.reader.violations(parsed, None if value is None else value.getField(self.name), record))
        if self.identifies:
            found.append(parsed.isNull())
        elif self.required:  # a delete often names only the identifier columns
            found.append(parent.isNotNull() & parsed.isNull() & ~record.is_delete)
        return [*found, self.is_twice(parent)] if len(self.spellings) > 1 else found


class StructReader(Reader):
    """Reads a struct. Names that differ only in case are different: the session of a batch is case-sensitive."""

    kind: T.StructType
    json_type: T.StructType

    def __init__(self, kind: T.StructType, fields: list[FieldReader]) -> None:
        json_type = T.StructType([each for field in fields for each in field.json_fields])
        super().__init__(kind, json_type)
        self.violations = lambda *given: [found for field in fields for found in field.violations(*given)]
        self.fields = fields
        if any(field.reader is None or field.reader.convert or field.spellings != (field.name,) for field in fields):
            self.convert = lambda parsed: F.when(parsed.isNotNull(), self.row(parsed))

    def parse(self, payload: Column) -> Column:
        """Parse a payload as a record, for `is_whole_object` and `wrapped_record`."""
        return parse_object(payload, self.json_type)

    def row(self, parsed: Column) -> Column:
        return F.struct(
            *(each.reader.value(each.parsed(parsed)).alias(each.name) for each in self.fields if each.reader)
        )


def any_of(conditions: Iterable[Column]) -> Column:
    # In pairs of pairs: a chain of thousands would be deeper than Java's stack.
    found = list(conditions)
    while len(found) > 1:
        found = [reduce(or_, found[place : place + 2]) for place in range(0, len(found), 2)]
    return F.coalesce(found[0], F.lit(False))


def _text_reader(kind: T.DataType, convert: Callable[[Column], Column]) -> Reader:
    def violations(parsed: Column, value: Column | None, _: Record) -> list[Column]:
        return [parsed.isNotNull() & (convert(parsed) if value is None else value).isNull()]

    return Reader(kind, T.StringType(), convert, violations)


def _time_reader(kind: T.DataType) -> Reader:
    """Reads a date or time as ISO 8601 text, because `from_json` reads any number as seconds, and digits as days."""

    def convert(parsed: Column) -> Column:
        is_iso = F.substr(parsed, F.lit(5), F.lit(1)) == "-"
        if isinstance(kind, T.DateType):
            return F.when(is_iso & (F.length(parsed) == len("2026-01-31")), parsed.try_cast(kind))
        no_zone = parsed.rlike(_NO_ZONE)
        if isinstance(kind, T.TimestampNTZType):
            return F.when(is_iso & no_zone, parsed.try_cast(kind))
        epoch, local = F.lit("1970-01-01").cast("timestamp_ntz"), parsed.try_cast("timestamp_ntz")
        in_utc = F.timestamp_micros(F.timestamp_diff("MICROSECOND", epoch, local))
        return F.when(is_iso, F.when(no_zone, in_utc).otherwise(parsed.try_cast(kind)))

    return _text_reader(kind, convert)


def _key_reader(kind: T.DataType) -> Reader:
    def convert(parsed: Column) -> Column:
        if isinstance(kind, T.BinaryType):
            return F.try_to_binary(parsed, F.lit("base64"))
        if not isinstance(kind, (T.NumericType, T.BooleanType)):
            return F.lit(None).cast(kind)
        key = parsed.try_cast(kind)
        if isinstance(kind, _FLOATS):
            return F.when((F.abs(key) != F.lit(float("inf"))) | parsed.isin(*_INFINITIES), key)
        return key if isinstance(kind, T.DecimalType) else F.when(key.cast("string") == parsed, key)

    return _time_reader(kind) if isinstance(kind, TIMES) else _text_reader(kind, convert)


def _map_reader(kind: T.MapType, key: Reader, item: Reader) -> Reader:
    """A map, which is an object in JSON. It is null if a key does not fit, or is there twice: Spark would fail."""

    def are_keys(keys: Column) -> Column:
        return ~F.exists(keys, lambda each: each.isNull()) & (F.size(F.array_distinct(keys)) == F.size(keys))

    def convert(parsed: Column) -> Column:
        keys, items = F.transform(F.map_keys(parsed), key.value), F.transform(F.map_values(parsed), item.value)
        made = F.map_from_arrays(keys, items)
        # Of a text that is there twice, the session of a batch keeps the last value (`mapKeyDedupPolicy`).
        return made if key.convert is None else F.when(are_keys(keys), made)

    def violations(parsed: Column, _: Column | None, record: Record) -> list[Column]:
        wrong = [] if key.convert is None else [~are_keys(F.transform(F.map_keys(parsed), key.value))]
        return wrong + _item_violations(F.map_values(parsed), item, record, kind.valueContainsNull)

    json_type = T.MapType(T.StringType(), item.json_type)
    return Reader(kind, json_type, convert, violations)


def _item_violations(items: Column, reader: Reader, record: Record, nulls: bool) -> list[Column]:
    found = [] if nulls else [F.exists(items, lambda item: item.isNull())]
    if reader.violations(F.lit(None), None, record):
        found.append(F.exists(items, lambda item: any_of(reader.violations(item, None, record))))
    return found


@dataclass(frozen=True)
class ColumnMatching:
    spellings: Mapping[str, Path] | None = None
    """The names in the records by their lower-case form; None: names match exactly."""
    unknown: Collection[Path] = ()
    """The fields without a column that make a record unusable."""
    identifiers: Collection[str] = ()

    def struct_reader(self, schema: T.StructType, path: Path = ()) -> StructReader:
        fields = []
        for column in schema.fields:
            metadata = column.metadata or {}
            written_as = json.loads(metadata.get(WRITTEN_AS, '""'))
            fields.append(
                FieldReader(
                    column.name,
                    (self.spellings or {}).get(column.name.lower(), (column.name,)),
                    self.reader(column.dataType, (*path, column.name), written_as),
                    written_as if isinstance(written_as, str) and written_as else column.dataType.simpleString(),
                    required=not column.nullable,
                    identifies=not path and column.name.lower() in [name.lower() for name in self.identifiers],
                    default=metadata.get(DEFAULT),
                )
            )
        unknown = sorted(each[-1] for each in self.unknown if each[:-1] == path)
        return StructReader(schema, fields + [FieldReader(name, (name,), None) for name in unknown])

    def reader(self, kind: T.DataType, path: Path, written_as: Any = "") -> Reader:
        if isinstance(kind, T.StructType):
            return self.struct_reader(kind, path)
        if isinstance(kind, T.ArrayType):
            item, nulls = self.reader(kind.elementType, (*path, "element"), written_as), kind.containsNull
            convert = None if item.convert is None else partial(F.transform, f=item.value)
            return Reader(
                kind,
                T.ArrayType(item.json_type),
                convert,
                lambda parsed, _, of: _item_violations(parsed, item, of, nulls),
            )
        if isinstance(kind, T.MapType):
            hidden = written_as or {"key": "", "value": ""}
            # JSON has keys as text, as Spark shows a UUID.
            is_text = isinstance(kind.keyType, T.StringType)
            key = self.reader(kind.keyType, path, hidden["key"]) if is_text else _key_reader(kind.keyType)
            return _map_reader(kind, key, self.reader(kind.valueType, (*path, "value"), hidden["value"]))
        if isinstance(kind, TIMES):
            return _time_reader(kind)
        if written_as == "uuid":  # in its usual form: Java accepts shorter ones, and writes another UUID
            return _text_reader(kind, lambda parsed: F.when(parsed.rlike(_UUID), F.lower(parsed)))
        if written_as:
            length = int(written_as.removeprefix("fixed[").removesuffix("]"))
            return Reader(kind, kind, None, lambda parsed, *_: [F.octet_length(parsed) != length])
        if not isinstance(kind, _FLOATS):
            return Reader(kind, kind)
        # `from_json` reads some texts as infinity, which are allowed, and a number that is too big.
        infinite = F.lit(float("inf"))
        return Reader(
            kind, kind, None, lambda parsed, _, of: [(F.abs(parsed) == infinite) & has_too_big_number(of.payload, kind)]
        )
