"""How each value of a record is read: the type with which `from_json` reads it, and when it does not fit its column."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from icecdc_core.ingest.column_types import Path, map_value_type, merge_all_types
from icecdc_core.ingest.formats.decode_results import has_too_big_number, parse_object, wrapped_type

WRITTEN_AS = "icecdc.written_as"
"""Metadata key: the Iceberg type that Spark does not show (uuid or fixed), as JSON."""

FOLDERS = "icecdc.folders"
"""Metadata key: how the value becomes the name of partition folders, as JSON (`width` to cut to, `limit` in bytes)."""

DEFAULT = "icecdc.default"
"""Metadata key: the value that the table's `write-default` gives to a record without the field, as Spark SQL."""

_FLOATS, _TIMES = (T.FloatType, T.DoubleType), (T.DateType, T.TimestampType, T.TimestampNTZType)
_INFINITIES = tuple(f"{sign}{word}" for sign in ("", "+", "-") for word in ("Infinity", "INF"))
# In Java, "$" also matches before a final line break.
_NO_ZONE = r"^[0-9-]+([T ][0-9:.]*)?\z"
_UUID = r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\z"


@dataclass(frozen=True)
class Record:
    """What is known of the record around a value."""

    payload: Column
    is_delete: Column


Violations = Callable[[Column, Column | None, Record], list[Column]]
"""The conditions under which what was parsed does not fit, given it, its converted value if known, and its record."""


@dataclass
class Reader:
    """How a value is read: `from_json` reads the `json_type`; `convert` makes the column's type of it, or null.

    The `parsed_type` is the `json_type` with the field names that `convert` and `violations` use. `item` reads the
    elements of an array or the values of a map.
    """

    kind: T.DataType
    json_type: T.DataType
    parsed_type: T.DataType
    convert: Callable[[Column], Column] | None = None
    violations: Violations = lambda *_: []
    item: Reader | None = None

    def value(self, parsed: Column) -> Column:
        """Convert what was parsed; null if it does not fit."""
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
    folders: tuple[dict[str, Any], ...] = ()
    default: str | None = None

    @property
    def json_fields(self) -> list[T.StructField]:
        """The field under each spelling; Spark's parser fills in the default of a missing one."""
        kind = T.StringType() if self.reader is None else self.reader.json_type
        defaults = {"EXISTS_DEFAULT": self.default} if self.default and len(self.spellings) == 1 else {}
        return [T.StructField(name, kind, True, defaults) for name in self.spellings]

    def parsed(self, spellings: list[Column]) -> Column:
        """Return what was parsed, given under each spelling."""
        if len(spellings) == 1:
            return spellings[0]
        # Which of several spellings is missing says nothing, so that here a null gets the default, too.
        return F.coalesce(*spellings, *([F.expr(self.default)] if self.default else []))

    def problems(
        self, parent: Column, spellings: list[Column], value: Column | None, record: Record
    ) -> Iterator[tuple[Column, str]]:
        """Each condition under which the field makes its record unusable, and the reason."""
        parsed = self.parsed(spellings)
        if self.reader is None:
            yield parsed.isNotNull(), "has no column"
            return
        if self.identifies:
            yield parsed.isNull(), "is missing or null, and identifies the row"
        elif self.required:
            # A delete often names only the identifier columns.
            yield parent.isNotNull() & parsed.isNull() & ~record.is_delete, "is required, but missing or null"
        if len(spellings) > 1:
            times = reduce(lambda sum_, each: sum_ + each.isNotNull().cast("int"), spellings, F.lit(0))
            yield times > 1, f"is there twice, as {' and '.join(self.spellings)}"
        reason = "is too big for" if isinstance(self.reader.kind, _FLOATS) else "is not of type"
        for condition in self.reader.violations(parsed, None if value is None else value.getField(self.name), record):
            yield condition, f"{reason} {self.type_name}"
        for folder in self.folders:
            is_long = is_too_long_for_folder(parsed, self.reader.kind, folder) & ~record.is_delete
            yield is_long, f"makes the name of a partition folder longer than {folder['limit']} bytes"


