"""What Iceberg's writer asks of a value beyond its Spark type: UUIDs, fixed lengths, names of partition folders.

A value that it does not take fails the whole commit, so such records are found before. The fields of the schema have it
in their metadata.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote_plus, urlsplit

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from icecdc_core.ingest.rows.json_reading import Flaw, Part, Path
from icecdc_core.session.jvm import iceberg_class

WRITTEN_AS = "icecdc.written_as"
FOLDERS = "icecdc.folders"

# To Java, "$" is also before a line's end that comes last.
_UUID = r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\z"
_FOLDER_BYTES = 255
_OBJECT_STORES = {"s3", "s3a", "s3n", "gs", "oss", "wasb", "wasbs"}
_KEY_BYTES = 1024
_FILE_NAME_BYTES = 150
# A timestamp, encoded, is the longest of the other values.
_SHORT_VALUE_BYTES = 50


class Uuid(Part):
    """A UUID; Spark shows it as text, in lower case, whatever was written."""

    def value(self, raw: Column) -> Column:
        """The text as the table will show it: a merge compares texts."""
        return F.lower(raw)

    def flaws(self, raw: Column, path: Path, value: Column | None = None) -> Iterator[Flaw]:
        """A text that is no UUID in its usual form: Java would take shorter ones, and write another."""
        yield Flaw(~raw.rlike(_UUID), path, "is not of type uuid", raw)


class Fixed(Part):
    """Bytes of a fixed length; Spark shows them as binary.

    Args:
        kind: The type wanted.
        length: How many bytes.
    """

    def __init__(self, kind: T.DataType, length: int) -> None:
        super().__init__(kind)
        object.__setattr__(self, "length", length)

    def flaws(self, raw: Column, path: Path, value: Column | None = None) -> Iterator[Flaw]:
        """Another number of bytes."""
        length: int = self.length  # type: ignore[attr-defined]
        yield Flaw(F.octet_length(raw) != length, path, f"does not have {length} bytes", F.base64(raw))


def part_of(kind: T.DataType, written_as: str) -> Part | None:
    """Return how a value is read whose Iceberg type Spark does not show; None for all others."""
    if written_as == "uuid":
        return Uuid(kind)
    return Fixed(kind, int(written_as[6:-1])) if written_as.startswith("fixed[") else None


def folder_flaw(raw: Column, path: Path, kind: T.DataType, folder: dict[str, Any]) -> Flaw:
    """Return what is wrong with a value of which Iceberg makes a folder name that the file system does not take."""
    text = F.base64(raw) if isinstance(kind, T.BinaryType) else raw
    if folder["width"]:
        cut = F.substring(raw, 1, folder["width"])
        text = F.base64(cut) if isinstance(kind, T.BinaryType) else cut
    most = folder["most"]
    # A character takes up to nine bytes in a name, and three for each of its own.
    long = (F.octet_length(text) > most // 3) & (F.octet_length(F.url_encode(text)) > most)
    kept = ~F.col("op").eqNullSafe("delete")
    return Flaw(kept & long, path, f"makes the name of a partition folder too long: {most} bytes are allowed", text)


def with_checks(spark: SparkSession, table: Any, schema: T.StructType) -> T.StructType:
    """Return a table's columns with what its writer asks of their values.

    Args:
        spark: The session.
        table: Iceberg's table.
        schema: Its columns, as Spark shows them.
    """
    types = json.loads(iceberg_class(spark, "SchemaParser").toJson(table.schema()))
    return _checked(schema, types, _folders(spark, table, types))


def _checked(schema: T.StructType, types: dict[str, Any], folders: dict[int, list[dict[str, Any]]]) -> T.StructType:
    fields = []
    for column, field in zip(schema.fields, types["fields"], strict=True):
        kind, written_as = _kind(column.dataType, field["type"], folders)
        facts = dict(column.metadata or {})
        if written_as:
            facts[WRITTEN_AS] = written_as
        if field["id"] in folders:
            facts[FOLDERS] = json.dumps(folders[field["id"]])
        fields.append(T.StructField(column.name, kind, column.nullable, facts))
    return T.StructType(fields)


def _kind(kind: T.DataType, wanted: Any, folders: dict[int, list[dict[str, Any]]]) -> tuple[T.DataType, str]:
    """The type with checks in its fields, and what there is to be checked of all values that are in none."""
    if isinstance(kind, T.StructType):
        return _checked(kind, wanted, folders), ""
    if isinstance(kind, T.ArrayType):
        element, written_as = _kind(kind.elementType, wanted["element"], {})
        return T.ArrayType(element, kind.containsNull), written_as
    if isinstance(kind, T.MapType):
        value, written_as = _kind(kind.valueType, wanted["value"], {})
        return T.MapType(kind.keyType, value, kind.valueContainsNull), written_as
    return kind, wanted if isinstance(wanted, str) and (wanted == "uuid" or wanted.startswith("fixed[")) else ""


def _folders(spark: SparkSession, table: Any, types: dict[str, Any]) -> dict[int, list[dict[str, Any]]]:
    """By the id of its column: how each partition field that shows its text makes a folder name of it."""
    fields = json.loads(iceberg_class(spark, "PartitionSpecParser").toJson(table.spec()))["fields"]
    ids = _text_ids(types)
    plain = ("identity", "truncate[")  # other transforms make short names
    shown = [field for field in fields if field["source-id"] in ids and field["transform"].startswith(plain)]
    names = {field["field-id"]: len(quote_plus(field["name"]).encode()) + 1 for field in fields}
    most = _most_in_key(table, sum(names.values()) + len(names), len(fields) - len(shown), len(shown))
    found: dict[int, list[dict[str, Any]]] = {}
    for field in shown:
        width = 0 if field["transform"] == "identity" else int(field["transform"][9:-1])
        limit = _FOLDER_BYTES - names[field["field-id"]] if most is None else most
        found.setdefault(field["source-id"], []).append({"width": width, "most": limit})
    return found


def _text_ids(types: dict[str, Any]) -> set[int]:
    """Ids of the columns, nested ones too, whose values make folder names of any length."""
    found = set()
    for field in types["fields"]:
        if isinstance(field["type"], dict) and field["type"]["type"] == "struct":
            found |= _text_ids(field["type"])
        elif field["type"] in ("string", "binary") or str(field["type"]).startswith("fixed["):
            found.add(field["id"])
    return found


def _most_in_key(table: Any, names: int, numbers: int, texts: int) -> int | None:
    """How many bytes each text may have in an object's key, which all folders share; None for a file system.

    Args:
        table: Iceberg's table.
        names: Bytes of the names of all partition fields.
        numbers: Partition fields whose values are short.
        texts: Partition fields whose values are texts.
    """
    properties = table.properties()
    location = properties.get("write.data.path") or f"{table.location()}/data"
    if not texts or urlsplit(location).scheme not in _OBJECT_STORES:
        return None
    left = _KEY_BYTES - _FILE_NAME_BYTES - len(location.encode()) - names - numbers * _SHORT_VALUE_BYTES
    return max(0, left // texts)
