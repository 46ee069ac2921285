"""Create destination tables and their namespaces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructField, StructType

from icecdc_core.columns import quoted
from icecdc_core.config.parsing.names import split_table_name
from icecdc_core.errors import CatalogError, IdentifierColumnsError
from icecdc_core.ingest.parameters import METADATA, parse_transform
from icecdc_core.ingest.tables.commits.publish import WAP_ENABLED
from icecdc_core.ingest.tables.schemas.columns import METADATA_PREFIX, METADATA_TYPES
from icecdc_core.session.jvm import iceberg_class, java_class
from icecdc_core.table.catalogs import describe_failure

if TYPE_CHECKING:
    from icecdc_core.ingest.config import IngestConfig


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
