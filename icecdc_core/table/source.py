"""The source: a table as it was when it was opened, and the rows of it that the parameters select."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession, functions as F
from pyspark.sql.types import BooleanType, DataType, DateType, DecimalType, IntegralType, StringType, StructType

from icecdc_core.columns import (
    CHANGE_ORDINAL,
    CHANGE_TYPE,
    COMMIT_SNAPSHOT_ID,
    INSERT,
    IS_INSERT,
    PLACE,
    ROW_POSITION,
    identifier_name,
    private_identifier,
    quoted,
    with_times_as_texts,
)
from icecdc_core.config import SyncConfig
from icecdc_core.config.entries import Embedding
from icecdc_core.errors import ColumnNotFoundError, ConfigError, IdentifierColumnsError
from icecdc_core.table.iceberg_table import FileTasks, IcebergTable
from icecdc_core.table.schema import (
    require_distinct,
    require_identifier_types,
    require_readable,
    require_unique,
)
from icecdc_core.table.schema_changes import STAR, SchemaChange
from icecdc_core.table.select import Projection, UsedColumns, condition_columns, open_projection
from icecdc_core.table.snapshots import TableMetadata, head_snapshot_id
from icecdc_core.updates import merge_updates

# What may follow the name of a physical index, and cannot be the name of another one or of its write alias.
_SUFFIX, _SUFFIX_BYTES = "[a-z0-9]+([._-][a-z0-9]+)*", 100


@dataclass(frozen=True)
class Selection:
    columns: tuple[str, ...]
    row_filter: str = ""
    with_row_position: bool = False
    delete_columns: tuple[str, ...] = ()
    projection: Projection | None = None
    identifier_columns: tuple[str, ...] = ()
    routing: str = ""
    alias: str = ""
    """The name of the table in ``row_filter``."""
    index_column: str = ""

    @property
    def has_places(self) -> bool:
        return bool(self.routing or self.index_column)

    def select(self, rows: DataFrame, *more: str) -> DataFrame:
        """Return the selected part of whole table rows, followed by ``more`` columns (SQL expressions)."""
        selected = [quoted(name) for name in self.columns]
        if self.projection:
            selected += [f"{quoted(name)} AS {quoted(private_identifier(name))}" for name in self.identifier_columns]
        if self.row_filter:
            rows = (rows.alias(self.alias) if self.alias else rows).where(F.expr(self.row_filter))
        if self.with_row_position:
            # A file's path may be longer than an id, and has partition values, which a projection may mask.
            has_row_ids = "_row_id" in rows.schema.names
            position = "cast(_row_id AS string)" if has_row_ids else "sha2(concat_ws(':', _file, _pos), 256)"
            selected.append(f"{position} AS {ROW_POSITION}")
        if self.routing:
            # A row without a place is refused.
            selected.append(f"nullif(make_valid_utf8(cast({quoted(self.routing)} AS string)), '') AS {PLACE}")
        rows = rows.selectExpr(*selected, *more)
        documents = rows if self.projection is None else self.projection.apply(rows)
        if not self.index_column:
            return documents
        suffix, routing = f"cast({quoted(self.index_column)} AS string)", PLACE if self.routing else "''"
        is_fit = f"octet_length({suffix}) BETWEEN 1 AND {_SUFFIX_BYTES}"
        is_suffix = f"{is_fit} AND regexp_extract({suffix}, '{_SUFFIX}', 0) = {suffix}"
        return documents.withColumn(PLACE, F.expr(f"CASE WHEN {is_suffix} THEN concat({suffix}, '/', {routing}) END"))

    def select_deleted(self, rows: DataFrame, *more: str) -> DataFrame:
        """Return the selected part of deleted rows: ``select``, with only ``delete_columns`` filled."""
        selected = self.select(rows, *more)
        if not self.delete_columns:
            return selected
        columns = self.columns
        if self.projection is not None:
            columns = (*self.projection.schema.names, *map(private_identifier, self.identifier_columns))
        # A null of the column's own type.
        blank = {*columns} - {*self.delete_columns}
        texts = {name: f"CASE WHEN false THEN {quoted(name)} END AS {quoted(name)}" for name in blank}
        return selected.selectExpr(*(texts.get(name, quoted(name)) for name in selected.columns))


def require_row_positions(table: IcebergTable, tasks: FileTasks) -> None:
    if not table.has_row_lineage and len(set(table.locations(tasks))) < len(tasks):
        raise IdentifierColumnsError(
            f"'{table.name}' has a data file twice, so two rows have one position, and there are no identifier columns",
            subject="identifier_columns",
            value=[],
            remedy="delete the rows of the file and add it once, or name the columns that identify a row",
        )
    if len(tasks) and table.has_row_lineage and not table.have_row_ids(tasks):
        raise IdentifierColumnsError(
            f"Rows of '{table.name}' have no row id yet (they were written before it became format version 3, or lie "
            "in ORC files, whose row ids Spark 4.0 cannot read), and there are no identifier columns",
            subject="identifier_columns",
            value=[],
            remedy="commit once to the table, which gives every row its id, and run the export if that is not enough; "
            "or name the columns that identify a row",
        )


# The types whose text in a document is that of a cast.
_PLACE_TYPES: tuple[type[DataType], ...] = (StringType, IntegralType, BooleanType, DateType, DecimalType)

# Changes that an index can follow where a field is the column itself.
_RECOMPUTING = frozenset({"added", "type_widened", "reordered"})


@dataclass(frozen=True)
class Embeddings:
    """The vectors of a document's texts, by field, and the table that stores them."""

    table: str
    fields: Mapping[str, Embedding]
    texts: Mapping[str, Projection]
    computed_from: frozenset[str]


