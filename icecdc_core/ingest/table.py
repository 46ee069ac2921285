"""Destination tables: created, evolved, staged, merged and published; and the Kafka offsets each table records.

In: the records of one batch. Out: at most one commit in each table, and a row in the commit log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from icecdc_core.columns import quoted
from icecdc_core.errors import ColumnNotFoundError, ConcurrentIngestError, IngestWriteError
from icecdc_core.ingest import offsets
from icecdc_core.ingest.commit_log import TableEntry, TableOffsets, current_snapshot_id
from icecdc_core.ingest.dead_letters import DeadLetters
from icecdc_core.ingest.destinations import (
    METADATA_PREFIX,
    evolve_for_records,
    identifiers,
    metadata_checks,
    open_or_create_table,
    payload_schema,
    with_metadata_problems,
)
from icecdc_core.ingest.offsets import Offsets
from icecdc_core.ingest.offsets_reader import OffsetsReader
from icecdc_core.ingest.publish import MovedError, StagedSnapshot, append, next_publish_step, publish, restage, stage
from icecdc_core.ingest.rows import (
    IS_VALID,
    ROW,
    needs_no_inference,
    parse_rows,
    parse_rows_only,
    reject_without_table,
)
from icecdc_core.ingest.upserts import IDENTIFIER, ORDER, delete_old_identifiers, last_row_of_each, merge_rows
from icecdc_core.logs import event
from icecdc_core.session.jvm import iceberg_class, persisted
from icecdc_core.session.spark import RowCount
from icecdc_core.table.catalogs import load_table

if TYPE_CHECKING:
    from icecdc_core.ingest.config import IngestConfig


@dataclass(frozen=True)
class MicroBatch:
    """A micro-batch: its number and its offsets."""

    number: int
    start: Offsets
    end: Offsets
    valid_through: datetime | None
    run_id: str


@dataclass(frozen=True)
class TableRecords:
    """The records of a batch for one table."""

    decoded: Callable[[], DataFrame]
    rows: DataFrame | None = None
    schema: StructType | None = None
    rows_only: bool = False
    partitions: int | None = None

    def coalesced(self, frame: DataFrame) -> DataFrame:
        """Return the frame with as many partitions as its rows need."""
        return frame if self.partitions is None else frame.coalesce(self.partitions)


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


ATTEMPTS = 10
"""How many times a write is done before its table is left behind."""


@dataclass
class Writer:
    """Writes batches into tables; threads may use it at the same time, each for other tables."""

    config: IngestConfig
    dead_letters: DeadLetters
    offsets: OffsetsReader
    attempts: int = ATTEMPTS

    def write(self, spark: SparkSession, name: str, records: TableRecords, batch: MicroBatch) -> tuple[TableEntry, int]:
        """Write the records of a batch that the table lacks."""
        # No library for this loop: an attempt does not repeat a call, it decides again from the table's new state.
        dead_letters, is_new = 0, False
        conflict: MovedError | None = None
        for _ in range(self.attempts):
            opened = open_or_create_table(spark, name, records.decoded, self.config)
            is_new |= opened.is_new
            table = opened.table
            if table is None:
                return self._write_without_table(name, records, batch)
            recorded = self.offsets.read_or_reset(name, table, batch.start)
            if offsets.covers(recorded.offsets, batch.end):
                return self._nothing_new(name, table, recorded), dead_letters
            try:
                staged = self._stage(spark, name, table, recorded, records, batch, is_new)
            except MovedError as moved:  # nothing was staged
                conflict = moved
                continue
            dead_letters += staged.dead_letters
            published = self._publish(spark, name, recorded, staged.snapshot, batch)
            if published is not None:
                written = replace(self._offsets_after(recorded, batch), snapshot_id=published.snapshot_id)
                entry = _entry(name, table, written, replace(staged, snapshot=published))
                self.offsets.remember(entry, written)
                return entry, dead_letters
        if conflict is not None:
            raise IngestWriteError(
                f"The write was attempted {self.attempts} times, and each time another writer committed first: "
                f"{conflict.message}",
                subject="table",
                value=name,
                remedy="let others write or compact the table less often, or set a lower max_records_per_batch; the "
                "next run reads the records again",
            ) from conflict
        raise _too_many_writers_error(name)

    def _nothing_new(self, name: str, table: Any, recorded: TableOffsets) -> TableEntry:
        """Return the entry of a table that has all records of the batch already."""
        last = self.offsets.last_entries.get(name)
        if recorded.snapshot_id is None and last is not None:
            # The snapshot has expired. The entry still names it, so that a rollback is recognized later.
            return replace(last.unchanged(), uuid=str(table.uuid()), offsets=offsets.to_json(recorded.offsets))
        return _entry(name, table, recorded)

    def _write_without_table(self, name: str, records: TableRecords, batch: MicroBatch) -> tuple[TableEntry, int]:
        """Write the dead letters of a batch without any row, for a table that does not exist yet."""
        rows = reject_without_table(records.decoded(), self.config)
        reason = F.col("problem")
        if self.config.mode == "append":
            reason = F.coalesce(reason, F.when(F.expr(IS_DELETE), F.lit(DELETE_IN_APPEND)))
        rejected = rows.withColumn("problem", reason).where("problem IS NOT NULL")
        last = self.offsets.last_entries.get(name)
        before = offsets.from_json(last.offsets) if last else {}
        done = TableOffsets(offsets.furthest(before, batch.end), batch.number)
        # A table that was dropped keeps its uuid and snapshot in the log, so that a reset is recognized later.
        entry = replace((last or TableEntry(name)).unchanged(), offsets=offsets.to_json(done.offsets))
        dead_letters = self.dead_letters.write(records.coalesced(rejected), name)
        self.offsets.remember(entry, done)
        return entry, dead_letters

    def _stage(
        self,
        spark: SparkSession,
        name: str,
        table: Any,
        recorded: TableOffsets,
        records: TableRecords,
        batch: MicroBatch,
        is_new: bool = False,
    ) -> StagedRecords:
        """Stage the records that the table lacks, on its current snapshot."""
        unread = offsets.unread(recorded.offsets, batch.start, batch.end)
        checks = metadata_checks(spark, table, self.config)

        def decoded() -> DataFrame:
            frame = records.decoded() if unread is None else records.decoded().where(unread)
            return records.coalesced(with_metadata_problems(frame, checks))

        seen = None
        if self.config.evolve_schema:
            seen = evolve_for_records(spark, name, decoded(), self.config)
            table = load_table(spark, name)
        if self.config.identifier_columns:
            identifiers(spark, table, self.config)
        schema = payload_schema(spark, table, self.config)
        properties = self._offsets_after(recorded, batch).properties(self.config.job, batch.run_id)
        staging = Staging(self.config, self.dead_letters, name, table, schema, properties)
        rows = records.rows if unread is None and records.schema == schema else None
        if rows is not None and records.rows_only:
            return staging.append_rows(rows, records)
        if rows is None and needs_only_rows(self.config) and not is_new:
            return staging.append_fast(decoded)
        # A field for which a new table has no column has a name that no column can have.
        report = True if is_new else None
        rows = parse_rows(decoded(), schema, self.config, seen, report) if rows is None else records.coalesced(rows)
        return staging.upsert(rows) if self.config.mode == "upsert" else staging.append(rows)

    def _publish(
        self, spark: SparkSession, name: str, recorded: TableOffsets, staged: StagedSnapshot, batch: MicroBatch
    ) -> StagedSnapshot | None:
        """Publish a staged snapshot; None if the records have to be compared with the table again.

        An append is staged again on top of the commits of others.
        """
        for _ in range(self.attempts):
            table = load_table(spark, name)
            if self.offsets.read_or_reset(name, table, batch.start).offsets != recorded.offsets:
                return None
            step = next_publish_step(current_snapshot_id(table), staged, can_restage=self.config.mode == "append")
            if step == "write again":
                return None
            if step == "restage":
                staged = restage(spark, name, staged)
                table = load_table(spark, name)
            try:
                publish(spark, name, table, staged)
                return staged
            except MovedError:
                continue
        raise _too_many_writers_error(name)

    @staticmethod
    def _offsets_after(recorded: TableOffsets, batch: MicroBatch) -> TableOffsets:
        """The offsets of the table once it has the batch."""
        return TableOffsets(
            offsets=offsets.furthest(recorded.offsets, batch.end),
            batch=batch.number,
            valid_through=batch.valid_through.isoformat() if batch.valid_through else "",
        )


def _entry(name: str, table: Any, recorded: TableOffsets, written: StagedRecords | None = None) -> TableEntry:
    """Return the table's entry in the commit log; `written`: what the batch wrote into it."""
    entry = TableEntry(
        name, str(table.uuid()), snapshot_id=recorded.snapshot_id, offsets=offsets.to_json(recorded.offsets)
    )
    if written is not None:
        published = written.snapshot
        return replace(
            entry,
            sequence_number=published.sequence_number,
            snapshot_ms=published.snapshot_ms,
            rows=written.rows,
            deletes=written.deletes,
            files=published.files,
            bytes=published.bytes,
        )
    snapshot = None if recorded.snapshot_id is None else table.snapshot(recorded.snapshot_id)
    if snapshot is None:
        return entry
    return replace(entry, sequence_number=int(snapshot.sequenceNumber()), snapshot_ms=int(snapshot.timestampMillis()))


def _too_many_writers_error(name: str) -> ConcurrentIngestError:
    return ConcurrentIngestError(
        "Other writers committed to the table first, again and again",
        subject="table",
        value=name,
        remedy="run one copy of the job at a time, or try again when fewer others write to the table",
    )


def compact(spark: SparkSession, names: list[str], min_files: int) -> list[str]:
    """Rewrite the small data files of tables that have enough of them.

    A failure leaves the table as it is and is logged. Most often another writer rewrote the same files.
    """
    actions: Any = iceberg_class(spark, "spark.actions.SparkActions")
    compacted = []
    for name in names:
        try:
            action = actions.get(spark._jsparkSession).rewriteDataFiles(load_table(spark, name))
            result = action.option("min-input-files", str(min_files)).execute()
        except Exception as error:
            event(f"the table was not compacted: {str(error)[:500]}", logging.WARNING, table=name)
            continue
        if int(result.rewrittenDataFilesCount()):
            compacted.append(name)
    return compacted
