"""The source: a table as it was when it was opened, and the rows of it that the parameters select."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from icecdc_core.columns import CHANGE_ORDINAL, CHANGE_TYPE, COMMIT_SNAPSHOT_ID, INSERT, private_identifier
from icecdc_core.errors import IdentifierColumnsError
from icecdc_core.table.expressions.new_fields import new_document_fields
from icecdc_core.table.expressions.projection import Projection
from icecdc_core.table.file_tasks import FileTasks
from icecdc_core.table.iceberg_table import IcebergTable
from icecdc_core.table.schemas.identifiers import require_unique
from icecdc_core.table.selection import Selection
from icecdc_core.updates import merge_updates

if TYPE_CHECKING:
    from icecdc_core.table.schemas.changes import SchemaChange

# Changes that an index can follow where a field is the column itself.
_RECOMPUTING = frozenset({"added", "type_widened", "reordered"})


@dataclass(frozen=True)
class Source:
    """A table, what is selected of it, and its state when it was loaded."""

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
    projection: Projection | None = None
    spec: Mapping[str, Any] = field(default_factory=dict)
    filter_computed_from: frozenset[str] = frozenset()
    filter_time_zone: str = ""
    number_of_shards: int = 1

    @property
    def key_columns(self) -> list[str]:
        """The columns of selected rows that make the document id: beside a projection they have private names."""
        if self.projection is None:
            return self.identifier_columns
        return [private_identifier(name) for name in self.identifier_columns]

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
        """The current Iceberg schema of the columns that matter: those of a document, its id and the condition.

        If another column takes the name of a filter column, the filter changes although its text does not.
        """
        schema = self.metadata.schema()
        wanted = {*self.columns, *self.identifier_columns, *self.filter_columns}
        return Schema(*[column for column in schema.fields if column.name in wanted], schema_id=schema.schema_id)

    @property
    def schema_json(self) -> str:
        """The same as JSON, as positions keep it."""
        return self.iceberg_schema.model_dump_json()

    @property
    def selection(self) -> Selection:
        """What is read of the table's rows; without identifier columns also where each row lies."""
        selection = Selection(tuple(self.columns), self.row_filter, with_row_position=not self.identifier_columns)
        if self.projection is None:
            return selection
        return replace(
            selection,
            columns=self.projection.columns,
            projection=self.projection,
            identifier_columns=tuple(self.identifier_columns),
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
        # Only what is given: the position of a release that did not know it still matches.
        if self.projection is not None:
            stored["select"] = list(self.projection.stored)
            if not self.identifier_columns and not self.table.has_row_lineage:
                stored["document_ids"] = "digests of row positions"  # they were plain once
        if time_zone := self.filter_time_zone or (self.projection.time_zone if self.projection else ""):
            stored["time_zone"] = time_zone
        return {**stored, **self.spec}

    def fields_since(self, schema: str) -> frozenset[str]:
        """Return the fields of a document that the table got since it had this schema (JSON), see ``schema_json``."""
        if not schema:
            return frozenset()
        return new_document_fields(
            json.loads(schema)["fields"], json.loads(self.schema_json)["fields"], self.projection
        )

    def recomputes(self, changes: Sequence[SchemaChange]) -> bool:
        """Return whether changes of the schema change a field of ``select``, or the condition, for rows that stay.

        A `*` inside a function, such as ``to_json(struct(*))``, takes in a column that the table gets.
        """
        texts = self.projection.stored if self.projection else ()
        computed_from = self.projection.computed_from if self.projection else frozenset()
        return _recomputes(changes, computed_from, texts, _RECOMPUTING) or _recomputes(
            changes, self.filter_computed_from, [self.row_filter], _RECOMPUTING - {"type_widened"}
        )

    def rows(self, tasks: FileTasks) -> DataFrame:
        """Read the selected live rows of these file tasks."""
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
        """Read the rows of a snapshot (None: the empty table), as ``rows_as_inserts`` does."""
        return self.rows_as_inserts(self.files(snapshot_id), on_duplicate)

    def files(self, snapshot_id: int | None) -> FileTasks:
        """Plan the scan of a snapshot; None is the empty table."""
        return self.table.plan(snapshot_id) if snapshot_id is not None else self.table.no_tasks()

    def require_unique_identifiers(self, on_duplicate: str) -> None:
        """Check the identifiers of the current snapshot's rows; without identifier columns there is nothing to check."""
        if self.identifier_columns:
            rows = self.rows(self.files(self.head))
            require_unique(rows, self.key_columns, self.table.name, allow_duplicates=on_duplicate == "last")

    def require_identifier_columns(self, why: str) -> None:
        """Refuse work that needs identifier columns when there are none."""
        if not self.identifier_columns:
            raise IdentifierColumnsError(
                f"Table '{self.table.name}' has no identifier columns, but {why}",
                subject="identifier_columns",
                value=[],
                remedy="name the columns that identify a row in identifier_columns, or set them on the table: "
                "ALTER TABLE ... SET IDENTIFIER FIELDS ...; then export again, because document ids change with them",
            )


def _recomputes(
    changes: Sequence[SchemaChange], computed_from: Collection[str], texts: Sequence[str], kinds: Collection[str]
) -> bool:
    # The order of columns matters for a `*` only.
    own = {kind for kind in kinds if kind != "reordered" or any("*" in text for text in texts)}
    return any(
        (change.kind in own and change.column == path)
        or (change.kind in kinds and change.column.startswith(f"{path}."))
        for change in changes
        for path in computed_from
    )
