"""Write one batch into one table: the records that the table lacks, in one commit, or nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from icecdc_core.errors import ConcurrentIngestError, IngestWriteError
from icecdc_core.ingest.kafka import offsets
from icecdc_core.ingest.rows.column_names import Path
from icecdc_core.ingest.rows.first_records import reject_fields, reject_without_table
from icecdc_core.ingest.rows.row_parsing import parse_rows
from icecdc_core.ingest.tables.commits.commit_log import TableEntry
from icecdc_core.ingest.tables.commits.offsets_reader import OffsetsReader
from icecdc_core.ingest.tables.commits.publish import MovedError, StagedSnapshot, next_publish_step, publish, restage
from icecdc_core.ingest.tables.commits.table_offsets import TableOffsets, current_snapshot_id
from icecdc_core.ingest.tables.dead_letters import DeadLetters
from icecdc_core.ingest.tables.micro_batch import MicroBatch, TableRecords
from icecdc_core.ingest.tables.schemas.columns import (
    identifiers,
    metadata_checks,
    payload_schema,
    with_metadata_problems,
)
from icecdc_core.ingest.tables.schemas.destinations import evolve_for_records, open_or_create_table
from icecdc_core.ingest.tables.staging import DELETE_IN_APPEND, IS_DELETE, StagedRecords, Staging, needs_only_rows
from icecdc_core.table.catalogs import load_table

if TYPE_CHECKING:
    from icecdc_core.ingest.config import IngestConfig

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
        dead_letters = 0
        conflict: MovedError | None = None
        for _ in range(self.attempts):
            opened = open_or_create_table(spark, name, records.decoded, self.config)
            if opened.refused:
                records = replace(records, decoded=partial(_with_problems, records.decoded, opened.refused))
            table = opened.table
            if table is None:
                return self._write_without_table(name, records, batch)
            recorded = self.offsets.read_or_reset(name, table, batch.start)
            if offsets.covers(recorded.offsets, batch.end):
                return self._nothing_new(name, table, recorded), dead_letters
            try:
                staged = self._stage(spark, name, table, recorded, records, batch)
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
        if rows is None and needs_only_rows(self.config):
            return staging.append_fast(decoded)
        rows = parse_rows(decoded(), schema, self.config, seen) if rows is None else records.coalesced(rows)
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


def _with_problems(decoded: Callable[[], DataFrame], refused: dict[Path, str]) -> DataFrame:
    return reject_fields(decoded(), refused)


def _too_many_writers_error(name: str) -> ConcurrentIngestError:
    return ConcurrentIngestError(
        "Other writers committed to the table first, again and again",
        subject="table",
        value=name,
        remedy="run one copy of the job at a time, or try again when fewer others write to the table",
    )