@dataclass(frozen=True)
class Source:
    table: IcebergTable
    metadata: TableMetadata
    head: int | None
    columns: list[str]
    identifier_columns: list[str]
    schema: StructType
    row_filter: str
    branch: str
    chosen_columns: list[str]
    condition: UsedColumns = field(default_factory=UsedColumns)
    projection: Projection | None = None
    spec: Mapping[str, Any] = field(default_factory=dict)
    number_of_shards: int = 1
    alias: str = ""
    nest: Mapping[str, Any] = field(default_factory=dict)
    nested: Mapping[str, "Source"] = field(default_factory=dict)
    """By name, the other tables of documents of several tables."""
    routing: str = ""
    embeddings: Embeddings | None = None
    index_column: str = ""
    physical_index: str = ""
    """With `index_column`: the index whose name its suffixes are added to."""
    known_selection: Mapping[str, Any] = field(default_factory=dict)
    """The words of an index for the same selection, if they are others."""
    read_at: str = ""
    """A moment before the heads of its tables were read."""

    @property
    def key_columns(self) -> list[str]:
        """The columns of selected rows that make the document id: beside a projection they have private names."""
        return [*map(private_identifier, self.identifier_columns)] if self.projection else self.identifier_columns

    @property
    def snapshot_ids(self) -> frozenset[int]:
        sources = (self, *self.nested.values())
        return frozenset(snapshot.snapshot_id for each in sources for snapshot in each.metadata.snapshots)

    @property
    def schema_json(self) -> str:
        """The current Iceberg schema of the columns that matter: those of a document, its id and the condition."""
        schema = self.metadata.schema
        wanted = {*self.columns, *self.identifier_columns, *self.condition.names, self.routing}
        fields = [column for column in schema["fields"] if column["name"] in wanted]
        return json.dumps({"type": "struct", "schema-id": schema["schema-id"], "fields": fields})

    @property
    def selection(self) -> Selection:
        return Selection(
            self.projection.columns if self.projection else tuple(self.columns),
            self.row_filter,
            with_row_position=not self.identifier_columns,
            projection=self.projection,
            identifier_columns=tuple(self.identifier_columns),
            routing=self.routing,
            alias=self.alias,
            index_column=self.index_column,
        )

    @property
    def stored_selection(self) -> dict[str, Any]:
        """What of the table is indexed, as positions keep it; another selection needs another index."""
        stored: dict[str, Any] = {
            "branch": self.branch,
            "columns": self.chosen_columns,
            "row_filter": self.row_filter,
            "identifier_columns": self.identifier_columns,
        }
        if self.projection is not None:
            # Texts made of `columns` are none that a user could give.
            stored["select"] = list(self.projection.stored)[: 1 if self.chosen_columns else None]
        if self.nest:
            stored["nest"] = dict(self.nest)
        stored |= {name: column for name in ("routing", "index_column") if (column := getattr(self, name))}
        if self.embeddings is not None:
            # Another text or model needs another index, another import path does not.
            stored["embed"] = {
                name: entry.model_dump(exclude={"function"}) for name, entry in self.embeddings.fields.items()
            }
        return {**(self.known_selection or stored), **self.spec}

    def recomputes(self, changes: Sequence[SchemaChange]) -> bool:
        """Return whether changes of the schema change a computed field, or the condition, for rows that stay."""
        computed_from = self.projection.computed_from if self.projection else frozenset()
        texts = self.projection.stored if self.projection else ()
        if self.embeddings:
            computed_from |= self.embeddings.computed_from
            texts += tuple(each.text for each in self.embeddings.fields.values())
        return any(
            change.kind in kinds
            and (
                change.column.startswith(f"{path}.")
                # Only a `*` in a function depends on the order. As in `to_json(struct(*))`, it takes in new columns.
                or (change.column == path and (change.kind != "reordered" or any(map(STAR.search, expressions))))
            )
            for paths, expressions, kinds in (
                (computed_from, texts, _RECOMPUTING),
                (self.condition.computed_from, (self.row_filter,), _RECOMPUTING - {"type_widened"}),
            )
            for path in paths
            for change in changes
        )

    def rows(self, tasks: FileTasks) -> DataFrame:
        return self.selection.select(self.table.read(tasks))

    def rows_as_inserts(self, tasks: FileTasks, on_duplicate: str) -> DataFrame:
        """Read these files as INSERT rows with the change columns; with ``last``, one row of each identifier."""
        rows = self.rows(tasks).select(
            "*",
            F.lit(INSERT).alias(CHANGE_TYPE),
            F.lit(0).cast("int").alias(CHANGE_ORDINAL),
            F.lit(0).cast("long").alias(COMMIT_SNAPSHOT_ID),
        )
        if self.identifier_columns and on_duplicate == "last":
            return merge_updates(rows, self.key_columns, on_duplicate="last")
        return rows

    def current_rows(self, snapshot_id: int | None, on_duplicate: str) -> DataFrame:
        return self.rows_as_inserts(self.files(snapshot_id), on_duplicate)

    def files(self, snapshot_id: int | None) -> FileTasks:
        return self.table.plan(snapshot_id) if snapshot_id is not None else self.table.union()

    @property
    def tables(self) -> tuple[IcebergTable, ...]:
        return (self.table, *(each.table for each in self.nested.values()))

    def release(self) -> None:
        for table in self.tables:
            table.release()

    def identifier_rows(self, snapshot_id: int | None) -> DataFrame:
        identifiers = Selection(tuple(self.identifier_columns), self.row_filter, alias=self.alias)
        return identifiers.select(self.table.read(self.files(snapshot_id)))

    def require_unique_identifiers(self, on_duplicate: str, snapshot_id: int | None) -> None:
        if self.identifier_columns:
            rows = self.identifier_rows(snapshot_id)
            require_unique(rows, self.identifier_columns, self.table.name, allow_duplicates=on_duplicate == "last")

    def placed_rows(self, snapshot_id: int | None) -> DataFrame | None:
        """Read the rows of a snapshot whose places were checked; None if they have no places."""
        if not self.selection.has_places:
            return None
        rows = self.rows(self.files(snapshot_id))
        self.require_places(rows)
        return rows

    def require_places(self, rows: DataFrame) -> None:
        keys = self.key_columns or [ROW_POSITION]
        if CHANGE_TYPE in rows.columns:  # the old place of a document may have a comma
            rows = rows.where(IS_INSERT)
        unfit = rows.where(f"{PLACE} IS NULL OR contains({PLACE}, ',')")
        for row in unfit.select(*map(quoted, keys)).limit(1).transform(with_times_as_texts).collect():
            found = {identifier_name(name): row[name] for name in keys}
            names = " and ".join(filter(None, (self.routing, self.index_column)))
            raise ConfigError(
                f"The value of {names} in '{self.table.name}' is null, empty, has a comma, at which searches split a "
                f"routing, or is no name of an index, in the row {found}",
                subject="index_column" if self.index_column else "routing",
                value=self.index_column or self.routing,
                remedy="correct the value (a name of an index has lower-case letters, digits and single . _ - between "
                "them), or leave such rows out with row_filter",
            )

    def require_identifier_columns(self, why: str, instead: str = "") -> None:
        if not self.identifier_columns:
            raise IdentifierColumnsError(
                f"Table '{self.table.name}' has no identifier columns, but {why}",
                subject="identifier_columns",
                value=[],
                remedy=f"{instead}name the columns that identify a row in identifier_columns, or set them on the "
                "table; then run the export, with replace_index=true if the index exists: document ids change then",
            )


