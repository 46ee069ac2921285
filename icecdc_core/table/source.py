"""The source as the parameters select it, checked against the table before anything is written."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from icecdc_core.columns import UNFIT_IDENTIFIERS, quoted, unused
from icecdc_core.errors import ColumnNotFoundError, ConfigError, IdentifierColumnsError
from icecdc_core.session.spark_settings import many_groups
from icecdc_core.shuffle import shuffle_by_identifiers
from icecdc_core.table.iceberg_table import FileTasks, IcebergTable
from icecdc_core.table.schema_projection import require_distinct, require_readable
from icecdc_core.table.selection import Selection
from icecdc_core.table.snapshots import head_snapshot_id
from icecdc_core.table.visible_history import require_visible_history

if TYPE_CHECKING:
    from icecdc_core.config import SyncConfig

# A condition of these changes its answer though the row does not; no diff of snapshots would see that.
_MOVING = re.compile("Current[A-Z]|Now$|LocalTimestamp$")
_SUBQUERIES = frozenset({"InSubquery", "ListQuery", "ScalarSubquery", "Exists"})


@dataclass(frozen=True)
class Source:
    """A table, what is selected of it, and its state when the run looked.

    Attributes:
        table: The loaded table.
        metadata: Its metadata.
        head: The branch's snapshot; None for an empty table.
        columns: The columns of a document, in order.
        identifier_columns: The columns that make the document id; empty for insert-only tables without any.
        schema: The Spark schema of the selected columns.
        row_filter: The condition rows must meet; empty for all.
        branch: The branch that is read.
        chosen_columns: The columns as the parameters name them; empty: whatever the table has.
        filter_columns: The columns the condition looks at; they need not be part of the document.
    """

    table: IcebergTable
    metadata: TableMetadata
    head: int | None
    columns: list[str]
    identifier_columns: list[str]
    schema: StructType
    row_filter: str
    branch: str
    chosen_columns: list[str]
    filter_columns: frozenset[str] = frozenset()

    @property
    def table_uuid(self) -> str:
        """Identity of the table, which a dropped and re-created one does not keep."""
        return str(self.metadata.table_uuid)

    @property
    def snapshot_ids(self) -> frozenset[int]:
        """The snapshots that had not expired."""
        return frozenset(snapshot.snapshot_id for snapshot in self.metadata.snapshots)

    @property
    def iceberg_schema(self) -> Schema:
        """The current Iceberg schema of the columns that matter: those of a document and those of the condition.

        A column that takes the name of one in the condition makes it another condition, though its text is the same.
        """
        schema = self.metadata.schema()
        wanted = {*self.columns, *self.filter_columns}
        return Schema(*[field for field in schema.fields if field.name in wanted], schema_id=schema.schema_id)

    @property
    def schema_json(self) -> str:
        """The same as JSON, as positions keep it."""
        return self.iceberg_schema.model_dump_json()

    @property
    def selection(self) -> Selection:
        """What is read of the table's rows; without identifier columns also where each row lies."""
        return Selection(tuple(self.columns), self.row_filter, with_row_position=not self.identifier_columns)

    @property
    def stored_selection(self) -> dict[str, Any]:
        """What of the table is indexed, as positions keep it; another selection needs another index."""
        return {
            "branch": self.branch,
            "columns": self.chosen_columns,
            "row_filter": self.row_filter,
            "identifier_columns": self.identifier_columns,
        }

    def rows(self, tasks: FileTasks) -> DataFrame:
        """Read the selected live rows of these file tasks."""
        return self.selection.select(self.table.read(tasks))

    def require_identifier_columns(self, why: str) -> None:
        """Refuse work that needs identifier columns when there are none.

        Raises:
            IdentifierColumnsError: There are none.
        """
        if not self.identifier_columns:
            raise IdentifierColumnsError(
                f"Table '{self.table.name}' has no identifier columns, but {why}",
                subject="identifier_columns",
                value=[],
                remedy="name the columns that identify a row in identifier_columns, or set them on the table: "
                "ALTER TABLE ... SET IDENTIFIER FIELDS ...; then export again, because document ids change with them",
            )


