"""Schema evolution: which changes a table needs for its records, and the one commit that makes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from icecdc_core.errors import SchemaChangeError
from icecdc_core.ingest.column_types import ColumnNames, promote_type
from icecdc_core.ingest.formats.decode_results import FormatSettings
from icecdc_core.ingest.inference import GUESSED
from icecdc_core.ingest.publish import raise_if_moved, table_version
from icecdc_core.session.jvm import iceberg_class, java_class
from icecdc_core.table.catalogs import load_table

Kind = Literal["add", "widen", "optional"]


@dataclass(frozen=True)
class ColumnChange:
    """One change of a table's schema."""

    kind: Kind
    path: tuple[str, ...]
    type: T.DataType | None = None

    def __str__(self) -> str:
        name = ".".join(self.path)
        return f"{self.kind} {name}" if self.type is None else f"{self.kind} {name} {self.type.simpleString()}"


def plan_evolution(
    current: T.StructType,
    seen: T.StructType,
    settings: FormatSettings,
    others: Iterable[str] = (),
    identifiers: Iterable[str] = (),
) -> list[ColumnChange]:
    """Return the schema changes that records need, as far as Iceberg allows them.

    A field without a column adds one (in structs, arrays of structs and map values too). Iceberg's promotions widen a
    column: int to long, float to double, a decimal to more digits of the same scale. A column becomes optional if the
    writer's schema says that the field is. No column is narrowed, dropped, renamed or moved; records that still do not
    fit are dead letters. A type that was inferred from JSON values only widens a column if it must. A field adds no
    column if the table could not be read with it (see `rows.column_names`).

    Example:
        >>> plan_evolution(StructType.fromDDL("id int"), StructType.fromDDL("id long, name string"), settings)
        [ColumnChange("widen", ("id",), LongType()), ColumnChange("add", ("name",), StringType())]
    """
    if not settings.evolve_schema:
        return []
    required = frozenset(name.lower() for name in (*settings.identifier_columns, *identifiers))
    changes = _struct_changes(current, seen, (), settings, ColumnNames(current, others))
    return [change for change in changes if change.kind != "optional" or not _holds(change.path, required)]


def evolve(spark: SparkSession, table: str, changes: Sequence[ColumnChange]) -> None:
    """Change a table's schema, all in one commit."""
    if not changes:
        return
    loaded = load_table(spark, table)
    before = table_version(loaded)
    try:
        update = loaded.updateSchema()
        for change in changes:
            parent, name = ".".join(change.path[:-1]) or None, change.path[-1]
            full = ".".join(change.path)
            if change.kind == "optional":
                update.makeColumnOptional(full)
                continue
            assert change.type is not None
            kind = _iceberg_type(spark, change.type)
            if change.kind == "widen":
                update.updateColumn(full, kind.asPrimitiveType())
            elif loaded.schema().caseInsensitiveFindField(full) is None:
                update.addColumn(parent, name, kind)
        update.commit()
    except (PySparkException, Py4JJavaError) as error:
        raise_if_moved(spark, table, before, error)
        raise SchemaChangeError(
            f"The table's schema cannot be changed for the records: {_cause(error)}",
            subject=table,
            value=[str(change) for change in changes],
            remedy="change the table by hand, or run without evolve_schema; the records are then dead letters",
        ) from error


def _struct_changes(
    current: T.StructType, seen: T.StructType, path: tuple[str, ...], settings: FormatSettings, names: ColumnNames
) -> Iterator[ColumnChange]:
    sensitive = settings.column_case == "sensitive"
    columns = {field.name if sensitive else field.name.lower(): field for field in current.fields}
    for field in seen.fields:
        column = columns.get(field.name if sensitive else field.name.lower())
        if column is None:
            name = _new_name(field.name, settings)
            kind = _new_type(field.dataType, settings, (*path, name), names)
            if kind is not None:
                columns[field.name if sensitive else field.name.lower()] = T.StructField(name, kind)
                yield ColumnChange("add", (*path, name), kind)
            continue
        column_path = (*path, column.name)
        guessed = GUESSED in field.metadata
        if not column.nullable and field.nullable and not guessed:
            yield ColumnChange("optional", column_path)
        yield from _type_changes(column.dataType, field.dataType, column_path, guessed, settings, names)


def _holds(path: tuple[str, ...], required: frozenset[str]) -> bool:
    """Whether a field is one of these, or a struct around one."""
    dotted = ".".join(path).lower()
    return any(name == dotted or name.startswith(f"{dotted}.") for name in required)


def _type_changes(
    current: T.DataType,
    seen: T.DataType,
    path: tuple[str, ...],
    guessed: bool,
    settings: FormatSettings,
    names: ColumnNames,
) -> Iterator[ColumnChange]:
    if isinstance(current, T.StructType) and isinstance(seen, T.StructType):
        yield from _struct_changes(current, seen, path, settings, names)
    elif isinstance(current, T.ArrayType) and isinstance(seen, T.ArrayType):
        yield from _type_changes(current.elementType, seen.elementType, (*path, "element"), guessed, settings, names)
    elif isinstance(current, T.MapType) and isinstance(seen, T.MapType):
        yield from _type_changes(current.valueType, seen.valueType, (*path, "value"), guessed, settings, names)
    elif not guessed and (wider := promote_type(current, seen)) is not None:
        yield ColumnChange("widen", path, wider)


def new_columns(seen: T.StructType, settings: FormatSettings, others: Iterable[str] = ()) -> T.StructType:
    """Return the columns of a new table: all optional, with names by the case rule."""
    kind = _new_struct(seen, settings, (), ColumnNames(T.StructType(), others))
    return kind or T.StructType()


def _new_type(
    kind: T.DataType, settings: FormatSettings, path: tuple[str, ...], names: ColumnNames
) -> T.DataType | None:
    """The type of a new field, without inner fields that cannot become columns; None if the field itself cannot."""
    # A field of the type null, as Avro has it, never has a value.
    if isinstance(kind, T.NullType) or not names.add(path):
        return None
    if isinstance(kind, T.StructType):
        return _new_struct(kind, settings, path, names)
    if isinstance(kind, T.ArrayType):
        element = _new_type(kind.elementType, settings, (*path, "element"), names)
        return None if element is None else T.ArrayType(element)
    if isinstance(kind, T.MapType):
        value = _new_type(kind.valueType, settings, (*path, "value"), names)
        return None if value is None else T.MapType(kind.keyType, value)
    return T.IntegerType() if isinstance(kind, (T.ByteType, T.ShortType)) else kind


def _new_struct(
    kind: T.StructType, settings: FormatSettings, path: tuple[str, ...], names: ColumnNames
) -> T.StructType | None:
    fields = []
    for field in kind.fields:
        name = _new_name(field.name, settings)
        inner = _new_type(field.dataType, settings, (*path, name), names)
        if inner is not None:
            fields.append(T.StructField(name, inner))
    return T.StructType(fields) if fields else None


def _new_name(name: str, settings: FormatSettings) -> str:
    return name.lower() if settings.column_case == "lower" else name


def _iceberg_type(spark: SparkSession, kind: T.DataType) -> Any:
    # Without a column around it, a struct would be converted to a schema instead of a type.
    schema = T.StructType([T.StructField("column", kind)]).json()
    convert = iceberg_class(spark, "spark.SparkSchemaUtil").convert
    return convert(java_class(spark, "org.apache.spark.sql.types.DataType").fromJson(schema)).findType("column")


def _cause(error: Exception) -> str:
    return str(getattr(error, "java_exception", None) or error).strip().splitlines()[0]
