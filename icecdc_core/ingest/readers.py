"""How arrays, maps and structs are read from JSON: through the readers of their values."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_plus, urlsplit

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from icecdc_core.ingest.column_types import Path, path_text
from icecdc_core.ingest.formats.decode_results import has_too_big_number, text_at
from icecdc_core.session.jvm import iceberg_class

_INFINITIES = tuple(f"{sign}{word}" for sign in ("", "+", "-") for word in ("Infinity", "INF"))
_NO_ZONE = r"^[0-9-]+([T ][0-9:.]*)?\z"


@dataclass(frozen=True)
class Violation:
    """A reason why a record may not fit."""

    condition: Column
    path: Path
    description: str
    value: Column | None = None


@dataclass(frozen=True)
class ValueReader:
    """Reads a value whose type and range `from_json` checks itself."""

    kind: T.DataType

    @property
    def json_type(self) -> T.DataType:
        """The type with which `from_json` reads the value."""
        return self.kind

    def parsed_type(self) -> T.DataType:
        """The `json_type` with the field names that `value` and `violations` use."""
        return self.json_type

    def value(self, parsed: Column) -> Column:
        """Convert what was parsed to the type of the column; null if it does not fit."""
        return parsed

    def violations(self, parsed: Column, path: Path, value: Column | None = None) -> Iterator[Violation]:
        """Return what may be wrong with the value."""
        yield from ()


class FloatReader(ValueReader):
    """Reads a float or double; the texts that `from_json` reads as infinity are allowed."""

    def violations(self, parsed: Column, path: Path, value: Column | None = None) -> Iterator[Violation]:
        """A number that is too big for the type: Jackson reads it as infinity."""
        payload = F.col("payload")
        # Inside arrays and maps, an infinity is accepted if no number of the record is too big.
        is_word = F.coalesce(text_at(payload, path).isin(*_INFINITIES), F.lit(False)) if path else F.lit(False)
        wrong = (F.abs(parsed) == F.lit(float("inf"))) & ~is_word & has_too_big_number(payload, self.kind)
        yield Violation(wrong, path, f"is too big for {self.kind.simpleString()}")


class TimeReader(ValueReader):
    """Reads a date or timestamp as text, because `from_json` reads any number as seconds, and digits as days.

    The text must be ISO 8601 with a four-digit year. A timestamp without a zone is in UTC, whatever the zone of the
    session, digits after the microseconds are cut off, and a date must not have a time.
    """

    @property
    def json_type(self) -> T.DataType:
        """Text."""
        return T.StringType()

    def value(self, parsed: Column) -> Column:
        """Convert the text to a date or timestamp; null if it is neither."""
        is_iso = F.substr(parsed, F.lit(5), F.lit(1)) == "-"
        if isinstance(self.kind, T.DateType):
            return F.when(is_iso & (F.length(parsed) == len("2026-01-31")), parsed.try_cast(self.kind))
        no_zone = parsed.rlike(_NO_ZONE)
        if isinstance(self.kind, T.TimestampNTZType):
            return F.when(is_iso & no_zone, parsed.try_cast(self.kind))
        epoch, local = F.lit("1970-01-01").cast("timestamp_ntz"), parsed.try_cast("timestamp_ntz")
        in_utc = F.timestamp_micros(F.timestamp_diff("MICROSECOND", epoch, local))
        return F.when(is_iso, F.when(no_zone, in_utc).otherwise(parsed.try_cast(self.kind)))

    def violations(self, parsed: Column, path: Path, value: Column | None = None) -> Iterator[Violation]:
        """A text that is not a date or timestamp."""
        time = self.value(parsed) if value is None else value
        wrong = parsed.isNotNull() & time.isNull()
        yield Violation(wrong, path, f"is not of type {self.kind.simpleString()}", parsed)


class KeyReader(ValueReader):
    """Reads a key of a map, which is text in JSON, as the type of the keys."""

    @property
    def json_type(self) -> T.DataType:
        """Text."""
        return T.StringType()

    def value(self, parsed: Column) -> Column:
        """Convert the key; null if it is not of its type."""
        if isinstance(self.kind, T.StringType):
            return parsed
        if isinstance(self.kind, (T.DateType, T.TimestampType, T.TimestampNTZType)):
            return TimeReader(self.kind).value(parsed)
        if isinstance(self.kind, T.BinaryType):
            return F.try_to_binary(parsed, F.lit("base64"))
        if not isinstance(self.kind, (T.NumericType, T.BooleanType)):
            return F.lit(None).cast(self.kind)
        key = parsed.try_cast(self.kind)
        if isinstance(self.kind, (T.FloatType, T.DoubleType)):
            return F.when((F.abs(key) != F.lit(float("inf"))) | parsed.isin(*_INFINITIES), key)
        return key if isinstance(self.kind, T.DecimalType) else F.when(key.cast("string") == parsed, key)


WRITTEN_AS = "icecdc.written_as"
"""Metadata key: the Iceberg type that Spark does not show, as JSON (see `hidden_type_reader`)."""

FOLDERS = "icecdc.folders"
"""Metadata key: how the value becomes the name of partition folders, as JSON (`width` to cut to, `limit` in bytes)."""

DEFAULT = "icecdc.default"
"""Metadata key: the value that the table's `write-default` gives to a record without the field, as Spark SQL."""