def open_source(spark: SparkSession, config: SyncConfig, needs_history: bool = True) -> Source:
    read_at = datetime.now(UTC).isoformat(timespec="milliseconds")
    table = IcebergTable(spark, config.table)
    metadata = table.metadata(needs_history and config.on_history_gap == "fail")
    schema = table.schema()
    if not config.select:
        require_readable(table.unreadable, config.columns or table.unreadable)
    columns = list(config.columns) or schema.names
    require_distinct(spark, schema, columns)
    _require_columns("columns", columns, schema, ColumnNotFoundError)
    identifiers = list(config.identifier_columns) or table.identifier_columns()
    _require_columns("identifier_columns", identifiers, schema, IdentifierColumnsError)
    require_identifier_types(identifiers, schema)
    if config.routing:
        _require_place_column("routing", config.routing, schema)
    alias, projection = config.alias or (config.table_name if config.nest else ""), None
    if config.select:
        projection = open_projection(spark, schema, config.select, alias, identifiers, table.unreadable)
        columns = [name for name in schema.names if name in projection.used_columns]
    elif missing := [name for name in identifiers if name not in columns]:
        raise IdentifierColumnsError(
            f"Identifier columns must be part of the document; {missing} are not in columns",
            subject="columns",
            value=columns,
            remedy="add them to columns",
        )
    selected = projection.schema if projection else StructType([schema[name] for name in columns])
    if config.index_column:
        _require_place_column("index_column", config.index_column, selected)
    return Source(
        table=table,
        metadata=metadata,
        head=head_snapshot_id(metadata, config.branch),
        columns=columns,
        identifier_columns=identifiers,
        schema=selected,
        row_filter=config.row_filter,
        branch=config.branch,
        chosen_columns=list(config.columns),
        condition=condition_columns(spark, schema, config.row_filter, alias) if config.row_filter else UsedColumns(),
        projection=projection,
        alias=alias,
        routing=config.routing,
        index_column=config.index_column,
        read_at=read_at,
    )


def _require_place_column(parameter: str, name: str, schema: StructType) -> None:
    _require_columns(parameter, [name], schema, ColumnNotFoundError)
    kind = schema[name].dataType
    if not isinstance(kind, _PLACE_TYPES):
        raise ConfigError(
            f"Column '{name}' of type {kind.simpleString()} cannot say where documents are",
            subject=parameter,
            value=name,
            remedy="use a column of a string, whole number, date, decimal or boolean type",
        )


def _require_columns(parameter: str, names: Sequence[str], schema: StructType, error: type[Any]) -> None:
    missing = [name for name in names if name not in schema.names]
    if missing:
        raise error(
            f"The table has no column {', '.join(map(repr, missing))}",
            subject=parameter,
            value=list(names),
            remedy=f"choose among its top-level columns: {', '.join(schema.names)}",
        )
