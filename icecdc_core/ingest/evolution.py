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
from icecdc_core.ingest.column_types import ColumnNames, Path, promote_type
from icecdc_core.ingest.formats.decode_results import FormatSettings
from icecdc_core.ingest.inference import GUESSED
from icecdc_core.ingest.publish import raise_if_moved, table_version
from icecdc_core.session.jvm import iceberg_class, java_class
from icecdc_core.table.catalogs import describe_failure, load_table


@dataclass(frozen=True)
class ColumnChange:
    """One change of a table's schema."""

    kind: Literal["add", "widen", "optional"]
    path: Path
    type: T.DataType | None = None

    def __str__(self) -> str:
        return " ".join([self.kind, ".".join(self.path), *([self.type.simpleString()] if self.type else [])])


def plan_evolution(
    current: T.StructType,
    seen: T.StructType,
    settings: FormatSettings,
    others: Iterable[str] = (),
    identifiers: Iterable[str] = (),
) -> list[ColumnChange]:
    """Return the schema changes that records need, as far as Iceberg allows them.

    Iceberg's `unionByNameWith` would do the same, but one field that it cannot promote ends it for all. No column is
    narrowed, dropped, renamed or moved; records that still do not fit are dead letters. A type that was inferred from
    JSON values only widens a column if it must.
    """
    if not settings.evolve_schema:
        return []
    required = [name.lower() for name in (*settings.identifier_columns, *identifiers)]

    def is_required(path: Path) -> bool:
        """Whether a field is an identifier, or a struct around one."""
        dotted = ".".join(path).lower()
        return any(name == dotted or name.startswith(f"{dotted}.") for name in required)

    changes = _Evolution(settings, ColumnNames(current, others)).struct_changes(current, seen, ())
    return [change for change in changes if change.kind != "optional" or not is_required(change.path)]


def new_columns(seen: T.StructType, settings: FormatSettings, others: Iterable[str] = ()) -> T.StructType:
    """Return the columns of a new table: all optional, with names by the case rule."""
    return _Evolution(settings, ColumnNames(T.StructType(), others)).new_struct(seen, ())


def evolve(spark: SparkSession, table: str, changes: Sequence[ColumnChange]) -> None:
    """Change a table's schema, all in one commit."""
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


@dataclass(frozen=True)
class _Evolution:
    settings: FormatSettings
    names: ColumnNames

    def struct_changes(self, current: T.StructType, seen: T.StructType, path: Path) -> Iterator[ColumnChange]:
        sensitive = self.settings.column_case == "sensitive"
        columns = {field.name if sensitive else field.name.lower(): field for field in current.fields}
        for field in seen.fields:
            key = field.name if sensitive else field.name.lower()
            column = columns.get(key)
            if column is None:
                new_path = (*path, self._new_name(field.name))
                kind = self._new_type(field.dataType, new_path)
                if kind is not None:
                    columns[key] = T.StructField(new_path[-1], kind)
                    yield ColumnChange("add", new_path, kind)
                continue
            guessed = GUESSED in field.metadata
            if not column.nullable and field.nullable and not guessed:
                yield ColumnChange("optional", (*path, column.name))
            yield from self._type_changes(column.dataType, field.dataType, (*path, column.name), guessed)

    def _type_changes(self, current: T.DataType, seen: T.DataType, path: Path, guessed: bool) -> Iterator[ColumnChange]:
        if isinstance(current, T.StructType) and isinstance(seen, T.StructType):
            yield from self.struct_changes(current, seen, path)
        elif isinstance(current, T.ArrayType) and isinstance(seen, T.ArrayType):
            yield from self._type_changes(current.elementType, seen.elementType, (*path, "element"), guessed)
        elif isinstance(current, T.MapType) and isinstance(seen, T.MapType):
            yield from self._type_changes(current.valueType, seen.valueType, (*path, "value"), guessed)
        elif not guessed and (wider := promote_type(current, seen)) is not None:
            yield ColumnChange("widen", path, wider)

    def new_struct(self, kind: T.StructType, path: Path) -> T.StructType:
        fields = []
        for field in kind.fields:
            name = self._new_name(field.name)
            if (inner := self._new_type(field.dataType, (*path, name))) is not None:
                fields.append(T.StructField(name, inner))
        return T.StructType(fields)

    def _new_type(self, kind: T.DataType, path: Path) -> T.DataType | None:
        """The type of a new field, without inner fields that cannot become columns; None if the field itself cannot."""
        # A field of the type null, as Avro has it, never has a value.
        if isinstance(kind, T.NullType) or not self.names.add(path):
            return None
        if isinstance(kind, T.StructType):
            return self.new_struct(kind, path) or None
        if isinstance(kind, T.ArrayType):
            element = self._new_type(kind.elementType, (*path, "element"))
            return None if element is None else T.ArrayType(element)
        if isinstance(kind, T.MapType):
            value = self._new_type(kind.valueType, (*path, "value"))
            return None if value is None else T.MapType(kind.keyType, value)
        return T.IntegerType() if isinstance(kind, (T.ByteType, T.ShortType)) else kind

    def _new_name(self, name: str) -> str:
        return name.lower() if self.settings.column_case == "lower" else name


def _iceberg_type(spark: SparkSession, kind: T.DataType) -> Any:
    # Without a column around it, a struct would be converted to a schema instead of a type.
    schema = T.StructType([T.StructField("column", kind)]).json()
    convert = iceberg_class(spark, "spark.SparkSchemaUtil").convert
    return convert(java_class(spark, "org.apache.spark.sql.types.DataType").fromJson(schema)).findType("column")
