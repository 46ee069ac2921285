"""Schemas of Iceberg tables: which columns Spark can read, what changed between two schemas, and the identifiers.

In: a table or its schemas. Out: readable tables, differences, names of identifier columns.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from py4j.protocol import Py4JError
from pyiceberg.schema import Schema
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType

from icecdc_core.columns import UNFIT_IDENTIFIERS, identifier_name, quoted, unused_name
from icecdc_core.errors import DuplicateIdentifierError, IdentifierColumnsError, UnsupportedTypeError
from icecdc_core.session.jvm import iceberg_class, java_class
from icecdc_core.session.spark import tuned_for_many_groups
from icecdc_core.shuffle import shuffle_by_identifiers

Kind = Literal[
    "added",
    "added_with_default",
    "dropped",
    "name_reused",
    "renamed",
    "type_widened",
    "type_changed",
    "made_optional",
    "made_required",
    "reordered",
]
_WIDER = {("int", "long"), ("float", "double"), ("date", "timestamp"), ("date", "timestamp_ns")}


@dataclass(frozen=True)
class SchemaChange:
    """One change of one column."""

    kind: Kind
    column: str
    was: str = ""
    now: str = ""
    additive: bool = False

    def __str__(self) -> str:
        texts = {
            "added": "was added",
            "added_with_default": f"was added with the default {self.now} for old rows",
            "dropped": "was dropped",
            "name_reused": "was dropped and another column took its name",
            "renamed": f"was renamed to '{self.now}'",
            "type_widened": f"was widened from {self.was} to {self.now}",
            "type_changed": f"changed from {self.was} to {self.now}",
            "made_optional": "became optional",
            "made_required": "became required",
            "reordered": "was moved",
        }
        return f"column '{self.column}' {texts[self.kind]}"


@dataclass(frozen=True)
class _Field:
    key: int
    path: str
    name: str
    top: str
    type: str
    required: bool
    default: object
    parent: int
    siblings: tuple[int, ...]


def schema_change(old_schema: str, new_schema: str, columns: Sequence[str] = ()) -> list[SchemaChange]:
    """Compare two Iceberg schemas."""
    old = {key: field for key, field in _flatten(old_schema) if not columns or field.top in columns}
    new = {key: field for key, field in _flatten(new_schema) if not columns or field.top in columns}
    new_paths = {field.path for key, field in new.items() if key not in old}
    changes: list[SchemaChange] = []
    for key, was in old.items():
        if key not in new:
            if was.parent not in old or was.parent in new:  # a dropped struct stands for its fields
                changes.append(SchemaChange("name_reused" if was.path in new_paths else "dropped", was.path))
            continue
        changes += _compare(was, new[key])
        if _moved(was, new[key]):
            changes.append(SchemaChange("reordered", was.path, additive=True))
    for key, now in new.items():
        if key in old or (now.parent in new and now.parent not in old):
            continue
        if now.default is None:
            changes.append(SchemaChange("added", now.path, additive=True))
        else:
            changes.append(SchemaChange("added_with_default", now.path, now=json.dumps(now.default)))
    return changes


def is_additive(changes: Sequence[SchemaChange]) -> bool:
    """Whether an index can follow all of these changes in place."""
    return all(change.additive for change in changes)


def _compare(was: _Field, now: _Field) -> Iterator[SchemaChange]:
    if was.name != now.name:
        yield SchemaChange("renamed", was.path, was.name, now.name)
    if was.type != now.type:
        # If only the precision grows, a decimal's text and index field stay the same.
        decimal = _wider_decimal(was.type, now.type)
        wider = decimal or (was.type, now.type) in _WIDER
        kind: Kind = "type_widened" if wider else "type_changed"
        yield SchemaChange(kind, was.path, was.type, now.type, additive=decimal)
    if was.required != now.required:
        yield SchemaChange("made_required" if now.required else "made_optional", was.path, additive=True)


def _moved(was: _Field, now: _Field) -> bool:
    """Whether the field comes after another one than before, among the fields that both schemas have."""
    kept = set(was.siblings) & set(now.siblings)
    before = [sibling for sibling in was.siblings[: was.siblings.index(was.key)] if sibling in kept]
    after = [sibling for sibling in now.siblings[: now.siblings.index(now.key)] if sibling in kept]
    return before[-1:] != after[-1:]


def _wider_decimal(was: str, now: str) -> bool:
    if not (was.startswith("decimal(") and now.startswith("decimal(")):
        return False
    (precision, scale), (new_precision, new_scale) = _digits(was), _digits(now)
    return scale == new_scale and new_precision > precision


def _digits(decimal: str) -> tuple[int, int]:
    precision, scale = decimal.removeprefix("decimal(").rstrip(")").split(",")
    return int(precision), int(scale)


def _flatten(schema: str) -> Iterator[tuple[int, _Field]]:
    yield from _children(json.loads(schema)["fields"], "", "", 0)


def _children(fields: list[dict[str, Any]], prefix: str, top: str, parent: int) -> Iterator[tuple[int, _Field]]:
    siblings = tuple(field["id"] for field in fields)
    for field in fields:
        key, name, kind = field["id"], field["name"], field["type"]
        path, outer = f"{prefix}{name}", top or name
        text = kind if isinstance(kind, str) else str(kind["type"])
        text = text.replace(" ", "")
        default = field.get("initial-default", field.get("initial_default"))
        yield key, _Field(key, path, name, outer, text, bool(field.get("required")), default, parent, siblings)
        yield from _children(_inner(kind), f"{path}.", outer, key)


def _inner(kind: Any) -> list[dict[str, Any]]:
    """The fields of a nested type, with list elements and map entries as fields of their own."""
    if isinstance(kind, str):
        return []
    if kind["type"] == "struct":
        return list(kind["fields"])
    parts = ("element",) if kind["type"] == "list" else ("key", "value")
    return [
        {"id": kind[f"{part}-id"], "name": part, "type": kind[part], "required": kind.get(f"{part}-required", True)}
        for part in parts
    ]


def identifier_fields(schema: Schema) -> list[str]:
    """Return the names of an Iceberg schema's identifier fields, in the order of its columns."""
    order = {field.name: position for position, field in enumerate(schema.fields)}
    names = [schema.find_column_name(field_id) or "" for field_id in schema.identifier_field_ids]
    return sorted(names, key=lambda name: order.get(name.split(".")[0], 0))