def open_source(spark: SparkSession, config: SyncConfig, needs_history: bool = True) -> Source:
    """Load the table and check every parameter that concerns it.

    Args:
        spark: A session in which the table's catalog is configured.
        config: The job's parameters.
        needs_history: Whether changes are to be taken, now or by a later sync.

    Raises:
        TableNotFoundError: There is no such table.
        ColumnNotFoundError: A column of ``columns`` does not exist.
        IdentifierColumnsError: Identifier columns do not exist, are nested, or of a type that cannot
            identify.
        UnsupportedTypeError: A selected column cannot be held by a document.
        ConfigError: ``row_filter`` is not a deterministic condition over the table's columns, or ``branch`` is
            a tag.
        HistoryGapError: The branch does not exist.
        HiddenHistoryError: The catalog shows only the latest snapshot and ``on_history_gap`` is ``fail``.
    """
    table = IcebergTable(spark, config.table)
    metadata = table.metadata()
    if needs_history and config.on_history_gap == "fail":
        require_visible_history(config.table, metadata, table.catalog())
    schema = table.schema()
    require_readable(table.unreadable, list(config.columns) or table.unreadable)
    columns = list(config.columns) or schema.names
    require_distinct(spark, schema, columns)
    _require_columns("columns", columns, schema, ColumnNotFoundError)
    identifiers = list(config.identifier_columns) or _identifier_fields(metadata.schema())
    _require_columns("identifier_columns", identifiers, schema, IdentifierColumnsError)
    _require_identifying(identifiers, schema)
    if missing := [name for name in identifiers if name not in columns]:
        raise IdentifierColumnsError(
            f"Identifier columns must be part of the document; {missing} are not in columns",
            subject="columns",
            value=columns,
            remedy="add them to columns",
        )
    selected = StructType([schema[name] for name in columns])
    filter_columns = condition_columns(spark, schema, config.row_filter) if config.row_filter else frozenset()
    _require_branch(metadata, config.branch)
    return Source(
        table,
        metadata,
        head_snapshot_id(metadata, config.branch),
        columns,
        identifiers,
        selected,
        config.row_filter,
        config.branch,
        list(config.columns),
        filter_columns,
    )


def require_unique(rows: DataFrame, identifier_columns: Sequence[str], table: str, allow_duplicates: bool) -> None:
    """Check that no identifier is null and none occurs twice, reading the identifier columns only.

    Raises:
        IdentifierColumnsError: An identifier column is null in some row.
        DuplicateIdentifierError: Two rows share an identifier and duplicates are not allowed.
    """
    from icecdc_core.errors import DuplicateIdentifierError

    names, count = [quoted(name) for name in identifier_columns], unused("_rows", identifier_columns)
    some_null = F.greatest(*[F.col(name).isNull() for name in names], F.lit(False))
    # Nearly every row is a group of its own, so counting before the shuffle would be for nothing.
    identifiers = rows.select(*names).transform(shuffle_by_identifiers, identifier_columns)
    groups = identifiers.groupBy(*names).agg(F.count(F.lit(1)).alias(count))
    with many_groups(rows.sparkSession):
        suspects = groups.where(some_null if allow_duplicates else some_null | (F.col(count) > 1)).limit(5).collect()
    if not suspects:
        return
    shown = [{name: row[name] for name in identifier_columns} for row in suspects]
    for values in shown:
        _require_values(values, table)
    raise DuplicateIdentifierError(
        f"Identifier columns do not identify rows of '{table}': {suspects[0][count]} rows share {shown[0]}",
        subject="identifier_columns",
        value=list(identifier_columns),
        remedy="choose columns that are unique together, remove the duplicate rows, "
        "or set on_duplicate_identifier=last",
    )


def require_no_null(identifiers: DataFrame, identifier_columns: Sequence[str], table: str) -> None:
    """Check that no identifier among these is null.

    Raises:
        IdentifierColumnsError: One is.
    """
    names = [quoted(name) for name in identifier_columns]
    some_null = F.greatest(*[F.col(name).isNull() for name in names], F.lit(False))
    for row in identifiers.where(some_null).limit(1).collect():
        _require_values({name: row[name] for name in identifier_columns}, table)


