"""Destination tables: opened or created, with columns that follow the records."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from typing import Any, Literal, cast
from urllib.parse import quote_plus, urlsplit

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, functions as F, types as T

from icecdc_core import errors
from icecdc_core.columns import TIMES, quoted
from icecdc_core.config.values import split_table_name
from icecdc_core.ingest.branches import open_branch
from icecdc_core.ingest.config import IngestConfig, parse_transform
from icecdc_core.ingest.formats.decode_results import IS_DELETE
from icecdc_core.ingest.inference import (
    ColumnNames,
    Seen,
    find_spellings,
    fold_case,
    infer_schema,
    look_at,
    merge_types,
    promote_type,
)
from icecdc_core.ingest.publish import WAP_ENABLED, raise_if_moved, table_version
from icecdc_core.ingest.readers import DEFAULT, WRITTEN_AS, Path
from icecdc_core.ingest.rows import IS_VALID, ROW
from icecdc_core.session.jvm import iceberg_class, is_raised_as, java_class
from icecdc_core.table.catalogs import catalog_error, describe_failure, load_table
from icecdc_core.table.schema import spark_schema, top_level_names

METADATA_PREFIX, OP_COLUMN = "_kafka_", "_op"
_OBJECT_STORES = {"s3", "s3a", "s3n", "gs", "oss", "wasb", "wasbs"}
_FOLDER_BYTES, _KEY_BYTES, _FILE_NAME_BYTES = 255, 1024, 150
_METADATA = (
    "topic STRING, partition INT, offset LONG, timestamp TIMESTAMP, key BINARY, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)


def payload_schema(spark: SparkSession, table: Any, config: IngestConfig) -> T.StructType:
    """The columns of a table that come from the payload: all but those for Kafka's metadata."""
    types = json.loads(iceberg_class(spark, "SchemaParser").toJson(table.schema()))
    schema = _with_hidden_types(spark_schema(spark, table), types)
    own = metadata_names(config)
    return T.StructType([column for column in schema if column.name not in own])


@cache
def _metadata() -> T.StructType:
    return cast(T.StructType, T.StructType.fromDDL(_METADATA))


def metadata_names(config: IngestConfig) -> list[str]:
    return _own_columns(config).names


def _own_columns(config: IngestConfig) -> T.StructType:
    """The columns that do not come from the payload: Kafka's metadata, what a change did, when a row was deleted."""
    own = [T.StructField(f"{METADATA_PREFIX}{name}", _metadata()[name].dataType) for name in config.metadata_columns]
    if config.mode == "history":
        own.append(T.StructField(OP_COLUMN, T.StringType()))
    elif config.deletes == "soft":
        own.append(T.StructField(config.deleted_column, T.TimestampType()))
    return T.StructType(own)


def require_place_for_deletes(
    spark: SparkSession, name: str, table: Any, config: IngestConfig, identifiers: Sequence[str]
) -> None:
    """Refuse a table in which a delete cannot be a row; `evolve_schema` adds the columns that it lacks."""
    own, columns = _own_columns(config), {column.name: column for column in spark_schema(spark, table)}
    lacking = [each for each in own if each.name not in columns]
    wrong = [each for each in own if each.name in columns and columns[each.name].dataType != each.dataType]
    subject = "mode" if config.mode == "history" else "deleted_column"
    if lacking and config.evolve_schema:
        evolve(spark, name, table, [ColumnChange("add", (each.name,), each.dataType) for each in lacking])
    elif lacking or wrong:
        needed = ", ".join(f"{quoted(each.name)} {each.dataType.simpleString()}" for each in (*lacking, *wrong))
        raise errors.ColumnNotFoundError(
            "The table lacks columns for deletes, or they have another type",
            subject=subject,
            value=[each.name for each in (*lacking, *wrong)],
            remedy=f"alter the table such that it has {needed}",
        )
    known = {*own.names, *identifiers}
    if required := [each.name for each in columns.values() if not each.nullable and each.name not in known]:
        raise errors.ConfigError(
            f"A delete has no value for required columns of {name}",
            subject=subject,
            value=required,
            remedy="make them optional: ALTER TABLE ... ALTER COLUMN ... DROP NOT NULL",
        )