class StructReader(Reader):
    """Reads a struct. Its fields are parsed with names by position if need be, as Spark finds fields in any case."""

    json_type: T.StructType
    parsed_type: T.StructType

    def __init__(self, kind: T.StructType, fields: list[FieldReader], by_position: bool) -> None:
        json_fields = [each for field in fields for each in field.json_fields]
        readers = [field.reader for field in fields for _ in field.spellings]
        parsed = [
            T.StructField(f"_{place}" if by_position else each.name, reader.parsed_type if reader else each.dataType)
            for place, (each, reader) in enumerate(zip(json_fields, readers, strict=True))
        ]
        super().__init__(kind, T.StructType(json_fields), T.StructType(parsed), None, self._violations)
        self.fields, self.by_position = fields, by_position
        if by_position or any(reader is None or reader.convert for reader in readers):
            self.convert = lambda parsed: F.when(parsed.isNotNull(), self.row(parsed))

    def parse(self, payload: Column) -> Column:
        """Parse a payload as a record, for `is_whole_object` and `wrapped_record`."""
        parsed: Column = parse_object(payload, self.json_type)
        if self.by_position:
            parsed = parsed.cast(wrapped_type(self.parsed_type))
        return parsed

    def row(self, parsed: Column) -> Column:
        """Convert every field; never null."""
        fields = [(field, field.parsed(spellings)) for field, spellings in self.parsed_fields(parsed)]
        return F.struct(*(field.reader.value(each).alias(field.name) for field, each in fields if field.reader))

    def problems(
        self, parsed: Column, value: Column | None, record: Record
    ) -> Iterator[tuple[FieldReader, Column, str]]:
        """What makes a field unusable, with the reason."""
        for field, spellings in self.parsed_fields(parsed):
            for condition, reason in field.problems(parsed, spellings, value, record):
                yield field, condition, reason

    def parsed_fields(self, parsed: Column) -> Iterator[tuple[FieldReader, list[Column]]]:
        """Every field with what was parsed under each of its spellings."""
        names = iter(self.parsed_type.names)
        for field in self.fields:
            yield field, [parsed.getField(next(names)) for _ in field.spellings]

    def _violations(self, parsed: Column, value: Column | None, record: Record) -> list[Column]:
        return [condition for _, condition, _ in self.problems(parsed, value, record)]


