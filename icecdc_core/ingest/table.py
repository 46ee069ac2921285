"""Writes the records of a batch into one table: skip those that it has, stage the others, check and publish them."""

from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession, functions as F
from pyspark.sql.types import StringType, StructField, StructType

from icecdc_core.errors import ConcurrentIngestError, TableResetError
from icecdc_core.ingest import commit_log, offsets, writes
from icecdc_core.ingest.checks import find_failed_records
from icecdc_core.ingest.commit_log import LogEntry, TableEntry
from icecdc_core.ingest.config import IngestConfig
from icecdc_core.ingest.dead_letters import POSITION, DeadLetters
from icecdc_core.ingest.deleted_keys import write_deleted_keys
from icecdc_core.ingest.destinations import open_or_create_table
from icecdc_core.ingest.formats.decode_results import TRUNCATE
from icecdc_core.ingest.offsets import Offsets, Routed, of_all_topics
from icecdc_core.ingest.publish import MovedError, publish, restage
from icecdc_core.ingest.rows import explain_rows, parse_rows
from icecdc_core.ingest.start_offsets import RefillError


@dataclass
class Writer:
    """Writes batches into tables; threads may use it at the same time, each for other tables."""

    config: IngestConfig
    dead_letters: DeadLetters
    last_entries: dict[str, TableEntry]
    earliest: Offsets
    attempts: int = 10  # before the table is left behind
    routed: Routed = of_all_topics
    replay: str = ""  # the claim of a replay of dead letters, whose batch has no offsets

    def is_first(self, batch: LogEntry) -> bool:
        """Whether no run has judged records of this batch before, as one that died may have."""
        judged = {topic: parts for topic, parts in self.dead_letters.judged.items() if topic in batch.started_at}
        return offsets.covers(batch.started_at, judged)

    def write(
        self, spark: SparkSession, name: str, records: writes.TableRecords, batch: LogEntry
    ) -> tuple[TableEntry, int]:
        """Write the records of a batch that the table lacks; returns its entry and the number of dead letters."""
        writer = replace(self, config=self.config.for_table(name))
        start, end = self.routed(name, batch.started_at), self.routed(name, batch.offsets)
        batch = replace(batch, started_at=start, offsets=end)
        if writer.config.on_truncate == "reject" or self.replay:  # it would also remove what came since
            records = replace(records, decoded=writes.reject_truncates(records.decoded))
        own = TableBatch(writer, spark, name, records, batch, is_first=self.is_first(batch))
        conflict: MovedError | None = None
        # No library repeats that: each attempt goes on from what the one before it staged.
        for _ in range(self.attempts):
            try:
                if (entry := own.attempt()) is not None:
                    return entry, own.count
            except MovedError as moved:
                conflict = moved
        raise ConcurrentIngestError(
            f"Other writers committed to the table first, {self.attempts} times",
            subject="table",
            value=name,
            remedy="run one copy of the job at a time, let others write or compact the table less often, or set a "
            "lower max_records_per_batch; the next run reads the records again",
        ) from conflict

    def read_or_reset(self, name: str, table: Any, start: Offsets) -> TableEntry:
        """Return what a table records, or the log if it has higher offsets; a reset table follows `on_table_reset`."""
        recorded = commit_log.find_recorded(name, table, self.config.job)
        logged = self.last_entries.get(name)
        if logged is None:
            return recorded
        state = commit_log.table_state(table, recorded, logged)
        if state in ("current", "log is ahead"):
            return replace(recorded, offsets=offsets.furthest(recorded.offsets, logged.offsets))
        if self.config.on_table_reset == "continue":
            recorded = replace(recorded, offsets=offsets.furthest(recorded.offsets, start))
            self.last_entries[name] = TableEntry(name, recorded.uuid, offsets=recorded.offsets)
            return recorded
        if self.config.on_table_reset == "refill":
            refill = RefillError("The table is filled again", subject="table", value=name)
            refill.offsets = offsets.furthest(self.earliest, recorded.offsets)
            raise refill
        raise TableResetError(
            f"The table was {state} since the ingest last wrote into it",
            subject="on_table_reset",
            value=name,
            remedy="set on_table_reset=refill once, to read again what the topic still has for it, or continue, to "
            "write new records only",
        )