def identifiers(spark: SparkSession, table: Any, config: IngestConfig) -> list[str]:
    names = list(config.identifier_columns) or sorted(str(name) for name in table.schema().identifierFieldNames())
    columns = set(top_level_names(spark, table))
    if not names or set(names) - columns:
        raise errors.IdentifierColumnsError(
            "mode=upsert needs identifier columns" if not names else "identifier columns are missing in the table",
            subject="identifier_columns",
            value=sorted(set(names) - columns) or names,
            remedy="name columns of the table that together identify a row, or set the table's identifier fields",
        )
    return names


def create_table(
    spark: SparkSession, name: str, seen: T.StructType, columns: T.StructType, config: IngestConfig
) -> None:
    create_namespace(spark, ".".join(map(quoted, split_table_name(name)[:-1])))
    spark3 = iceberg_class(spark, "spark.Spark3Util")
    destination = spark3.catalogAndIdentifier(spark._jsparkSession, name)
    properties = {"format-version": "2", WAP_ENABLED: "true"}
    # A batch of upserts changes a few rows of many files. Copy-on-write would rewrite all of these files.
    commands = ("merge", "update", "delete") if config.mode == "upsert" else ()
    properties |= {f"write.{command}.mode": "merge-on-read" for command in commands}
    required = set(config.identifier_columns)
    optional = {field.name.lower() for field in seen if field.nullable or config.keeps_deletes}
    fields = [T.StructField(f.name, f.dataType, f.name.lower() in optional and f.name not in required) for f in columns]
    fields += [T.StructField(each.name, each.dataType, each.name not in required) for each in _own_columns(config)]
    try:
        struct = java_class(spark, "org.apache.spark.sql.types.DataType").fromJson(T.StructType(fields).json())
        schema = iceberg_class(spark, "spark.SparkSchemaUtil").convert(struct)
        found = {column: schema.findField(column) for column in config.identifier_columns}
        if missing := [column for column, field in found.items() if field is None]:
            raise errors.IdentifierColumnsError(
                "The first records of a new table lack an identifier column",
                subject="identifier_columns",
                value=missing[0],
                remedy="name fields that every record has, spelled as the columns, which are "
                f"{', '.join(columns.names)[:500]}; or create the table by hand",
            )
        # In a history they do not identify rows.
        ids = {field.fieldId() for field in found.values() if config.mode != "history"}
        schema = iceberg_class(spark, "Schema")(schema.columns(), ids)
        partitions = iceberg_class(spark, "PartitionSpec").builderFor(schema)
        for text in config.partition_by:
            kind, width, column = parse_transform(text)
            add = getattr(partitions, kind or "identity")
            add(column, width) if width else add(column)
        order = iceberg_class(spark, "SortOrder").builderFor(schema)
        for column in config.sort_columns:
            order.asc(column)
        catalog = spark3.loadIcebergCatalog(spark._jsparkSession, destination.catalog().name())
        builder = catalog.buildTable(spark3.identifierToTableIdentifier(destination.identifier()), schema)
        builder.withProperties({**properties, **config.table_properties})
        builder.withPartitionSpec(partitions.build()).withSortOrder(order.build()).create()
    except (PySparkException, Py4JJavaError) as error:
        if not is_raised_as(error, {"AlreadyExistsException"}):
            raise _creation_error(error, spark, "table", name) from error


def create_namespace(spark: SparkSession, name: str) -> None:
    """Create a namespace if it does not exist; some catalogs cannot, then the first table says so."""
    for is_last in (False, True):  # if two runs create it at once, a catalog in a database fails for the second
        try:
            spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {name}")
            return
        except AnalysisException:
            return
        except (PySparkException, Py4JJavaError) as error:
            if is_last:
                raise _creation_error(error, spark, "namespace", name) from error


