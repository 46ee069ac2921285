"""Checks that Iceberg's writer makes beyond the Spark type: UUIDs, fixed lengths, names of partition folders.

A value that fails them fails the whole commit, so the ingest checks each record before. The metadata of a schema's
fields says what to check.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_plus, urlsplit

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from icecdc_core.ingest.rows.column_names import Path
from icecdc_core.ingest.rows.value_readers import ValueReader, Violation
from icecdc_core.session.jvm import iceberg_class

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
