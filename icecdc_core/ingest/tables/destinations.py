"""The destination tables: opened, made where that is asked for, grown where records ask for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, StructField, StructType

from icecdc_core.columns import quoted
from icecdc_core.config.values import table_parts
from icecdc_core.errors import CatalogError, IdentifierColumnsError, TableNotFoundError
from icecdc_core.ingest.parameters import METADATA, transform
from icecdc_core.ingest.rows.column_names import folded
from icecdc_core.ingest.rows.first_records import first_schema, frequent_first, marked, refused_fields
from icecdc_core.ingest.rows.json_reading import Path
from icecdc_core.ingest.tables.publish import WAP_ENABLED
from icecdc_core.ingest.tables.schema_evolution import evolution, evolve, inferred, new_columns
from icecdc_core.ingest.tables.table_columns import METADATA_PREFIX, METADATA_TYPES, metadata_names, payload_schema
from icecdc_core.session.jvm import iceberg_class, java_class
from icecdc_core.table.catalogs import load_table, told

if TYPE_CHECKING:
    from icecdc_core.ingest.config import IngestConfig


@dataclass(frozen=True)
class Opened:
    """What `open_table` found.

    Attributes:
        table: Iceberg's table; None while there is none, as no record so far can be a row of a new one.
        refused: If there was none before: the fields of the records that cannot become columns, each with the reason.
    """

    table: Any
    refused: dict[Path, str] = field(default_factory=dict)


def open_table(spark: SparkSession, name: str, records: Callable[[], DataFrame], config: IngestConfig) -> Opened:
    """Load a table, made for these records if it is not there and `auto_create` is set.

    Args:
        spark: The session.
        name: The table, every part quoted.
        records: Makes the frame of them, as `formats.decoded` returns it.
        config: The job's parameters.

    Raises:
        TableNotFoundError: It is not there, and `auto_create` is not set.
    """
    try:
        return Opened(load_table(spark, name))
    except TableNotFoundError as error:
        if not config.auto_create:
            raise TableNotFoundError(
                "The table does not exist",
                subject="auto_create",
                value=name,
                remedy="create it, or set auto_create=true; its records are taken again by the next run",
            ) from error
    seen, columns, refused = _first_columns(records, config)
    if not columns.fields:
        return Opened(None, refused)
    _create(spark, name, seen, columns, config)
    return Opened(load_table(spark, name), refused)


def _first_columns(
    records: Callable[[], DataFrame], config: IngestConfig
) -> tuple[StructType, StructType, dict[Path, str]]:
    """Choose the columns of a new table, from the records that can be rows of it.

    A record with a field that cannot become a column is a dead letter, so its other fields make no columns either.

    Returns:
        What fields the usable records have, the columns, and all refused fields with the reason.
    """
    refused: dict[Path, str] = {}
    while True:
        seen = first_schema(marked(records(), refused) if refused else records(), config)
        columns = new_columns(seen, config, _other_names(config))
        new = {path: why for path, why in refused_fields(columns, seen, config).items() if path not in refused}
        if not new:
            return seen, columns, refused
        # Names that are refused for themselves come first: until their records are out, they count as spellings of
        # other names.
        refused |= {path: why for path, why in new.items() if not _differs_in_case(columns, path)} or new


def _differs_in_case(columns: StructType, path: Path) -> bool:
    """Whether a field has no column because another spelling of its name has one."""
    kind: DataType = columns
    for name in path:
        by_name = {folded(field.name): field for field in kind.fields} if isinstance(kind, StructType) else {}
        if folded(name) not in by_name:
            return False
        kind = by_name[folded(name)].dataType
    return True


def grow(spark: SparkSession, name: str, records: DataFrame, config: IngestConfig) -> StructType:
    """Let the records' schema into the table's, in one commit; returns the records'."""
    table = load_table(spark, name)
    current = payload_schema(spark, table, config)
    seen = frequent_first(records, inferred(records, current), config)
    specs = table.specs().values()
    partitions = [str(field.name()) for spec in specs for field in spec.fields()]
    changes = evolution(current, seen, config, [*partitions, *metadata_names(config)])
    if changes:
        evolve(spark, name, changes)
    return seen


def _other_names(config: IngestConfig) -> list[str]:
    """Names in a new table that no column of the payload may have."""
    kinds = {"years": "year", "months": "month", "days": "day", "hours": "hour", "truncate": "trunc"}
    parts = [transform(text) for text in config.partition_by]
    return [*metadata_names(config), *(f"{column}_{kinds.get(kind, kind)}" for kind, _, column in parts if kind)]