def _creation_error(
    error: PySparkException | Py4JJavaError, spark: SparkSession, what: str, name: str
) -> errors.IcecdcError:
    found = catalog_error(error, spark, name)
    if isinstance(found, (errors.CatalogAuthError, errors.DependencyError)):
        return found
    return errors.CatalogError(
        f"The {what} could not be created: {describe_failure(error)[:500]}",
        subject="auto_create",
        value=name,
        remedy="check permissions and identifier_columns, partition_by, sort_columns, table_properties; or create it",
    )


def open_or_create_table(spark: SparkSession, name: str, records: DataFrame, config: IngestConfig) -> tuple[Any, bool]:
    """Return a table and whether it is new; no table if it does not exist and none of the records can be a row."""
    try:
        return open_branch(load_table(spark, name), name, config.branch), False
    except errors.TableNotFoundError as error:
        if not config.auto_create:
            raise errors.TableNotFoundError(
                "The table does not exist",
                subject="auto_create",
                value=name,
                remedy="create it, or set auto_create=true; the next run reads its records again",
            ) from error
    seen = infer_schema(records, config)
    # Iceberg gives these names to the partition fields of a new table, but for those of plain columns.
    partitions = [parse_transform(text) for text in config.partition_by]
    others = [f"{column}_{'trunc' if kind == 'truncate' else kind}" for kind, _, column in partitions if kind]
    taken = ColumnNames(T.StructType(), [*metadata_names(config), *others], config.column_case == "lower")
    columns = taken.new_struct(seen)
    # A record without an identifier cannot be a row.
    known = {fold_case(column) for column in [*columns.names, *metadata_names(config)]}
    identifiers = [{fold_case(column), fold_case(column).split(".")[0]} for column in config.identifier_columns]
    if not columns.names or not all(known & names for names in identifiers):
        return None, False
    create_table(spark, name, seen, columns, config)
    return open_branch(load_table(spark, name), name, config.branch), True


def evolve_for_records(spark: SparkSession, name: str, table: Any, records: DataFrame, config: IngestConfig) -> Seen:
    current = payload_schema(spark, table, config)
    spellings = find_spellings(records, current) if config.column_case != "sensitive" else None
    seen = look_at(records, current, config, spellings)
    partitions = [str(field.name()) for spec in table.specs().values() for field in spec.fields()]
    identifiers = [str(identifier) for identifier in table.schema().identifierFieldNames()]
    changes = plan_evolution(current, seen, config, [*partitions, *metadata_names(config)], identifiers)
    if changes:
        evolve(spark, name, table, changes)
    return seen


def _with_hidden_types(schema: T.StructType, types: dict[str, Any]) -> T.StructType:
    """Add what readers must know of the fields to their metadata: types and defaults that Spark does not show."""
    fields = []
    for column, field in zip(schema.fields, types["fields"], strict=True):
        kind, written_as = _with_hidden_type(column.dataType, field["type"])
        metadata = dict(column.metadata or {})
        if written_as:
            metadata[WRITTEN_AS] = written_as
        if field.get("write-default") is not None and isinstance(field["type"], str):
            metadata[DEFAULT] = _default_text(column.dataType, field["write-default"])
        fields.append(T.StructField(column.name, kind, column.nullable, metadata))
    return T.StructType(fields)


def _default_text(kind: T.DataType, value: Any) -> str:
    """A default, as Iceberg's JSON has it, as Spark SQL of the type with which records are read."""
    text = str(value).replace("\\", "\\\\").replace("'", "\\'")
    if isinstance(kind, T.BinaryType):
        return f"X'{text}'"
    return f"'{text}'" if isinstance(kind, (T.StringType, *TIMES)) else f"CAST('{text}' AS {kind.simpleString()})"