def require_identifier_types(names: Sequence[str], schema: StructType) -> None:
    """Refuse identifier columns of a type whose equal values have several texts."""
    for name in names:
        kind = schema[name].dataType
        if isinstance(kind, UNFIT_IDENTIFIERS):
            raise IdentifierColumnsError(
                f"Column '{name}' of type {kind.simpleString()} cannot identify a row",
                subject="identifier_columns",
                value=list(names),
                remedy="use columns of a whole number, string, date, time, decimal, boolean, uuid or binary type",
            )


def require_unique(rows: DataFrame, identifier_columns: Sequence[str], table: str, allow_duplicates: bool) -> None:
    """Check that no identifier is null and none occurs twice, reading the identifier columns only."""
    names, count = [quoted(name) for name in identifier_columns], unused_name("_rows", identifier_columns)
    some_null = F.greatest(*[F.col(name).isNull() for name in names], F.lit(False))
    # Nearly every row is a group of its own, so a partial aggregate before the shuffle would not reduce anything.
    identifiers = rows.select(*names).transform(shuffle_by_identifiers, identifier_columns)
    groups = identifiers.groupBy(*names).agg(F.count(F.lit(1)).alias(count))
    with tuned_for_many_groups(rows.sparkSession):
        suspects = groups.where(some_null if allow_duplicates else some_null | (F.col(count) > 1)).limit(5).collect()
    if not suspects:
        return
    shown = [{identifier_name(name): row[name] for name in identifier_columns} for row in suspects]
    for values in shown:
        _require_values(values, table)
    raise DuplicateIdentifierError(
        f"Identifier columns of '{table}' are not unique: {suspects[0][count]} rows share {shown[0]}",
        subject="identifier_columns",
        value=[identifier_name(name) for name in identifier_columns],
        remedy="choose columns that are unique together, remove the duplicate rows, "
        "or set on_duplicate_identifier=last",
    )


def require_no_null(identifiers: DataFrame, identifier_columns: Sequence[str], table: str) -> None:
    """Check that no identifier is null."""
    names = [quoted(name) for name in identifier_columns]
    some_null = F.greatest(*[F.col(name).isNull() for name in names], F.lit(False))
    for row in identifiers.where(some_null).limit(1).collect():
        _require_values({identifier_name(name): row[name] for name in identifier_columns}, table)


def _require_values(identifier: dict[str, Any], table: str) -> None:
    if None in identifier.values():
        raise IdentifierColumnsError(
            f"Identifier columns of '{table}' are null in some rows, for example {identifier}",
            subject="identifier_columns",
            value=list(identifier),
            remedy="choose columns that are never null, or leave those rows out with row_filter",
        )


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