@dataclass
class TableBatch:
    """A batch on its way into one table. Each attempt stages, checks and publishes it; others may commit in between."""

    writer: Writer
    spark: SparkSession
    name: str
    records: writes.TableRecords
    batch: LogEntry
    is_first: bool  # no run has judged these records before
    count: int = 0  # of dead letters
    is_new: bool = False
    staged: writes.StagedWrite | None = None
    recorded: Offsets = field(default_factory=dict)  # what the table recorded when it was staged
    is_judged: bool = False  # the dead letters beside what is staged are written
    failed: DataFrame | None = None  # the records that fail checks
    checks: int = 0

    def attempt(self) -> TableEntry | None:
        """Return the table's entry once it has the batch; None, or a MovedError, asks for another attempt."""
        config, batch = self.writer.config, self.batch
        table, is_created = open_or_create_table(self.spark, self.name, self.records.decoded, config)
        self.is_new |= is_created
        if table is None:
            return self._without_table()
        recorded = self.writer.read_or_reset(self.name, table, batch.started_at)
        if not self.writer.replay and offsets.covers(recorded.offsets, batch.offsets):
            last = self.writer.last_entries.get(self.name)
            if recorded.snapshot_id is None and last is not None:
                # The snapshot has expired. The entry still names it, so that a rollback is recognized later.
                recorded = replace(last.unchanged(), uuid=recorded.uuid, offsets=recorded.offsets)
            return recorded
        head = commit_log.current_snapshot_id(table)
        staged = self._stage(table, recorded, head)
        # Else the offsets of its parent were not read, which a copy of this job may have published meanwhile.
        if staged is None or staged.snapshot.parent_id != head or not self._passes_checks(staged):
            return None
        if not self.is_judged:
            self._judge(staged, recorded.offsets)
        publish(self.spark, self.name, staged.snapshot)
        self.writer.last_entries[self.name] = staged.snapshot.entry
        return staged.snapshot.entry

    def _stage(self, table: Any, recorded: TableEntry, head: int | None) -> writes.StagedWrite | None:
        """Stage the rows that the table lacks; an append is only staged again if others committed in between.

        A merge depends on the rows of the table, and what a copy of this job wrote must not be written twice.
        """
        config, staged = self.writer.config, self.staged
        if staged is not None and recorded.offsets == self.recorded:
            if staged.snapshot.parent_id == head:
                return staged
            if config.mode != "upsert" and not staged.empties:
                snapshot = restage(self.spark, self.name, staged.snapshot)
                self.staged = None if snapshot is None else replace(staged, snapshot=snapshot)
                return self.staged
        records, batch = self.records, self.batch
        unread = offsets.unread(recorded.offsets, batch.started_at, batch.offsets)
        if unread is not None:
            records = writes.TableRecords(records.decoded.where(unread), records.in_one_task)
        properties = {
            commit_log.JOB: config.job,
            commit_log.BATCH: str(batch.batch),
            commit_log.OFFSETS: offsets.to_json(offsets.furthest(recorded.offsets, batch.offsets)),
            commit_log.RUN: batch.run_id,
        }
        properties |= {commit_log.VALID_THROUGH: batch.valid_through.isoformat()} if batch.valid_through else {}
        properties |= {commit_log.REPLAYED: self.writer.replay} if self.writer.replay else {}
        given = self.spark, self.name, table, config, records, properties
        self.staged = writes.stage_records(*given, is_new=self.is_new)
        self.recorded, self.is_judged = recorded.offsets, False
        return self.staged

    def _passes_checks(self, staged: writes.StagedWrite) -> bool:
        """Whether the staged rows pass the checks. If not, the next attempt stages the others."""
        entry, config = staged.snapshot.entry, self.writer.config
        if not config.checks or not entry.rows + entry.deletes:
            return True
        failed = find_failed_records(self.spark, self.name, staged, config, self.checks)
        self.checks += 1
        if failed is None:
            return True
        # Without them from the start: one that a merge chose may hide an older one that fails no check.
        failing = self.records.decoded.drop("problem").join(failed, list(POSITION))
        self.failed = failing if self.failed is None else self.failed.unionByName(failing)
        rest = self.records.decoded.join(failed, list(POSITION), "left_anti")
        self.records, self.staged = writes.TableRecords(rest, self.records.in_one_task), None
        return False

    def _judge(self, staged: writes.StagedWrite, done: Offsets) -> None:
        """Write what must be there before the rows are: dead letters, and keys that stay deleted."""
        dead_letters = self.writer.dead_letters
        rejected = [each for each in (staged.rejected, self.failed) if each is not None]
        if not self.is_first:
            dead_letters.judge_again(self.spark, self.name, done, *rejected)
        if rejected:
            columns = (*POSITION, "timestamp", "key", "value", "headers", "problem")
            letters = reduce(DataFrame.unionByName, (each.select(*columns) for each in rejected))
            self.count += dead_letters.write(letters, self.name)
        if staged.deleted is not None:
            write_deleted_keys(staged.deleted, self.writer.config)
        self.is_judged, self.is_first = True, False

    def _without_table(self) -> TableEntry:
        """Make dead letters of all records but truncations: there is no table, and none of them could make one."""
        config = self.writer.config
        columns = StructType([StructField(name, StringType()) for name in config.identifier_columns])
        decoded = self.records.decoded.where(f"problem IS NOT NULL OR NOT op <=> '{TRUNCATE}'")  # no rows to remove
        rows = explain_rows(*parse_rows(decoded, columns, config, report_unknown=False))
        of_others = "the table does not exist, and the record has no value from which it could get a column"
        of_delete = {"append": writes.DELETE_IN_APPEND, "history": of_others}.get(config.mode)
        reason = F.coalesce("problem", writes.no_row_reason(of_delete).otherwise(F.lit(of_others)))
        letters = rows.withColumn("problem", reason).where("problem IS NOT NULL")
        self.count += self.writer.dead_letters.write(letters, self.name)
        # A table that was dropped keeps its uuid and snapshot in the log, so that a reset is recognized later.
        last = self.writer.last_entries.get(self.name) or TableEntry(self.name)
        entry = replace(last.unchanged(), offsets=offsets.furthest(last.offsets, self.batch.offsets))
        self.writer.last_entries[self.name] = entry
        return entry
