"""Schemas of Iceberg tables: which columns Spark can read, and the identifiers."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from icecdc_core.columns import UNFIT_IDENTIFIERS, identifier_name, quoted, unused_name, with_times_as_texts
from icecdc_core.errors import DuplicateIdentifierError, IdentifierColumnsError, UnsupportedTypeError
from icecdc_core.session.jvm import fetch_text, iceberg_class, java_helper, struct_type
from icecdc_core.session.spark import tuned_for_many_groups
from icecdc_core.shuffle import shuffle_by_identifiers

METADATA_COLUMNS = StructType().add("_file", "string").add("_pos", "long").add("_deleted", "boolean")
METADATA_COLUMNS.add("_row_id", "long").add("_last_updated_sequence_number", "long")


def require_identifier_types(names: Sequence[str], schema: StructType) -> None:
    for name in names:
        kind = schema[name].dataType
        if isinstance(kind, UNFIT_IDENTIFIERS):
            raise IdentifierColumnsError(
                f"Column '{name}' of type {kind.simpleString()} cannot identify a row",
                subject="identifier_columns",
                value=list(names),
                remedy="use columns of a whole number, string, date, time, decimal, boolean, uuid or binary type",
            )


def any_null(columns: Sequence[str]) -> str:
    return " OR ".join(f"{quoted(name)} IS NULL" for name in columns)


def require_unique(rows: DataFrame, identifier_columns: Sequence[str], table: str, allow_duplicates: bool) -> None:
    names, count = [quoted(name) for name in identifier_columns], unused_name("_rows", identifier_columns)
    wrong = any_null(identifier_columns) + ("" if allow_duplicates else f" OR {quoted(count)} > 1")
    groups = (
        rows.select(*names)
        # Nearly every row is a group of its own, so a partial aggregate before it would not reduce anything.
        .transform(shuffle_by_identifiers, identifier_columns)
        .groupBy(*names)
        .agg(F.count(F.lit(1)).alias(count))
    )
    with tuned_for_many_groups(rows.sparkSession):
        suspects = groups.where(wrong).limit(5).transform(with_times_as_texts).collect()
    shown = [{identifier_name(name): row[name] for name in identifier_columns} for row in suspects]
    for values in shown:
        if None in values.values():
            raise null_error(table, values, f"for example {values}")
    if suspects:
        raise duplicate_error(table, shown[0], f"{suspects[0][count]} rows share {shown[0]}")


def require_no_null(identifiers: DataFrame, identifier_columns: Sequence[str], table: str) -> None:
    nulls = identifiers.where(any_null(identifier_columns)).select(*map(quoted, identifier_columns)).limit(1)
    for row in nulls.transform(with_times_as_texts).collect():
        values = {identifier_name(name): row[name] for name in identifier_columns}
        raise null_error(table, values, f"for example {values}")


_OTHER_COLUMNS = "(with replace_index=true, in an export, if the index exists)"


def duplicate_error(table: str, identifier_columns: Iterable[str], said: str) -> DuplicateIdentifierError:
    return DuplicateIdentifierError(
        f"Identifier columns of '{table}' are not unique: {said}",
        subject="identifier_columns",
        value=list(identifier_columns),
        remedy=f"remove the duplicates, set on_duplicate_identifier=last, or choose columns that are unique together "
        f"{_OTHER_COLUMNS}",
    )


def null_error(table: str, identifier_columns: Iterable[str], said: str) -> IdentifierColumnsError:
    return IdentifierColumnsError(
        f"Identifier columns of '{table}' are null in some rows: {said}",
        subject="identifier_columns",
        value=list(identifier_columns),
        remedy=f"leave those rows out with row_filter, or choose columns that are never null {_OTHER_COLUMNS}",
    )


def unreadable_columns(spark: SparkSession, table: Any) -> dict[str, str]:
    reserved, fold = iceberg_class(spark, "MetadataColumns"), str if is_case_sensitive(spark) else str.lower
    found = {
        name: "has the name of a metadata column of Iceberg, so it cannot be read"
        for name in top_level_names(spark, table)
        if name.startswith("_") and (fold(name) in METADATA_COLUMNS.names or reserved.isMetadataColumn(name))
    }
    convert = iceberg_class(spark, "spark.SparkSchemaUtil").convert
    if not _is_convertible(convert, table.schema()):
        found |= {
            str(field.name()): f"has the type {field.type().toString()}, which Spark cannot read"
            for field in table.schema().columns()
            if not _is_convertible(convert, iceberg_class(spark, "Schema")([field]))
        }
    return found


def top_level_names(spark: SparkSession, table: Any) -> list[str]:
    schema = json.loads(fetch_text(java_helper(spark).json(table.schema())))
    return [str(field["name"]) for field in schema["fields"]]


def spark_schema(spark: SparkSession, table: Any) -> StructType:
    return struct_type(spark, iceberg_class(spark, "spark.SparkSchemaUtil").convert(table.schema()))


def require_readable(unreadable: Mapping[str, str], columns: Collection[str]) -> None:
    for name, problem in unreadable.items():
        if name in columns:
            raise UnsupportedTypeError(
                f"Column '{name}' {problem}",
                subject="column",
                value=name,
                remedy="leave it out with the columns parameter or select (Spark 4.1 and newer), or change the table",
            )


def require_distinct(spark: SparkSession, schema: StructType, columns: Collection[str]) -> None:
    if is_case_sensitive(spark):
        return
    for first, second in find_ambiguous_names(schema):
        if {first.split("\0")[0], second.split("\0")[0]} & set(columns):
            one, other = first.replace("\0", "."), second.replace("\0", ".")
            raise UnsupportedTypeError(
                f"Columns '{one}' and '{other}' differ only in upper and lower case",
                subject="column",
                value=other,
                remedy="rename one of them in the table, or set spark.sql.caseSensitive=true in the Spark "
                "session (in spark_conf, if icecdc starts it)",
            )


def is_case_sensitive(spark: SparkSession) -> bool:
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


def table_to_read(spark: SparkSession, table: Any, without: Collection[str] = (), row_lineage: bool = True) -> Any:
    """Return a copy of the Java table for reading staged tasks: without some columns, or without row lineage."""
    operations = table.operations()
    content = json.loads(fetch_text(java_helper(spark).metadata(table)))
    if not row_lineage:
        # From version 3 on, Iceberg's table of staged tasks has the columns of row lineage, and then Spark reads no
        # other metadata column. The tasks say what the files contain and which deletes apply, whatever the version.
        content["format-version"] = 2
        content.pop("next-row-id", None)
    if without:
        current = next(each for each in content["schemas"] if each["schema-id"] == content["current-schema-id"])
        gone = {field["id"] for field in current["fields"] if field["name"] in without}
        current["fields"] = [field for field in current["fields"] if field["id"] not in gone]
        current["identifier-field-ids"] = [key for key in current.get("identifier-field-ids", []) if key not in gone]
        # The tasks were planned on the whole table and carry their own partition spec, so these are not used.
        for spec in content["partition-specs"]:
            for part in spec["fields"]:
                if part["source-id"] in gone:
                    part["transform"] = "void"
        content["sort-orders"], content["default-sort-order-id"] = [{"order-id": 0, "fields": []}], 0
    # Reading files needs none of these, and there may be hundreds.
    content.update({"snapshots": [], "snapshot-log": [], "metadata-log": [], "refs": {}, "current-snapshot-id": -1})
    parser, location = iceberg_class(spark, "TableMetadataParser"), operations.current().metadataFileLocation()
    reduced = parser.fromJson(location, json.dumps(content))
    static = iceberg_class(spark, "StaticTableOperations")(reduced, operations.io())
    return iceberg_class(spark, "BaseTable")(static, table.name())


def _is_convertible(convert: Any, schema: Any) -> bool:
    try:
        convert(schema)
    except (Py4JError, PySparkException):
        return False
    return True