def _require_values(identifier: dict[str, Any], table: str) -> None:
    if None in identifier.values():
        raise IdentifierColumnsError(
            f"Identifier columns of '{table}' are null in some rows, for example {identifier}",
            subject="identifier_columns",
            value=list(identifier),
            remedy="choose columns that are never null, or leave those rows out with row_filter",
        )


def _identifier_fields(schema: Schema) -> list[str]:
    return sorted(
        (schema.find_column_name(field_id) or "" for field_id in schema.identifier_field_ids),
        key=lambda name: (
            [field.name for field in schema.fields].index(name.split(".")[0])
            if name.split(".")[0] in [field.name for field in schema.fields]
            else 0
        ),
    )


def _require_columns(parameter: str, names: Sequence[str], schema: StructType, error: type[Any]) -> None:
    missing = [name for name in names if name not in schema.names]
    if not missing:
        return
    nested = [name for name in missing if "." in name and name.split(".")[0] in schema.names]
    close = difflib.get_close_matches(missing[0], schema.names, 1, cutoff=0.6)
    hint = "nested fields cannot be used; add a top-level column" if nested else "the table has: "
    if not nested:
        hint = (f"did you mean '{close[0]}'? " if close else "") + hint + ", ".join(schema.names)
    raise error(
        f"The table has no column {', '.join(repr(name) for name in missing)}",
        subject=parameter,
        value=list(names),
        remedy=hint,
    )


def _require_identifying(names: Sequence[str], schema: StructType) -> None:
    for name in names:
        kind = schema[name].dataType
        if isinstance(kind, UNFIT_IDENTIFIERS):
            raise IdentifierColumnsError(
                f"Column '{name}' of type {kind.simpleString()} cannot identify a row",
                subject="identifier_columns",
                value=list(names),
                remedy="use columns of a whole number, text, date, time, decimal, boolean, uuid or binary type",
            )


def _require_branch(metadata: TableMetadata, name: str) -> None:
    ref = metadata.refs.get(name)
    if ref is not None and ref.snapshot_ref_type != SnapshotRefType.BRANCH:
        branches = [
            other for other, known in metadata.refs.items() if known.snapshot_ref_type == SnapshotRefType.BRANCH
        ]
        raise ConfigError(
            f"'{name}' is a tag, which never moves, so there is nothing to follow",
            subject="branch",
            value=name,
            remedy="name a branch: " + ", ".join(sorted(branches)),
        )


def condition_columns(spark: SparkSession, schema: StructType, condition: str) -> frozenset[str]:
    """Check a row filter and return the top-level columns it looks at.

    Raises:
        ConfigError: It is not a condition, or may answer differently though its row is the same.
    """
    remedy = "give one SQL condition over the table's columns, without subqueries, random functions or the current time"
    try:
        probe = spark.createDataFrame([], schema).where(F.expr(condition))
        plan = probe._jdf.queryExecution().analyzed()
        text = plan.toJSON()
        expressions = set(re.findall(r'"class":"[\w.$]*\.(\w+)"', text))
        lasting = bool(plan.deterministic()) and not any(_MOVING.match(name) for name in expressions)
    except PySparkException as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(
            f"row_filter is not a condition over the table: {reason}",
            subject="row_filter",
            value=condition,
            remedy=remedy,
        ) from error
    if expressions & _SUBQUERIES:
        raise ConfigError("row_filter has a subquery", subject="row_filter", value=condition, remedy=remedy)
    if not lasting:
        raise ConfigError(
            "row_filter gives another answer each time", subject="row_filter", value=condition, remedy=remedy
        )
    names = {name.lower(): name for name in reversed(schema.names)}
    return frozenset(
        name if name in schema.names else names[name.lower()] for name in _attributes(json.loads(text)[0]["condition"])
    )


def _attributes(expression: list[dict[str, Any]]) -> Iterator[str]:
    """The columns in an expression as Spark writes it to JSON: a flat list of its nodes."""
    for node in expression:
        if str(node.get("class", "")).endswith(".AttributeReference"):
            yield node["name"]