def _create(spark: SparkSession, name: str, payload: StructType, own: StructType, config: IngestConfig) -> None:
    """Make the table with all it needs at once: a crash leaves all of it or nothing."""
    required = set(config.identifier_columns)
    optional = {field.name.lower() for field in payload if field.nullable}
    columns = [StructField(f.name, f.dataType, f.name.lower() in optional and f.name not in required) for f in own]
    columns += [
        StructField(f"{METADATA_PREFIX}{n}", METADATA_TYPES[n]) for n in METADATA if n in config.metadata_columns
    ]
    parts = table_parts(name)
    create_namespace(spark, parts[:-1])
    struct = java_class(spark, "org.apache.spark.sql.types.DataType").fromJson(StructType(columns).json())
    schema = iceberg_class(spark, "spark.SparkSchemaUtil").convert(struct)
    if required:
        ids = java_class(spark, "java.util.HashSet")()
        for column in config.identifier_columns:
            found = schema.findField(column)
            if found is None:
                raise IdentifierColumnsError(
                    "The first records of a new table lack an identifier column",
                    subject="identifier_columns",
                    value=column,
                    remedy="name fields that every record has, or create the table by hand",
                )
            ids.add(found.fieldId())
        schema = iceberg_class(spark, "Schema")(schema.columns(), ids)
    catalog = iceberg_class(spark, "spark.Spark3Util").loadIcebergCatalog(spark._jsparkSession, parts[0])
    levels = spark.sparkContext._gateway.new_array(java_class(spark, "java.lang.String"), len(parts) - 1)  # type: ignore[union-attr]
    for position, part in enumerate(parts[1:]):
        levels[position] = part
    builder = catalog.buildTable(iceberg_class(spark, "catalog.TableIdentifier").of(levels), schema)
    builder = builder.withPartitionSpec(_spec(spark, schema, config))
    if config.sort_columns:
        order = iceberg_class(spark, "SortOrder").builderFor(schema)
        for column in config.sort_columns:
            order.asc(column)
        builder = builder.withSortOrder(order.build())
    properties = {"format-version": "2", WAP_ENABLED: "true"}
    if config.mode == "upsert":
        # A batch changes a few rows of many files; rewriting them all for each would be the whole cost.
        properties |= {f"write.{what}.mode": "merge-on-read" for what in ("merge", "update", "delete")}
    for key, value in {**properties, **config.table_properties}.items():
        builder = builder.withProperty(key, value)
    try:
        builder.create()
    except Py4JJavaError as error:
        if "AlreadyExists" not in str(error.java_exception.getClass().getName()):
            raise CatalogError(
                f"The table could not be made: {told(error)[:500]}",
                subject="auto_create",
                value=name,
                remedy="check the rights of this user, partition_by and table_properties, or create the table by hand",
            ) from error


def create_namespace(spark: SparkSession, parts: tuple[str, ...]) -> None:
    """Make a namespace unless it is there; a catalog that makes none by command has it already, or tells so later.

    Raises:
        CatalogError: The catalog cannot be reached, or refuses to.
    """
    name = ".".join(quoted(part) for part in parts)
    try:
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {name}")
    except AnalysisException:
        return
    except (PySparkException, Py4JJavaError) as error:
        # Of two runs that make it at once, a catalog in a database lets the second fail.
        if not _is_there(spark, name):
            raise CatalogError(
                f"The namespace could not be made: {told(error)[:500]}",
                subject="namespace",
                value=name,
                remedy="check that the catalog can be reached and the rights of this user, or create it by hand",
            ) from error


def _is_there(spark: SparkSession, namespace: str) -> bool:
    try:
        return bool(spark.catalog.databaseExists(namespace))
    except (PySparkException, Py4JJavaError):
        return False


def _spec(spark: SparkSession, schema: Any, config: IngestConfig) -> Any:
    builder = iceberg_class(spark, "PartitionSpec").builderFor(schema)
    methods = {"years": "year", "months": "month", "days": "day", "hours": "hour"}
    for text in config.partition_by:
        kind, width, column = transform(text)
        if width:
            getattr(builder, kind)(column, width)
        elif kind:
            getattr(builder, methods[kind])(column)
        else:
            builder.identity(column)
    return builder.build()