def is_too_long_for_folder(parsed: Column, kind: T.DataType, folder: dict[str, Any]) -> Column:
    """Whether the partition folder of a value would have a longer name than the storage accepts."""
    text = F.substring(parsed, 1, folder["width"]) if folder["width"] else parsed
    text = F.base64(text) if isinstance(kind, T.BinaryType) else text
    limit: int = folder["limit"]
    # URL encoding makes up to three bytes of one byte; the first condition spares most values the encoding.
    return (F.octet_length(text) > limit // 3) & (F.octet_length(F.url_encode(text)) > limit)


def any_of(conditions: Iterable[Column]) -> Column:
    """Whether one of the conditions holds; false for null."""
    return F.coalesce(reduce(or_, conditions), F.lit(False))


def _plain_reader(kind: T.DataType, violations: Violations = lambda *_: []) -> Reader:
    """Type and range are checked by `from_json`."""
    return Reader(kind, kind, kind, None, violations)


def _float_reader(kind: T.DataType) -> Reader:
    """The texts that `from_json` reads as infinity are allowed. A number that is too big, it reads as infinity, too."""
    infinity = F.lit(float("inf"))
    return _plain_reader(
        kind, lambda parsed, _, record: [(F.abs(parsed) == infinity) & has_too_big_number(record.payload, kind)]
    )


def _text_reader(kind: T.DataType, convert: Callable[[Column], Column]) -> Reader:
    """A text that becomes a value of another kind."""

    def violations(parsed: Column, value: Column | None, _: Record) -> list[Column]:
        return [parsed.isNotNull() & (convert(parsed) if value is None else value).isNull()]

    return Reader(kind, T.StringType(), T.StringType(), convert, violations)


def _time_reader(kind: T.DataType) -> Reader:
    """Reads a date or timestamp as text, because `from_json` reads any number as seconds, and digits as days.

    The text must be ISO 8601 with a four-digit year. A timestamp without a zone is in UTC, whatever the zone of the
    session, digits after the microseconds are cut off, and a date must not have a time.
    """

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


def _uuid_reader(kind: T.DataType) -> Reader:
    """A UUID in its usual form, as the table will show it; Java accepts shorter ones, and writes another UUID."""
    return _text_reader(kind, lambda parsed: F.when(parsed.rlike(_UUID), F.lower(parsed)))


def _key_reader(kind: T.DataType) -> Reader:
    """A key of a map, which is text in JSON, as the type of the keys."""

    def convert(parsed: Column) -> Column:
        if isinstance(kind, T.BinaryType):
            return F.try_to_binary(parsed, F.lit("base64"))
        if not isinstance(kind, (T.NumericType, T.BooleanType)):
            return F.lit(None).cast(kind)
        key = parsed.try_cast(kind)
        if isinstance(kind, _FLOATS):
            return F.when((F.abs(key) != F.lit(float("inf"))) | parsed.isin(*_INFINITIES), key)
        return key if isinstance(kind, T.DecimalType) else F.when(key.cast("string") == parsed, key)

    return _time_reader(kind) if isinstance(kind, _TIMES) else _text_reader(kind, convert)


def _array_reader(kind: T.ArrayType, item: Reader) -> Reader:
    convert = None if item.convert is None else lambda parsed: F.transform(parsed, item.value)

    def violations(parsed: Column, _: Column | None, record: Record) -> list[Column]:
        return _item_violations(parsed, item, record, kind.containsNull)

    return Reader(kind, T.ArrayType(item.json_type), T.ArrayType(item.parsed_type), convert, violations, item)


def _map_reader(kind: T.MapType, key: Reader, item: Reader) -> Reader:
    """A map, which is an object in JSON. It is null if a key does not fit, or is there twice: Spark would fail."""

    def are_keys(keys: Column) -> Column:
        return ~F.exists(keys, lambda each: each.isNull()) & (F.size(F.array_distinct(keys)) == F.size(keys))

    def convert(parsed: Column) -> Column:
        if key.convert is None:
            return F.transform_values(parsed, lambda _, value: item.value(value))
        keys, items = F.transform(F.map_keys(parsed), key.value), F.map_values(parsed)
        return F.when(are_keys(keys), F.map_from_arrays(keys, F.transform(items, item.value)))

    def violations(parsed: Column, _: Column | None, record: Record) -> list[Column]:
        wrong = [] if key.convert is None else [~are_keys(F.transform(F.map_keys(parsed), key.value))]
        return wrong + _item_violations(F.map_values(parsed), item, record, kind.valueContainsNull)

    json_type, parsed_type = (T.MapType(T.StringType(), each) for each in (item.json_type, item.parsed_type))
    return Reader(kind, json_type, parsed_type, convert if key.convert or item.convert else None, violations, item)


def _item_violations(items: Column, reader: Reader, record: Record, nulls: bool) -> list[Column]:
    found = [] if nulls else [F.exists(items, lambda item: item.isNull())]
    if reader.violations(F.lit(None), None, record):
        found.append(F.exists(items, lambda item: any_of(reader.violations(item, None, record))))
    return found


@dataclass(frozen=True)
class ColumnMatching:
    """The rules for matching fields and columns."""

    any_case: bool = False
    report_unknown: bool = False
    identifiers: tuple[str, ...] = ()
    without_column: tuple[str, ...] = ()

    def struct_reader(self, schema: T.StructType, seen: T.StructType | None, top: bool = True) -> StructReader:
        """Return the reader of a record or a struct."""
        types = {field.name: field.dataType for field in seen.fields} if seen is not None else {}
        by_name: dict[str, Path] = {}
        for name in types:
            by_name[self._folded(name)] = (*by_name.get(self._folded(name), ()), name)
        fields = []
        for column in schema.fields:
            spellings = by_name.pop(self._folded(column.name), None) or (column.name,)
            column_seen = merge_all_types([types[name] for name in spellings if name in types])
            metadata = column.metadata or {}
            written_as = json.loads(metadata.get(WRITTEN_AS, '""'))
            fields.append(
                FieldReader(
                    column.name,
                    spellings,
                    self.reader(column.dataType, column_seen, written_as),
                    written_as if isinstance(written_as, str) and written_as else column.dataType.simpleString(),
                    required=not column.nullable,
                    identifies=top and column.name.lower() in [name.lower() for name in self.identifiers],
                    folders=tuple(json.loads(metadata.get(FOLDERS, "[]"))),
                    default=metadata.get(DEFAULT),
                )
            )
        if self.report_unknown:
            allowed = self.without_column if top else ()
            unknown = sorted(name for names in by_name.values() for name in names if name not in allowed)
            fields += [FieldReader(name, (name,), None) for name in unknown]
        return StructReader(schema, fields, seen is not None)

    def reader(self, kind: T.DataType, seen: T.DataType | None, written_as: Any = "") -> Reader:
        """Return the reader of a value."""
        if isinstance(kind, T.StructType):
            return self.struct_reader(kind, seen if isinstance(seen, T.StructType) else None, False)
        if isinstance(kind, T.ArrayType):
            element = seen.elementType if isinstance(seen, T.ArrayType) else None
            return _array_reader(kind, self.reader(kind.elementType, element, written_as))
        if isinstance(kind, T.MapType):
            hidden = written_as or {"key": "", "value": ""}
            # JSON has keys as text, as Spark shows a UUID.
            is_text = isinstance(kind.keyType, T.StringType)
            key = self.reader(kind.keyType, None, hidden["key"]) if is_text else _key_reader(kind.keyType)
            return _map_reader(kind, key, self.reader(kind.valueType, map_value_type(seen), hidden["value"]))
        if isinstance(kind, (T.TimestampType, T.DateType)):
            return _time_reader(kind)
        if written_as == "uuid":
            return _uuid_reader(kind)
        if written_as:
            length = int(written_as.removeprefix("fixed[").removesuffix("]"))
            return _plain_reader(kind, lambda parsed, *_: [F.octet_length(parsed) != length])
        return _float_reader(kind) if isinstance(kind, _FLOATS) else _plain_reader(kind)

    def _folded(self, name: str) -> str:
        return name.lower() if self.any_case else name
