"""Destination tables: opened or created, with columns that follow the records.

In: the columns of records. Out: a table that has them, or an error that says why not.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus, urlsplit

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from icecdc_core.columns import quoted
from icecdc_core.config.values import split_table_name
from icecdc_core.errors import CatalogError, ColumnNotFoundError, IdentifierColumnsError, TableNotFoundError
from icecdc_core.ingest.column_types import fold_case
from icecdc_core.ingest.config import METADATA, parse_transform
from icecdc_core.ingest.evolution import evolve, new_columns, plan_evolution
from icecdc_core.ingest.inference import infer_schema
from icecdc_core.ingest.publish import WAP_ENABLED
from icecdc_core.ingest.readers import DEFAULT, FOLDERS, WRITTEN_AS, is_too_long_for_folder
from icecdc_core.session.jvm import iceberg_class, java_class
from icecdc_core.table.catalogs import describe_failure, load_table
from icecdc_core.table.schema import spark_schema, top_level_names

if TYPE_CHECKING:
    from icecdc_core.ingest.config import IngestConfig


METADATA_PREFIX = "_kafka_"
_FOLDER_BYTES = 255
_OBJECT_STORES = {"s3", "s3a", "s3n", "gs", "oss", "wasb", "wasbs"}
_KEY_BYTES = 1024
_FILE_NAME_BYTES = 150
_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
METADATA_TYPES: dict[str, DataType] = dict(
    zip(
        METADATA,
        [StringType(), IntegerType(), LongType(), TimestampType(), BinaryType(), ArrayType(_HEADER)],
        strict=True,
    )
)


def payload_schema(spark: SparkSession, table: Any, config: IngestConfig) -> StructType:
    """The columns of a table that come from the payload: all but those for Kafka's metadata."""
    schema = with_checks(spark, table, spark_schema(spark, table))
    wanted = {f"{METADATA_PREFIX}{column}" for column in config.metadata_columns}
    if missing := sorted(wanted - set(schema.names)):
        types = {name: METADATA_TYPES[name.removeprefix(METADATA_PREFIX)].simpleString() for name in missing}
        raise ColumnNotFoundError(
            "The table lacks columns for metadata_columns",
            subject="metadata_columns",
            value=missing,
            remedy="add them: " + ", ".join(f"{name} {kind}" for name, kind in types.items()),
        )
    return StructType([column for column in schema if column.name not in wanted])


def metadata_checks(spark: SparkSession, table: Any, config: IngestConfig) -> dict[str, list[dict[str, Any]]]:
    """Which metadata columns are partition columns whose values can be too long for the names of partition folders."""
    schema = with_checks(spark, table, spark_schema(spark, table))
    columns = {name: f"{METADATA_PREFIX}{name}" for name in config.metadata_columns}
    found = {name: schema[each].metadata.get(FOLDERS) for name, each in columns.items() if each in schema.names}
    return {name: json.loads(folders) for name, folders in found.items() if folders}


def with_metadata_problems(decoded: DataFrame, checks: dict[str, list[dict[str, Any]]]) -> DataFrame:
    """Fill in the `problem` of records whose metadata makes the name of a partition folder too long."""
    for name, folders in checks.items():
        for folder in folders:
            is_long = is_too_long_for_folder(F.col(name), METADATA_TYPES[name], folder)
            text = f"field {METADATA_PREFIX}{name} makes the name of a partition folder too long"
            problem = F.coalesce("problem", F.when(is_long & ~F.col("op").eqNullSafe("delete"), F.lit(text)))
            decoded = decoded.withColumn("problem", problem)
    return decoded


def metadata_names(config: IngestConfig) -> list[str]:
    """The names of the table's columns for Kafka's metadata."""
    return [f"{METADATA_PREFIX}{column}" for column in config.metadata_columns]


def identifiers(spark: SparkSession, table: Any, config: IngestConfig) -> list[str]:
    """The columns that identify a row: those of the parameters, else the table's identifier fields."""
    names = list(config.identifier_columns) or sorted(str(name) for name in table.schema().identifierFieldNames())
    columns = set(top_level_names(spark, table))
    if not names or set(names) - columns:
        raise IdentifierColumnsError(
            "mode=upsert needs identifier columns" if not names else "identifier columns are missing in the table",
            subject="identifier_columns",
            value=sorted(set(names) - columns) or names,
            remedy="name columns of the table that together identify a row, or set the table's identifier fields",
        )
    return names