Folders = dict[int, list[dict[str, Any]]]
"""By the ID of a column: an entry for each partition folder whose name its values become."""

# In Java, "$" also matches before a final line break.
_UUID = r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\z"
_FOLDER_BYTES = 255
_OBJECT_STORES = {"s3", "s3a", "s3n", "gs", "oss", "wasb", "wasbs"}
_KEY_BYTES = 1024
_FILE_NAME_BYTES = 150
# A timestamp, URL-encoded, is the longest value that is neither text nor bytes.
_SHORT_VALUE_BYTES = 50


class UuidReader(ValueReader):
    """Reads a UUID, which Spark shows as text in lower case, however it was written."""

    def value(self, parsed: Column) -> Column:
        """The text as the table will show it, because a merge compares texts."""
        return F.lower(parsed)

    def violations(self, parsed: Column, path: Path, value: Column | None = None) -> Iterator[Violation]:
        """A text that is not a UUID in its usual form; Java accepts shorter ones, and writes another UUID."""
        yield Violation(~parsed.rlike(_UUID), path, "is not of type uuid", parsed)


@dataclass(frozen=True)
class FixedReader(ValueReader):
    """Reads bytes of a fixed length, which Spark shows as binary."""

    length: int

    def violations(self, parsed: Column, path: Path, value: Column | None = None) -> Iterator[Violation]:
        """Another number of bytes."""
        wrong = F.octet_length(parsed) != self.length
        yield Violation(wrong, path, f"does not have {self.length} bytes", F.base64(parsed))


def hidden_type_reader(kind: T.DataType, written_as: Any) -> ValueReader | None:
    """Return the reader of a value whose Iceberg type Spark does not show; None for all other values."""
    if written_as == "uuid":
        return UuidReader(kind)
    is_fixed = isinstance(written_as, str) and written_as.startswith("fixed[")
    return FixedReader(kind, int(written_as[6:-1])) if is_fixed else None


