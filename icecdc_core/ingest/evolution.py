"""Schema evolution: which changes a table needs for its records, and the one commit that makes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from icecdc_core.errors import SchemaChangeError
from icecdc_core.ingest.config import IngestConfig
from icecdc_core.ingest.inference import ColumnNames, Seen, merge_types, promote_type
from icecdc_core.ingest.publish import raise_if_moved, table_version
from icecdc_core.ingest.readers import Path
from icecdc_core.session.jvm import iceberg_class, java_class
from icecdc_core.table.catalogs import describe_failure, load_table


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
    """Return the schema changes that records need, as far as Iceberg allows them."""
    # Iceberg's `unionByNameWith` would do the same, but one field that it cannot promote ends it for all.
    if not settings.evolve_schema:
        return []
    added: dict[Path, tuple[str, T.DataType]] = {}
    widened: dict[Path, T.DataType] = dict(seen.widened)
    optional: dict[Path, None] = {}

    def key(name: str) -> str:
        return name if settings.column_case == "sensitive" else name.lower()

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

    for schema in seen.schemas:
        visit(current, schema, (), schema is seen.guessed)
    names = ColumnNames(current, others, settings.column_case == "lower")
    paths = (((*at[:-1], names.new_name(name)), kind) for at, (name, kind) in added.items())
    new = ((path, names.new_type(kind, path)) for path, kind in paths)
    # A column that identifies rows must be required, and so must a struct around one.
    required = [f"{name.lower()}." for name in (*settings.identifier_columns, *identifiers)]
    return [
        *(ColumnChange("add", path, kind) for path, kind in new if kind is not None),
        *(ColumnChange("widen", path, kind) for path, kind in widened.items()),
        *(
            ColumnChange("optional", path)
            for path in optional
            if not any(name.startswith(f"{'.'.join(path).lower()}.") for name in required)
        ),
    ]


def evolve(spark: SparkSession, table: str, changes: Sequence[ColumnChange]) -> None:
    loaded = load_table(spark, table)
    before = table_version(loaded)
    try:
        update = loaded.updateSchema()
        for change in changes:
            parent, name = ".".join(change.path[:-1]) or None, ".".join(change.path)
            if change.type is None:
                update.makeColumnOptional(name)
            elif change.kind == "widen":
                update.updateColumn(name, _iceberg_type(spark, change.type).asPrimitiveType())
            elif loaded.schema().caseInsensitiveFindField(name) is None:  # else somebody else added it
                update.addColumn(parent, change.path[-1], _iceberg_type(spark, change.type))
        update.commit()
    except (PySparkException, Py4JJavaError) as error:
        raise_if_moved(spark, table, before, error)
        raise SchemaChangeError(
            f"The table's schema cannot be changed for the records: {describe_failure(error)}",
            subject=table,
            value=[str(change) for change in changes],
            remedy="change the table by hand, or run without evolve_schema; the records are then dead letters",
        ) from error


def _iceberg_type(spark: SparkSession, kind: T.DataType) -> Any:
    # Without a column around it, a struct would be converted to a schema instead of a type.
    schema = T.StructType([T.StructField("column", kind)]).json()
    convert = iceberg_class(spark, "spark.SparkSchemaUtil").convert
    return convert(java_class(spark, "org.apache.spark.sql.types.DataType").fromJson(schema)).findType("column")