def create_table(spark: SparkSession, name: str, seen: StructType, columns: StructType, config: IngestConfig) -> None:
    """Create a table with schema, partitions, sort order and properties in one commit."""
    parts = split_table_name(name)
    create_namespace(spark, parts[:-1])
    schema = _iceberg_schema(spark, seen, columns, config)
    catalog = iceberg_class(spark, "spark.Spark3Util").loadIcebergCatalog(spark._jsparkSession, parts[0])
    levels = spark.sparkContext._gateway.new_array(java_class(spark, "java.lang.String"), len(parts) - 1)  # type: ignore[union-attr]
    for position, part in enumerate(parts[1:]):
        levels[position] = part
    builder = catalog.buildTable(iceberg_class(spark, "catalog.TableIdentifier").of(levels), schema)
    builder = builder.withPartitionSpec(_partition_spec(spark, schema, config))
    if config.sort_columns:
        order = iceberg_class(spark, "SortOrder").builderFor(schema)
        for column in config.sort_columns:
            order.asc(column)
        builder = builder.withSortOrder(order.build())
    properties = {"format-version": "2", WAP_ENABLED: "true"}
    if config.mode == "upsert":
        # A batch changes a few rows of many files. Copy-on-write would rewrite all of these files.
        properties |= {f"write.{command}.mode": "merge-on-read" for command in ("merge", "update", "delete")}
    for key, value in {**properties, **config.table_properties}.items():
        builder = builder.withProperty(key, value)
    try:
        builder.create()
    except Py4JJavaError as error:
        if "AlreadyExists" not in str(error.java_exception.getClass().getName()):
            raise CatalogError(
                f"The table could not be created: {describe_failure(error)[:500]}",
                subject="auto_create",
                value=name,
                remedy="check permissions, partition_by and table_properties, or create the table by hand",
            ) from error


def create_namespace(spark: SparkSession, parts: tuple[str, ...]) -> None:
    """Create a namespace if it does not exist.

    Some catalogs cannot create namespaces. Then it exists already, or the first table says that it does not.
    """
    name = ".".join(quoted(part) for part in parts)
    try:
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {name}")
    except AnalysisException:
        return
    except (PySparkException, Py4JJavaError) as error:
        # If two runs create it at once, a catalog in a database fails for the second.
        if not _exists(spark, name):
            raise CatalogError(
                f"The namespace could not be created: {describe_failure(error)[:500]}",
                subject="namespace",
                value=name,
                remedy="check that the catalog can be reached, and the permissions of this user, or create it by hand",
            ) from error


def partition_names(config: IngestConfig) -> list[str]:
    """Return the names that Iceberg gives to the partition fields of a new table, but for those of plain columns."""
    suffixes = {"years": "year", "months": "month", "days": "day", "hours": "hour", "truncate": "trunc"}
    parts = [parse_transform(text) for text in config.partition_by]
    return [f"{column}_{suffixes.get(kind, kind)}" for kind, _, column in parts if kind]


def _iceberg_schema(spark: SparkSession, seen: StructType, columns: StructType, config: IngestConfig) -> Any:
    required = set(config.identifier_columns)
    optional = {field.name.lower() for field in seen if field.nullable}
    fields = [StructField(f.name, f.dataType, f.name.lower() in optional and f.name not in required) for f in columns]
    fields += [
        StructField(f"{METADATA_PREFIX}{n}", METADATA_TYPES[n]) for n in METADATA if n in config.metadata_columns
    ]
    struct = java_class(spark, "org.apache.spark.sql.types.DataType").fromJson(StructType(fields).json())
    schema = iceberg_class(spark, "spark.SparkSchemaUtil").convert(struct)
    if not required:
        return schema
    ids = java_class(spark, "java.util.HashSet")()
    for column in config.identifier_columns:
        identifier = schema.findField(column)
        if identifier is None:
            raise IdentifierColumnsError(
                "The first records of a new table lack an identifier column",
                subject="identifier_columns",
                value=column,
                remedy="name fields that every record has, or create the table by hand",
            )
        ids.add(identifier.fieldId())
    return iceberg_class(spark, "Schema")(schema.columns(), ids)


def _partition_spec(spark: SparkSession, schema: Any, config: IngestConfig) -> Any:
    builder = iceberg_class(spark, "PartitionSpec").builderFor(schema)
    methods = {"years": "year", "months": "month", "days": "day", "hours": "hour"}
    for text in config.partition_by:
        kind, width, column = parse_transform(text)
        if width:
            getattr(builder, kind)(column, width)
        elif kind:
            getattr(builder, methods[kind])(column)
        else:
            builder.identity(column)
    return builder.build()


def _exists(spark: SparkSession, namespace: str) -> bool:
    try:
        return bool(spark.catalog.databaseExists(namespace))
    except (PySparkException, Py4JJavaError):
        return False


@dataclass(frozen=True)
class OpenedTable:
    """A table as `open_or_create_table` loaded or created it; None if no record can be a row of a new one."""

    table: Any
    is_new: bool = False