def _with_hidden_type(kind: T.DataType, wanted: Any) -> tuple[T.DataType, Any]:
    """The type with the hidden types of its fields, and the type of its values if Spark does not show it."""
    if isinstance(kind, T.StructType):
        return _with_hidden_types(kind, wanted), ""
    if isinstance(kind, T.ArrayType):
        element, written_as = _with_hidden_type(kind.elementType, wanted["element"])
        return T.ArrayType(element, kind.containsNull), written_as
    if isinstance(kind, T.MapType):
        _, key = _with_hidden_type(kind.keyType, wanted["key"])
        value, written_as = _with_hidden_type(kind.valueType, wanted["value"])
        hidden = {"key": key, "value": written_as} if key or written_as else ""
        return T.MapType(kind.keyType, value, kind.valueContainsNull), hidden
    return kind, wanted if wanted == "uuid" or str(wanted).startswith("fixed[") else ""


def reject_unwritable_rows(rows: DataFrame, table: Any, config: IngestConfig) -> DataFrame:
    """Give rows a problem that lack required metadata, or whose partition folder would have too long a name."""
    # A file system allows 255 bytes for each name, an object store 1,024 bytes for a key, which all folders share.
    spark, schema = rows.sparkSession, table.schema()
    fields = json.loads(iceberg_class(spark, "PartitionSpecParser").toJson(table.spec()))["fields"]
    if not fields and not config.metadata_columns:
        return rows
    location = table.properties().get("write.data.path") or f"{table.location()}/data"
    limit = _FOLDER_BYTES
    if urlsplit(location).scheme in _OBJECT_STORES:
        limit = (_KEY_BYTES - _FILE_NAME_BYTES - len(location.encode())) // max(1, len(fields)) - len("/")
    metadata = {f"{METADATA_PREFIX}{name}": name for name in config.metadata_columns}
    parents = iceberg_class(spark, "types.TypeUtil").indexParents(schema.asStruct())
    problems = []
    for column, name in metadata.items():
        if (field := schema.findField(column)) is not None and field.isRequired():
            problems.append(F.when(F.col(name).isNull(), F.lit(f"field {column} is missing or null, and required")))
    for field in fields:
        transform, _, width = field["transform"].partition("[")
        kind = str(schema.findType(field["source-id"]))
        # The other transforms have short values, and so have the other types.
        is_short = transform not in ("identity", "truncate") or not re.match("string|binary|fixed", kind)
        if is_short or schema.findColumnName(field["source-id"]) == OP_COLUMN:
            continue
        path, each = list[str](), field["source-id"]
        while each is not None:
            path, each = [str(schema.findField(each).name()), *path], parents.get(each)
        value = F.col(metadata[path[0]]) if path[0] in metadata else reduce(Column.getField, path, F.col(ROW))
        text = F.substring(value, 1, int(width.removesuffix("]"))) if width else value
        text = text if kind == "string" else F.base64(text)
        left = max(0, limit - len(f"{quote_plus(field['name'])}="))
        # URL encoding makes up to three bytes of one byte; the first condition spares most values the encoding.
        is_long = (F.octet_length(text) > left // 3) & (F.octet_length(F.url_encode(text)) > left)
        reason = f"field {'.'.join(path)} makes the name of a partition folder longer than {left} bytes"
        problems.append(F.when(is_long, F.lit(reason)))
    if not problems:
        return rows
    is_row = F.lit(config.keeps_deletes) | ~F.expr(IS_DELETE)
    found = F.when(F.col(IS_VALID) & is_row, F.coalesce(*problems))
    rows = rows.withColumn("problem", F.coalesce("problem", found))
    return rows.withColumn(IS_VALID, F.col(IS_VALID) & F.col("problem").isNull())


@dataclass(frozen=True)
class ColumnChange:
    kind: Literal["add", "widen", "optional"]
    path: Path
    type: T.DataType | None = None

    def __str__(self) -> str:
        return " ".join([self.kind, ".".join(self.path), *([self.type.simpleString()] if self.type else [])])


def plan_evolution(
    current: T.StructType,
    seen: Seen,
    settings: IngestConfig,
    others: Iterable[str] = (),
    identifiers: Iterable[str] = (),
) -> list[ColumnChange]:
    # Iceberg's `unionByNameWith` would do the same, but one field that it cannot promote ends it for all.
    added: dict[Path, tuple[str, T.DataType]] = {}
    widened: dict[Path, T.DataType] = dict(seen.widened)
    optional: dict[Path, None] = {}
    key = str if settings.column_case == "sensitive" else str.lower

    def visit(current: T.DataType, wanted: T.DataType, path: Path, guessed: bool) -> None:
        """Add the changes for one schema; a guessed one says neither that a column is too narrow nor optional."""
        if isinstance(current, T.StructType) and isinstance(wanted, T.StructType):
            columns = {key(column.name): column for column in current.fields}
            for field in wanted.fields:
                column = columns.get(key(field.name))
                if column is None:
                    at = (*path, key(field.name))
                    name, kind = added.get(at, (field.name, field.dataType))
                    added[at] = name, merge_types(kind, field.dataType)
                    continue
                inner = (*path, column.name)
                if not column.nullable and field.nullable and not guessed:
                    optional[inner] = None
                visit(column.dataType, field.dataType, inner, guessed)
        elif isinstance(current, T.ArrayType) and isinstance(wanted, T.ArrayType):
            visit(current.elementType, wanted.elementType, (*path, "element"), guessed)
        elif isinstance(current, T.MapType) and isinstance(wanted, T.MapType):
            visit(current.valueType, wanted.valueType, (*path, "value"), guessed)
        elif not guessed and (wider := promote_type(widened.get(path, current), wanted)) is not None:
            widened[path] = wider

    for schema in (seen.guessed, *seen.written):
        visit(current, schema, (), schema is seen.guessed)
    names = ColumnNames(current, others, settings.column_case == "lower")
    new = [(at[:-1], names.new_column(name, kind, at[:-1])) for at, (name, kind) in added.items()]
    # A column that identifies rows must be required, and so must a struct around one.
    required = [f"{name.lower()}." for name in (*settings.identifier_columns, *identifiers)]
    return [
        *(ColumnChange("add", (*parent, column.name), column.dataType) for parent, column in new if column),
        *(ColumnChange("widen", path, kind) for path, kind in widened.items()),
        *(
            ColumnChange("optional", path)
            for path in optional
            if not any(name.startswith(f"{'.'.join(path).lower()}.") for name in required)
        ),
    ]


def evolve(spark: SparkSession, name: str, table: Any, changes: Sequence[ColumnChange]) -> None:
    before = table_version(table)
    try:
        update = table.updateSchema()
        for change in changes:
            parent, column = ".".join(change.path[:-1]) or None, ".".join(change.path)
            if change.type is None:
                update.makeColumnOptional(column)
            elif change.kind == "widen":
                update.updateColumn(column, _iceberg_type(spark, change.type).asPrimitiveType())
            else:
                update.addColumn(parent, change.path[-1], _iceberg_type(spark, change.type))
        update.commit()
    except (PySparkException, Py4JJavaError) as error:
        raise_if_moved(spark, name, before, error)
        raise errors.SchemaChangeError(
            f"The table's schema cannot be changed for the records: {describe_failure(error)}",
            subject=name,
            value=[str(change) for change in changes],
            remedy="change the table by hand, or run without evolve_schema; the records are then dead letters",
        ) from error


def _iceberg_type(spark: SparkSession, kind: T.DataType) -> Any:
    # Without a column around it, a struct would be converted to a schema instead of a type.
    schema = T.StructType([T.StructField("column", kind)]).json()
    convert = iceberg_class(spark, "spark.SparkSchemaUtil").convert
    return convert(java_class(spark, "org.apache.spark.sql.types.DataType").fromJson(schema)).findType("column")
