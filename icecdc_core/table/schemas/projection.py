"""Schema projection: which columns of an Iceberg table Spark can read, and the table without the others.

Spark has no type for `time`, `timestamp_ns` and `timestamptz_ns`, and refuses every scan of a table with a column that
is named like one of Iceberg's metadata columns (`_file`, `_pos`, ...). One such column makes the whole table
unreadable, even if it is not selected. So scans use a copy of the table's metadata whose schema lacks it; Iceberg finds
the other columns in the files by their ids.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType

from icecdc_core.errors import UnsupportedTypeError
from icecdc_core.session.jvm import iceberg_class, java_class

# Types that PyIceberg cannot parse in the form Iceberg's Java library writes them.
_UNKNOWN_TO_PYICEBERG = ("variant", "geometry", "geography")


def unreadable_columns(spark: SparkSession, table: Any) -> dict[str, str]:
    """Return the top-level columns Spark cannot read, each with the reason; empty for most tables."""
    reserved = iceberg_class(spark, "MetadataColumns")
    found = {}
    for name in top_level_names(spark, table):
        if name.startswith("_") and reserved.isMetadataColumn(name):
            found[name] = "has the name of a metadata column of Iceberg, so Spark cannot read it"
    convert = iceberg_class(spark, "spark.SparkSchemaUtil").convert
    if _is_convertible(convert, table.schema()):
        return found
    for field in table.schema().columns():
        alone = java_class(spark, "java.util.ArrayList")()
        alone.add(field)
        if not _is_convertible(convert, iceberg_class(spark, "Schema")(alone)):
            found[str(field.name())] = f"has the type {field.type().toString()}, which Spark cannot read"
    return found


def top_level_names(spark: SparkSession, table: Any) -> list[str]:
    """Return the names of a Java table's top-level columns, in order, with one call into the JVM."""
    schema = json.loads(iceberg_class(spark, "SchemaParser").toJson(table.schema()))
    return [str(field["name"]) for field in schema["fields"]]


def spark_schema(spark: SparkSession, table: Any) -> StructType:
    """Return the columns of a Java table as Spark reads them."""
    converted = iceberg_class(spark, "spark.SparkSchemaUtil").convert(table.schema())
    return StructType.fromJson(json.loads(converted.json()))


def require_readable(unreadable: Mapping[str, str], columns: Collection[str]) -> None:
    """Refuse columns that Spark cannot read."""
    for name, problem in unreadable.items():
        if name in columns:
            raise UnsupportedTypeError(
                f"Column '{name}' {problem}",
                subject="column",
                value=name,
                remedy="leave it out with the columns parameter (Spark 4.1 and newer), or change it in the table",
            )


def require_distinct(spark: SparkSession, schema: StructType, columns: Collection[str]) -> None:
    """Refuse selected columns, or fields within them, whose names Spark cannot distinguish."""
    if is_case_sensitive(spark):
        return
    for first, second in find_ambiguous_names(schema):
        if {first.split("\0")[0], second.split("\0")[0]} & set(columns):
            one, other = first.replace("\0", "."), second.replace("\0", ".")
            raise UnsupportedTypeError(
                f"Columns '{one}' and '{other}' differ only in upper and lower case",
                subject="column",
                value=other,
                remedy="rename one of them in the table, or set spark.sql.caseSensitive=true in spark_conf",
            )


def is_case_sensitive(spark: SparkSession) -> bool:
    """Whether Spark distinguishes names that differ only in upper and lower case."""
    return str(spark.conf.get("spark.sql.caseSensitive", "false")).lower() == "true"


