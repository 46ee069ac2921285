"""Process one batch: decode it once, route it, write it into all its tables, and add it to the commit log."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from icecdc_core.errors import IcecdcError
from icecdc_core.ingest.decoding import decode_records
from icecdc_core.ingest.failures import typed_failure
from icecdc_core.ingest.formats.registry import RegisteredSchema
from icecdc_core.ingest.kafka import offsets
from icecdc_core.ingest.kafka.offsets import Offsets
from icecdc_core.ingest.kafka.topics import Topics
from icecdc_core.ingest.parameters import quoted_table
from icecdc_core.ingest.routing import TABLE, route_records
from icecdc_core.ingest.shared_parse import SharedParser, cache_and_count
from icecdc_core.ingest.start_offsets import with_new_topics
from icecdc_core.ingest.tables.commits import commit_log
from icecdc_core.ingest.tables.commits.commit_log import BEHIND, WRITTEN, LogEntry, TableEntry
from icecdc_core.ingest.tables.commits.offsets_reader import RefillError
from icecdc_core.ingest.tables.commits.publish import WAP_ID
from icecdc_core.ingest.tables.micro_batch import MicroBatch, TableRecords
from icecdc_core.ingest.tables.writer import Writer
from icecdc_core.logs import event
from icecdc_core.session.jvm import SPARK_HAS_ENDED, persisted, unpersist
from icecdc_core.session.spark import settings_unless_set

if TYPE_CHECKING:
    from icecdc_core.ingest.config import IngestConfig

# With fewer rows a writer makes small files, and its task takes longer than its rows.
_ROWS_PER_WRITER = 250_000
# Compressing the cached records takes longer than it saves.
_CACHE_SETTINGS = {"spark.sql.inMemoryColumnarStorage.compressed": "false"}


@dataclass
class Batches:
    """Processes the batches of one run, one after the other."""

    config: IngestConfig
    run_id: str
    topics: Topics
    writer: Writer
    parser: SharedParser
    number: int
    complete: Offsets
    recovering: set[str]
    topic_ids: dict[str, str]
    last: LogEntry | None = None
    known_schemas: dict[int, RegisteredSchema] = field(default_factory=dict)
    behind: dict[str, Exception] = field(default_factory=dict)
    refills: set[str] = field(default_factory=set)

    def process(self, records: DataFrame, start: Offsets, end: Offsets) -> LogEntry:
        """Process a batch; returns its entry. Afterwards each table has its records or is behind."""
        # The batch has a session of its own, with catalogs of its own. A commit through another session may be
        # invisible in it.
        spark = records.sparkSession
        # A pattern matches topics that came later, and one that came again.
        self.topic_ids = with_new_topics(self.topic_ids, self.topics.ids(list(end)))
        batch = MicroBatch(self.number, start, end, self._valid_through(end), self.run_id)
        with _staged_writes(spark, self.run_id), settings_unless_set(spark, _CACHE_SETTINGS):
            tables, dead_letters = self._write_tables(records, batch)
        tables = self.recover_tables(tables, batch)
        self.complete = offsets.furthest(self.complete, end)
        entry = LogEntry(
            job=self.config.job,
            batch=batch.number,
            run_id=self.run_id,
            kind="batch",
            offsets=self.complete,
            started_at=start,
            topic_ids=self.topic_ids,
            records=offsets.count(start, end),
            dead_letters=dead_letters,
            # The time is valid for all tables or not at all.
            valid_through=None if self.behind or self.recovering else batch.valid_through,
            tables=tables,
        )
        commit_log.write(spark, self.config.quoted_commit_log, entry)
        if batch.number % commit_log.KEEP == commit_log.KEEP - 1:
            commit_log.trim(spark, self.config.quoted_commit_log, self.config.job)
        self.last = entry
        self.number += 1
        event(
            "batch ended",
            batch=batch.number,
            records=entry.records,
            tables=len(tables),
            dead_letters=dead_letters,
            rows=sum(table.rows for table in tables),
        )
        return entry

    def _write_tables(self, records: DataFrame, batch: MicroBatch) -> tuple[list[TableEntry], int]:
        """Write all tables; returns their entries and the number of dead letters."""
        decoded = decode_records(records, self.config, self.known_schemas)
        if self.config.route_by == "table":
            return self._write_one_table(decoded, batch)
        shared = self.parser.parse(decoded)
        if shared is None:
            parts, counts = cache_and_count(TABLE, route_records(decoded, self.config))
            try:
                return self._write_routed(parts, counts, batch)
            finally:
                unpersist(parts)
        try:
            everything = route_records(decoded, self.config)
            records_of = {
                name: TableRecords(
                    partial(_records_of, everything, name),
                    shared.rows_of(name),
                    shared.schema,
                    shared.rows_only,
                    _writers(count),
                )
                for name, count in shared.counts.items()
            }
            tables, dead_letters = self._write_each(records.sparkSession, records_of, batch)
            if shared.others is not None:
                more, others = self._write_routed(shared.others, shared.other_counts, batch)
                tables, dead_letters = tables + more, dead_letters + others
            return tables, dead_letters
        finally:
            unpersist(shared.cached)

    def _write_one_table(self, decoded: DataFrame, batch: MicroBatch) -> tuple[list[TableEntry], int]:
        name = quoted_table(self.config.table)
        spark = decoded.sparkSession
        if not (self.config.evolve_schema or self.config.column_case != "sensitive"):
            # Read and written in one pass.
            return self._write_each(spark, {name: TableRecords(lambda: decoded)}, batch)
        with persisted(decoded) as cached:
            return self._write_each(spark, {name: TableRecords(lambda: cached)}, batch)

    def _write_routed(
        self, parts: DataFrame, counts: dict[str | None, int], batch: MicroBatch
    ) -> tuple[list[TableEntry], int]:
        """Write tables that parse their own records; records without a table are dead letters."""
        dead_letters = self.writer.dead_letters.write(parts.where(F.col(TABLE).isNull())) if counts.get(None) else 0
        records_of = {
            name: TableRecords(partial(_records_of, parts, name), partitions=_writers(count))
            for name, count in counts.items()
            if name is not None
        }
        tables, others = self._write_each(parts.sparkSession, records_of, batch)
        return tables, dead_letters + others

    def _write_each(
        self, spark: SparkSession, records: dict[str, TableRecords], batch: MicroBatch
    ) -> tuple[list[TableEntry], int]:
        """Write several tables at a time; one that fails does not stop the others."""
        names = [name for name in records if name not in self.behind]
        with ThreadPoolExecutor(self.config.table_concurrency, "icecdc-ingest") as pool:
            written = list(pool.map(lambda name: self._write_table(name, spark, records[name], batch), names))
        return [entry for entry, _ in written], sum(dead_letters for _, dead_letters in written)

    def _write_table(
        self, name: str, spark: SparkSession, records: TableRecords, batch: MicroBatch
    ) -> tuple[TableEntry, int]:
        try:
            return self.writer.write(spark, name, records, batch)
        except RefillError as refill:
            self.behind[name] = refill
            self.refills.add(name)
            return TableEntry(name, state=BEHIND, offsets=offsets.to_json(refill.offsets), error=str(refill)), 0
        except (IcecdcError, PySparkException, Py4JError) as error:
            failure = typed_failure(error, name)
            self.behind[name] = failure
            event(f"a table could not be written: {failure}", logging.WARNING, table=name, batch=batch.number)
            last = self.writer.offsets.last_entries.get(name) or TableEntry(name)
            where, why = offsets.to_json(batch.start), str(failure)[:2000]
            return replace(last.unchanged(), state=BEHIND, offsets=where, error=why), 0

    def complete_through(self) -> datetime | None:
        """The time up to which all tables have every record; None if a table is behind, or records wait."""
        return None if self.behind or self.recovering else self._valid_through(self.complete)

    def recover_tables(self, tables: list[TableEntry], batch: MicroBatch) -> list[TableEntry]:
        """Move the tables that an earlier run left behind forward; return the batch's entries with theirs.

        Such a table stays behind until it has reached the offsets of the others. Then `recovering` is emptied. The new
        entries are also the last ones that the writer's reader of offsets has.
        """
        # The job may no longer read a topic that it once did.
        read = {topic: complete for topic, complete in self.complete.items() if topic in batch.end}
        arrived = offsets.covers(batch.end, read)
        entries = {entry.name: entry for entry in tables}
        for name in sorted(self.recovering - set(self.behind)):
            last = self.writer.offsets.last_entries[name]
            # A batch without a record for the table leaves its snapshot as it is, so the entry still names it:
            # a rollback of the table is recognized by the snapshot that the log names.
            entry = entries.get(name) or last.unchanged()
            reached = offsets.to_json(offsets.furthest(offsets.from_json(last.offsets), batch.end))
            entries[name] = replace(entry, state=WRITTEN if arrived else BEHIND, offsets=reached)
            self.writer.offsets.last_entries[name] = entries[name]
        if arrived:
            self.recovering.clear()
        return list(entries.values())

    def _valid_through(self, end: Offsets) -> datetime | None:
        """The time before the topics' ends were read, if the batch reaches all of them; else None."""
        now = datetime.now(timezone.utc)
        return now if offsets.covers(end, self.topics.latest(list(end))) else None


def _records_of(routed: DataFrame, name: str) -> DataFrame:
    return routed.where(F.col(TABLE) == name).drop(TABLE)


def _writers(count: int) -> int:
    return max(1, math.ceil(count / _ROWS_PER_WRITER))


@contextmanager
def _staged_writes(spark: SparkSession, run_id: str) -> Iterator[None]:
    """Within the block every Iceberg write of the session is staged."""
    spark.conf.set(WAP_ID, f"icecdc-{run_id}")
    try:
        yield
    finally:
        with suppress(*SPARK_HAS_ENDED):
            spark.conf.unset(WAP_ID)