def partition_folder_violation(parsed: Column, path: Path, kind: T.DataType, folder: dict[str, Any]) -> Violation:
    """Return the violation of a value whose partition folder would have a longer name than the file system accepts."""
    text = F.base64(parsed) if isinstance(kind, T.BinaryType) else parsed
    if folder["width"]:
        cut = F.substring(parsed, 1, folder["width"])
        text = F.base64(cut) if isinstance(kind, T.BinaryType) else cut
    limit = folder["limit"]
    # URL encoding makes up to three bytes of one byte; the first condition spares most values the encoding.
    is_long = (F.octet_length(text) > limit // 3) & (F.octet_length(F.url_encode(text)) > limit)
    is_written = ~F.col("op").eqNullSafe("delete")
    return Violation(
        is_written & is_long, path, f"makes the name of a partition folder too long: {limit} bytes are allowed", text
    )


def with_checks(spark: SparkSession, table: Any, schema: T.StructType) -> T.StructType:
    """Return a table's columns, with the writer's checks in their metadata."""
    types = json.loads(iceberg_class(spark, "SchemaParser").toJson(table.schema()))
    return _with_field_checks(schema, types, _folders(spark, table, types))


def _with_field_checks(schema: T.StructType, types: dict[str, Any], folders: Folders) -> T.StructType:
    fields = []
    for column, field in zip(schema.fields, types["fields"], strict=True):
        kind, written_as = _with_nested_checks(column.dataType, field["type"], folders)
        metadata = dict(column.metadata or {})
        if written_as:
            metadata[WRITTEN_AS] = json.dumps(written_as)
        if field.get("write-default") is not None and isinstance(field["type"], str):
            metadata[DEFAULT] = _default_text(column.dataType, field["write-default"])
        if field["id"] in folders:
            metadata[FOLDERS] = json.dumps(folders[field["id"]])
        fields.append(T.StructField(column.name, kind, column.nullable, metadata))
    return T.StructType(fields)


def _default_text(kind: T.DataType, value: Any) -> str:
    """A default, as Iceberg's JSON has it, as Spark SQL of the type with which records are read."""
    text = str(value).replace("\\", "\\\\").replace("'", "\\'")
    if isinstance(kind, T.BinaryType):
        return f"X'{text}'"
    # Dates and times are read as text.
    is_text = isinstance(kind, (T.StringType, T.DateType, T.TimestampType))
    return f"'{text}'" if is_text else f"CAST('{text}' AS {kind.simpleString()})"


def _with_nested_checks(kind: T.DataType, wanted: Any, folders: Folders) -> tuple[T.DataType, Any]:
    """The type with the checks of its fields, and the hidden type of its values (see `hidden_type_reader`)."""
    if isinstance(kind, T.StructType):
        return _with_field_checks(kind, wanted, folders), ""
    # A partition field cannot have its source in an array or a map.
    if isinstance(kind, T.ArrayType):
        element, written_as = _with_nested_checks(kind.elementType, wanted["element"], {})
        return T.ArrayType(element, kind.containsNull), written_as
    if isinstance(kind, T.MapType):
        _, key = _with_nested_checks(kind.keyType, wanted["key"], {})
        value, written_as = _with_nested_checks(kind.valueType, wanted["value"], {})
        checks = {"key": key, "value": written_as} if key or written_as else ""
        return T.MapType(kind.keyType, value, kind.valueContainsNull), checks
    return kind, wanted if isinstance(wanted, str) and (wanted == "uuid" or wanted.startswith("fixed[")) else ""


def _folders(spark: SparkSession, table: Any, types: dict[str, Any]) -> Folders:
    """How values become the names of partition folders, by the ID of the column."""
    fields = json.loads(iceberg_class(spark, "PartitionSpecParser").toJson(table.spec()))["fields"]
    columns = _text_columns(types)
    # The other transforms have short values.
    texts = [f for f in fields if f["source-id"] in columns and f["transform"].startswith(("identity", "truncate["))]
    name_bytes = {field["field-id"]: len(quote_plus(field["name"]).encode()) + 1 for field in fields}
    key_limit = _limit_in_key(table, sum(name_bytes.values()) + len(fields), len(fields) - len(texts), len(texts))
    folders: Folders = {}
    for field in texts:
        width = 0 if field["transform"] == "identity" else int(field["transform"].removeprefix("truncate[")[:-1])
        limit = _FOLDER_BYTES - name_bytes[field["field-id"]] if key_limit is None else key_limit
        folders.setdefault(field["source-id"], []).append({"width": width, "limit": limit})
    return folders


def _text_columns(types: dict[str, Any]) -> set[int]:
    """The IDs of the columns, nested ones included, with texts or bytes, which make folder names of any length."""
    columns = set()
    for field in types["fields"]:
        if isinstance(field["type"], dict) and field["type"]["type"] == "struct":
            columns |= _text_columns(field["type"])
        elif field["type"] in ("string", "binary") or str(field["type"]).startswith("fixed["):
            columns.add(field["id"])
    return columns


def _limit_in_key(table: Any, name_bytes: int, short_fields: int, text_fields: int) -> int | None:
    """The bytes that each text may have in the key of an object, which all folders share; None for a file system."""
    location = table.properties().get("write.data.path") or f"{table.location()}/data"
    if not text_fields or urlsplit(location).scheme not in _OBJECT_STORES:
        return None
    left = _KEY_BYTES - _FILE_NAME_BYTES - len(location.encode()) - name_bytes - short_fields * _SHORT_VALUE_BYTES
    return max(0, left // text_fields)


@dataclass(frozen=True)
class ArrayReader(ValueReader):
    """Reads an array."""

    element: ValueReader

    @property
    def json_type(self) -> T.DataType:
        """An array of the elements' JSON type."""
        return T.ArrayType(self.element.json_type)

    def parsed_type(self) -> T.DataType:
        """An array of the elements' parsed type."""
        return T.ArrayType(self.element.parsed_type())

    def value(self, parsed: Column) -> Column:
        """Convert every element."""
        return F.transform(parsed, self.element.value) if needs_conversion(self.element) else parsed

    def violations(self, parsed: Column, path: Path, value: Column | None = None) -> Iterator[Violation]:
        """A null element where none is allowed, and the violations of an element."""
        assert isinstance(self.kind, T.ArrayType)
        yield from _item_violations(parsed, parsed, self.element, self.kind.containsNull, path)


@dataclass(frozen=True)
class MapReader(ValueReader):
    """Reads a map, which is an object in JSON."""

    item: ValueReader
    key: ValueReader | None = None

    @property
    def json_type(self) -> T.DataType:
        """A map from text to the values' JSON type."""
        return T.MapType(T.StringType(), self.item.json_type)

    def parsed_type(self) -> T.DataType:
        """A map from text to the values' parsed type."""
        return T.MapType(T.StringType(), self.item.parsed_type())

    def value(self, parsed: Column) -> Column:
        """Convert every key and value of the map; null if a key does not fit."""
        if isinstance(self.key, KeyReader):
            keys, items = F.transform(F.map_keys(parsed), self.key.value), F.map_values(parsed)
            items = F.transform(items, self.item.value) if needs_conversion(self.item) else items
            # Spark would fail for a null key, and for one that is there twice.
            return F.when(_are_keys(keys), F.map_from_arrays(keys, items))
        convert = needs_conversion(self.item)
        return F.transform_values(parsed, lambda _, item: self.item.value(item)) if convert else parsed

    def violations(self, parsed: Column, path: Path, value: Column | None = None) -> Iterator[Violation]:
        """A null value where none is allowed, and the violations of a key or a value."""
        assert isinstance(self.kind, T.MapType)
        if isinstance(self.key, KeyReader):
            wrong = ~_are_keys(F.transform(F.map_keys(parsed), self.key.value))
            yield Violation(wrong, path, f"has a key that is no {self.key.kind.simpleString()}, or is there twice")
        elif self.key is not None:
            yield from _item_violations(parsed, F.map_keys(parsed), self.key, True, path, "(a key) ")
        yield from _item_violations(parsed, F.map_values(parsed), self.item, self.kind.valueContainsNull, path)


@dataclass(frozen=True)
class FieldReader:
    """Reads a field of a struct."""

    name: str
    spellings: Path
    reader: ValueReader
    has_column: bool
    required: bool
    refusal: str = ""
    folders: tuple[dict[str, Any], ...] = ()
    default: str | None = None

    @property
    def json_fields(self) -> list[T.StructField]:
        """The field under each spelling; Spark's parser fills in the default of a missing one."""
        defaults = {"EXISTS_DEFAULT": self.default} if self.default and len(self.spellings) == 1 else {}
        return [T.StructField(name, self.reader.json_type, True, defaults) for name in self.spellings]

    def parsed(self, spellings: Sequence[Column]) -> Column:
        """Return what was parsed, given under each spelling."""
        if len(spellings) == 1:
            return spellings[0]
        # Which of several spellings is missing says nothing, so that here a null gets the default, too.
        return F.coalesce(*spellings, *([F.expr(self.default)] if self.default else []))

    def value(self, spellings: Sequence[Column]) -> Column:
        """Convert what was parsed, given under each spelling."""
        return self.reader.value(self.parsed(spellings))


@dataclass(frozen=True)
class StructReader(ValueReader):
    """Reads a struct."""

    fields: tuple[FieldReader, ...]
    by_position: bool

    @property
    def json_type(self) -> T.StructType:
        """A struct with the names in the records."""
        return T.StructType([each for field in self.fields for each in field.json_fields])

    def parsed_type(self) -> T.StructType:
        """The same struct, with names by position if need be."""
        fields = [(spelling, field.reader) for field in self.fields for spelling in field.spellings]
        return T.StructType(
            [
                T.StructField(_position_name(position) if self.by_position else spelling, reader.parsed_type())
                for position, (spelling, reader) in enumerate(fields)
            ]
        )

    def value(self, parsed: Column) -> Column:
        """Convert every field; null for a null struct."""
        if not needs_conversion(self):
            return parsed
        columns = [
            field.value(values).alias(field.name) for field, values in self.parsed_fields(parsed) if field.has_column
        ]
        return F.when(parsed.isNotNull(), F.struct(*columns))

    def violations(self, parsed: Column, path: Path, value: Column | None = None) -> Iterator[Violation]:
        """Fields that are missing, have no column or two spellings, and the violations of their values."""
        for field, values in self.parsed_fields(parsed):
            if not field.has_column:
                yield Violation(values[0].isNotNull(), (*path, field.name), field.refusal, values[0])
                continue
            if field.required:
                # A delete often names only the identifier columns.
                missing = parsed.isNotNull() & field.parsed(values).isNull() & ~F.col("op").eqNullSafe("delete")
                yield Violation(missing, (*path, field.name), "is required, but missing or null")
            for other in range(1, len(values)):
                both = _first(values[:other]).isNotNull() & values[other].isNotNull()
                yield Violation(both, (*path, field.name), f"is there twice, as {' and '.join(field.spellings)}")
            field_path = (*path, field.spellings[0])
            field_value = None if value is None else value.getField(field.name)
            yield from field.reader.violations(field.parsed(values), field_path, field_value)
            for folder in field.folders:
                yield partition_folder_violation(field.parsed(values), field_path, field.reader.kind, folder)

    def parsed_fields(self, parsed: Column) -> Iterator[tuple[FieldReader, list[Column]]]:
        """Every field with what was parsed under each of its spellings."""
        position = 0
        for field in self.fields:
            columns = []
            for spelling in field.spellings:
                columns.append(parsed.getField(_position_name(position) if self.by_position else spelling))
                position += 1
            yield field, columns


def needs_conversion(reader: ValueReader) -> bool:
    """Whether the parsed value differs from the value that the column stores."""
    if isinstance(reader, ArrayReader):
        return needs_conversion(reader.element)
    if isinstance(reader, MapReader):
        return isinstance(reader.key, KeyReader) or needs_conversion(reader.item)
    if isinstance(reader, StructReader):
        return reader.by_position or any(
            field.spellings != (field.name,) or not field.has_column or needs_conversion(field.reader)
            for field in reader.fields
        )
    return isinstance(reader, (TimeReader, UuidReader))


def _are_keys(keys: Column) -> Column:
    return ~F.exists(keys, lambda key: key.isNull()) & (F.size(F.array_distinct(keys)) == F.size(keys))


def _position_name(position: int) -> str:
    return f"_{position}"


def _item_violations(
    parsed: Column, items: Column, reader: ValueReader, nulls: bool, path: Path, prefix: str = ""
) -> Iterator[Violation]:
    # Names by position would mean nothing to a reader of the problem.
    text = F.to_json(parsed) if reader.parsed_type() == reader.json_type else None
    if not nulls:
        yield Violation(F.exists(items, lambda item: item.isNull()), path, "contains null", text)
    for index, violation in enumerate(reader.violations(F.lit(None), ())):
        inner = f"(its {path_text(violation.path)}) " if violation.path else prefix
        yield Violation(F.exists(items, _condition(reader, index)), path, inner + violation.description, text)


def _condition(reader: ValueReader, index: int) -> Callable[[Column], Column]:
    return lambda item: list(reader.violations(item, ()))[index].condition


def _first(columns: Sequence[Column]) -> Column:
    return columns[0] if len(columns) == 1 else F.coalesce(*columns)