def find_ambiguous_names(kind: DataType, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield pairs of fields of one struct whose names are the same, ignoring case."""
    if isinstance(kind, StructType):
        seen: dict[str, str] = {}
        for field in kind.fields:
            if field.name.lower() in seen:
                yield prefix + seen[field.name.lower()], prefix + field.name
            seen.setdefault(field.name.lower(), field.name)
            yield from find_ambiguous_names(field.dataType, f"{prefix}{field.name}\0")
    elif isinstance(kind, ArrayType):
        yield from find_ambiguous_names(kind.elementType, prefix)
    elif isinstance(kind, MapType):
        yield from find_ambiguous_names(kind.keyType, prefix)
        yield from find_ambiguous_names(kind.valueType, prefix)


def without_columns(spark: SparkSession, table: Any, names: Collection[str]) -> Any:
    """Return a copy of the Java table without these top-level columns, for reading staged tasks only."""
    return _changed(spark, table, lambda content: _drop_columns(content, names))


def without_row_lineage(spark: SparkSession, table: Any) -> Any:
    """Return a copy of the Java table that claims format version 2, for reading staged tasks only.

    From version 3 on, Iceberg's table of staged tasks has the columns of row lineage, and then Spark reads no other
    metadata column: neither `_file` nor `_pos` nor `_deleted`. The tasks themselves say what the files contain and
    which deletes apply, whatever the version.
    """
    return _changed(spark, table, _drop_row_lineage)


def is_encrypted(table: Any) -> bool:
    """Whether a Java table is encrypted; a copy of its metadata lacks the keys."""
    return bool(table.properties().containsKey("encryption.key-id"))


def _changed(spark: SparkSession, table: Any, change: Callable[[dict[str, Any]], None]) -> Any:
    operations = table.operations()
    metadata = operations.current()
    parser = iceberg_class(spark, "TableMetadataParser")
    content = json.loads(parser.toJson(metadata))
    change(content)
    # Reading files needs none of these, and there may be hundreds.
    content.update({"snapshots": [], "snapshot-log": [], "metadata-log": [], "refs": {}, "current-snapshot-id": -1})
    reduced = parser.fromJson(metadata.metadataFileLocation(), json.dumps(content))
    static = iceberg_class(spark, "StaticTableOperations")(reduced, operations.io())
    return iceberg_class(spark, "BaseTable")(static, table.name())


def reads_in_batches(kind: DataType, within: bool = False) -> bool:
    """Whether Iceberg's vectorized reader can read tables of this schema; it fails on lists and maps of variants.

    It reads all columns of a file, not only the selected ones.
    """
    if isinstance(kind, StructType):
        return all(reads_in_batches(field.dataType, within) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return reads_in_batches(kind.elementType, True)
    if isinstance(kind, MapType):
        return reads_in_batches(kind.keyType, True) and reads_in_batches(kind.valueType, True)
    return not (within and isinstance(kind, VariantType))


def metadata_for_pyiceberg(metadata: str) -> str:
    """Return table metadata in which types that PyIceberg does not know are replaced by `unknown`."""
    if not any(f'"{name}' in metadata for name in _UNKNOWN_TO_PYICEBERG):
        return metadata
    content = json.loads(metadata)
    for schema in content["schemas"]:
        _replace_types(schema)
    return json.dumps(content)


def _is_convertible(convert: Any, schema: Any) -> bool:
    try:
        convert(schema)
    except (Py4JError, PySparkException):
        return False
    return True


def _drop_row_lineage(content: dict[str, Any]) -> None:
    content["format-version"] = 2
    content.pop("next-row-id", None)


def _drop_columns(content: dict[str, Any], names: Collection[str]) -> None:
    gone = set()
    for schema in content["schemas"]:
        if schema["schema-id"] == content["current-schema-id"]:
            gone = {field["id"] for field in schema["fields"] if field["name"] in names}
            schema["fields"] = [field for field in schema["fields"] if field["id"] not in gone]
            schema["identifier-field-ids"] = [key for key in schema.get("identifier-field-ids", []) if key not in gone]
    # The tasks were planned on the whole table and carry their own partition spec, so these are not used.
    for spec in content["partition-specs"]:
        for part in spec["fields"]:
            if part["source-id"] in gone:
                part["transform"] = "void"
    content["sort-orders"], content["default-sort-order-id"] = [{"order-id": 0, "fields": []}], 0


def _replace_types(nested: dict[str, Any]) -> None:
    for key in ("type", "element", "key", "value"):
        kind = nested.get(key)
        if isinstance(kind, str) and kind.startswith(_UNKNOWN_TO_PYICEBERG):
            nested[key] = "unknown"
        elif isinstance(kind, dict):
            _replace_types(kind)
    for field in nested.get("fields", []):
        _replace_types(field)
