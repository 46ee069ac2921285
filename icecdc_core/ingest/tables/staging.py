"""Stage the records of a batch: append or merge those that fit the table, and write the others to the dead letters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from icecdc_core.columns import quoted
from icecdc_core.errors import ColumnNotFoundError
from icecdc_core.ingest.rows.row_parsing import IS_VALID, ROW, needs_no_inference, parse_rows, parse_rows_only
from icecdc_core.ingest.tables.commits.publish import StagedSnapshot, append, stage
from icecdc_core.ingest.tables.dead_letters import DeadLetters
from icecdc_core.ingest.tables.micro_batch import TableRecords
from icecdc_core.ingest.tables.schemas.columns import METADATA_PREFIX, identifiers
from icecdc_core.ingest.tables.upserts import (
    IDENTIFIER,
    ORDER,
    delete_old_identifiers,
    last_row_of_each,
    merge_rows,
)
from icecdc_core.session.jvm import persisted
from icecdc_core.session.row_counts import RowCount

if TYPE_CHECKING:
    from icecdc_core.ingest.config import IngestConfig

IS_DELETE = "coalesce(op = 'delete', false)"
DELETE_IN_APPEND = "a delete, for a table that is only appended to (mode=upsert would apply it)"
_APPENDED = f"({IS_VALID} AND NOT {IS_DELETE})"
_NO_IDENTIFIER = "a column that identifies the row is missing or null"


@dataclass(frozen=True)
class StagedRecords:
    """The records of a batch after they were staged."""

    snapshot: StagedSnapshot
    dead_letters: int
    rows: int
    deletes: int = 0


@dataclass(frozen=True)
class Staging:
    """Stages the records of one batch in one table."""

    config: IngestConfig
    dead_letters: DeadLetters
    name: str
    table: Any
    schema: StructType
    properties: dict[str, str]

    def append_rows(self, rows: DataFrame, records: TableRecords) -> StagedRecords:
        """Append rows that all fit and have no other columns."""
        staged = self._stage_append(rows, records.coalesced)
        return StagedRecords(staged, 0, staged.rows)

    def append_fast(self, decoded: Callable[[], DataFrame]) -> StagedRecords:
        """Append the rows that fit by the faster parse; records that do not fit are parsed again to find the reason."""
        staged, unfit = self._append_fitting(parse_rows_only(decoded(), self.schema, self.config))
        if not unfit:
            return StagedRecords(staged, 0, staged.rows)
        rows = parse_rows(decoded(), self.schema, self.config)
        with persisted(_rejected(rows)) as rejected:
            if rejected.count() == unfit:
                return StagedRecords(staged, self.dead_letters.write(rejected, self.name), staged.rows)
        # The slower parse accepts more records. The snapshot without them is never published.
        return self.append(rows)

    def append(self, rows: DataFrame) -> StagedRecords:
        """Append the rows that fit, as `parse_rows` returned them; deletes are dead letters."""
        staged, unfit = self._append_fitting(rows)
        return StagedRecords(staged, self.dead_letters.write(_rejected(rows), self.name) if unfit else 0, staged.rows)

    def upsert(self, rows: DataFrame) -> StagedRecords:
        """Merge the last record of each identifier."""
        identifier_columns = identifiers(rows.sparkSession, self.table, self.config)
        columns, ordering = self._columns(), self.config.ordering_column
        if ordering and ordering not in columns:
            raise ColumnNotFoundError(
                "The ordering column is not in the table",
                subject="ordering_column",
                value=ordering,
                remedy=f"name one of {', '.join(columns)}",
            )
        for number, column in enumerate(identifier_columns):
            rows = rows.withColumn(f"{IDENTIFIER}{number}", columns[column])
            columns[column] = F.col(f"{IDENTIFIER}{number}")
        rows = rows.withColumn(ORDER, columns[ordering] if ordering else F.lit(0))
        incomplete: Column = F.lit(False)
        for number in range(len(identifier_columns)):
            incomplete = incomplete | F.col(f"{IDENTIFIER}{number}").isNull()
        # A delete without an ordering value is the newest record.
        unordered = F.col(ORDER).isNull() & ~F.expr(IS_DELETE)
        problem = F.when(incomplete, F.lit(_NO_IDENTIFIER))
        problem = problem.when(unordered, F.lit(f"field {ordering}, the ordering column, is missing or null"))
        rows = rows.withColumn("problem", F.coalesce("problem", problem))
        fit = F.col(IS_VALID) & ~incomplete & ~unordered
        rejected = RowCount(rows, ~fit)
        # A merge reads its source more than once, and refuses one that may differ the second time.
        fitting = rejected.rows.where(fit)
        if self.config.format.startswith("debezium"):
            any_case = self.config.column_case != "sensitive"
            fitting = delete_old_identifiers(fitting, identifier_columns, self.schema, any_case)
        last = last_row_of_each(fitting).localCheckpoint()
        deleted = F.expr(IS_DELETE)
        counts = last.agg(F.count_if(~deleted).alias("rows"), F.count_if(deleted).alias("deletes")).first()
        assert counts is not None
        staged = stage(
            rows.sparkSession,
            self.name,
            self.table,
            self.properties,
            lambda properties: merge_rows(last, self.name, columns, identifier_columns, ordering, properties),
        )
        dead_letters = self.dead_letters.write(rows.where(~fit), self.name) if rejected.value() else 0
        return StagedRecords(staged, dead_letters, counts["rows"], counts["deletes"])

    def _append_fitting(self, rows: DataFrame) -> tuple[StagedSnapshot, int]:
        """Stage the rows that fit; also returns how many records do not."""
        unfit = RowCount(rows, F.expr(f"NOT {_APPENDED}"))
        return self._stage_append(unfit.rows.where(_APPENDED)), unfit.value()

    def _stage_append(
        self, rows: DataFrame, coalesced: Callable[[DataFrame], DataFrame] | None = None
    ) -> StagedSnapshot:
        metadata = (f"{quoted(column)} AS {METADATA_PREFIX}{column}" for column in self.config.metadata_columns)
        ready = rows.selectExpr(f"{quoted(ROW)}.*", *metadata)
        # Coalesced after the row is spread: Spark generates no code for coalesce, and would copy whole rows for it.
        ready = ready if coalesced is None else coalesced(ready)
        if self.config.sort_columns:
            ready = ready.sortWithinPartitions(*(F.col(quoted(column)) for column in self.config.sort_columns))
        options = self._options()
        return stage(
            rows.sparkSession,
            self.name,
            self.table,
            self.properties,
            lambda properties: append(ready, self.name, options, properties),
        )

    def _columns(self) -> dict[str, Column]:
        """The table's columns, each as an expression over the columns of `parse_rows`."""
        columns = {column.name: F.col(ROW)[column.name] for column in self.schema}
        return columns | {f"{METADATA_PREFIX}{name}": F.col(name) for name in self.config.metadata_columns}

    def _options(self) -> dict[str, str]:
        # Every row was checked for required columns. The frame of parsed records has only nullable ones.
        options = {"check-nullability": "false"}
        if self.config.target_file_bytes:
            options["target-file-size-bytes"] = str(self.config.target_file_bytes)
        if self.config.distribution != "table":
            options["distribution-mode"] = self.config.distribution
        return options


def needs_only_rows(config: IngestConfig) -> bool:
    """Return whether rows are appended without any other column of their records."""
    return config.mode == "append" and not config.metadata_columns and needs_no_inference(config)


def _rejected(rows: DataFrame) -> DataFrame:
    """Return the records that are not appended, with the reason in `problem`."""
    reason = F.coalesce("problem", F.when(F.expr(IS_DELETE), F.lit(DELETE_IN_APPEND)))
    return rows.where(f"NOT {_APPENDED}").withColumn("problem", reason)