def open_or_create_table(
    spark: SparkSession, name: str, records: Callable[[], DataFrame], config: IngestConfig
) -> OpenedTable:
    """Load a table. If it does not exist and `auto_create` is set, create it for these records."""
    try:
        return OpenedTable(load_table(spark, name))
    except TableNotFoundError as error:
        if not config.auto_create:
            raise TableNotFoundError(
                "The table does not exist",
                subject="auto_create",
                value=name,
                remedy="create it, or set auto_create=true; the next run reads its records again",
            ) from error
    seen = infer_schema(records().where(~F.col("op").eqNullSafe("delete")))
    columns = new_columns(seen, config, [*metadata_names(config), *partition_names(config)])
    # A record without an identifier cannot be a row.
    known = {fold_case(column) for column in columns.names}
    identifiers = [{fold_case(column), fold_case(column).split(".")[0]} for column in config.identifier_columns]
    if not known or not all(known & names for names in identifiers):
        return OpenedTable(None)
    create_table(spark, name, seen, columns, config)
    return OpenedTable(load_table(spark, name), is_new=True)


def evolve_for_records(spark: SparkSession, name: str, records: DataFrame, config: IngestConfig) -> StructType:
    """Change a table's schema in one commit so that it fits the records."""
    table = load_table(spark, name)
    current = payload_schema(spark, table, config)
    seen = infer_schema(records, current, any_case=config.column_case != "sensitive")
    specs = table.specs().values()
    partitions = [str(field.name()) for spec in specs for field in spec.fields()]
    identifiers = [str(identifier) for identifier in table.schema().identifierFieldNames()]
    changes = plan_evolution(current, seen, config, [*partitions, *metadata_names(config)], identifiers)
    if changes:
        evolve(spark, name, changes)
    return seen


Folders = dict[int, list[dict[str, Any]]]
"""By the ID of a column: an entry for each partition folder whose name its values become."""


def with_checks(spark: SparkSession, table: Any, schema: StructType) -> StructType:
    """Return a table's columns; their metadata has what readers must know of them that Spark does not show."""
    types = json.loads(iceberg_class(spark, "SchemaParser").toJson(table.schema()))
    return _with_field_checks(schema, types, _folders(spark, table))


def _with_field_checks(schema: StructType, types: dict[str, Any], folders: Folders) -> StructType:
    fields = []
    for column, field in zip(schema.fields, types["fields"], strict=True):
        kind, written_as = _with_nested_checks(column.dataType, field["type"], folders)
        metadata = dict(column.metadata or {})
        if written_as:
            metadata[WRITTEN_AS] = json.dumps(written_as)
        if field.get("write-default") is not None and isinstance(field["type"], str):
            metadata[DEFAULT] = _default_text(column.dataType, field["write-default"])
        if field["id"] in folders and isinstance(kind, (StringType, BinaryType)):
            metadata[FOLDERS] = json.dumps(folders[field["id"]])
        fields.append(StructField(column.name, kind, column.nullable, metadata))
    return StructType(fields)


def _default_text(kind: DataType, value: Any) -> str:
    """A default, as Iceberg's JSON has it, as Spark SQL of the type with which records are read."""
    text = str(value).replace("\\", "\\\\").replace("'", "\\'")
    if isinstance(kind, BinaryType):
        return f"X'{text}'"
    # Dates and times are read as text.
    is_text = isinstance(kind, (StringType, DateType, TimestampType))
    return f"'{text}'" if is_text else f"CAST('{text}' AS {kind.simpleString()})"


def _with_nested_checks(kind: DataType, wanted: Any, folders: Folders) -> tuple[DataType, Any]:
    """The type with the checks of its fields, and the type of its values if Spark does not show it."""
    if isinstance(kind, StructType):
        return _with_field_checks(kind, wanted, folders), ""
    # A partition field cannot have its source in an array or a map.
    if isinstance(kind, ArrayType):
        element, written_as = _with_nested_checks(kind.elementType, wanted["element"], {})
        return ArrayType(element, kind.containsNull), written_as
    if isinstance(kind, MapType):
        _, key = _with_nested_checks(kind.keyType, wanted["key"], {})
        value, written_as = _with_nested_checks(kind.valueType, wanted["value"], {})
        checks = {"key": key, "value": written_as} if key or written_as else ""
        return MapType(kind.keyType, value, kind.valueContainsNull), checks
    return kind, wanted if wanted == "uuid" or str(wanted).startswith("fixed[") else ""


def _folders(spark: SparkSession, table: Any) -> Folders:
    """How values become the names of partition folders, by the ID of the column.

    A file system allows 255 bytes for each name, an object store 1,024 bytes for a key, which all folders share.
    """
    fields = json.loads(iceberg_class(spark, "PartitionSpecParser").toJson(table.spec()))["fields"]
    location = table.properties().get("write.data.path") or f"{table.location()}/data"
    limit = _FOLDER_BYTES
    if fields and urlsplit(location).scheme in _OBJECT_STORES:
        limit = (_KEY_BYTES - _FILE_NAME_BYTES - len(location.encode())) // len(fields) - len("/")
    folders: Folders = {}
    for field in fields:
        transform, _, width = field["transform"].partition("[")
        if transform in ("identity", "truncate"):  # the others have short values
            left = max(0, limit - len(f"{quote_plus(field['name'])}="))
            folder = {"width": int(width.removesuffix("]") or 0), "limit": left}
            folders.setdefault(field["source-id"], []).append(folder)
    return folders
