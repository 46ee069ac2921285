"""The work on one batch: decoded once, routed, written into all its tables, then noted in the commit log."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from icecdc_core.errors import IcecdcError
from icecdc_core.ingest.decoding import decoded
from icecdc_core.ingest.failures import typed_failure
from icecdc_core.ingest.kafka import offsets
from icecdc_core.ingest.kafka.offsets import Offsets
from icecdc_core.ingest.kafka.topics import Topics
from icecdc_core.ingest.parameters import quoted_table
from icecdc_core.ingest.routing import TABLE, routed
from icecdc_core.ingest.shared_parse import Sharing, kept_by
from icecdc_core.ingest.tables import commit_log
from icecdc_core.ingest.tables.commit_log import BEHIND, WRITTEN, LogEntry, TableEntry
from icecdc_core.ingest.tables.compaction import compact
from icecdc_core.ingest.tables.publish import WAP_ID
from icecdc_core.ingest.tables.table_resets import RefillError
from icecdc_core.ingest.tables.writer import Batch, Records, Writer
from icecdc_core.logs import event
from icecdc_core.session.spark import unless_set

if TYPE_CHECKING:
    from icecdc_core.ingest.config import IngestConfig

# So many rows are worth a writer of their own; fewer make small files, and tasks that take longer than their rows.
_ROWS_OF_A_WRITER = 250_000
# Looking for the best way to pack what is kept takes longer than keeping it, and whole rows are not packed anyway.
_KEPT_AS_IT_IS = {"spark.sql.inMemoryColumnarStorage.compressed": "false"}
# A batch is a file of the commit log; from so many on they become one.
_BATCHES_OF_A_FILE = 100


@dataclass
class Batches:
    """Works on batch after batch of one run.

    Attributes:
        config: The job's parameters.
        run_id: The run.
        topics: Tells whether a batch reaches the end of the topics.
        writer: Writes into tables.
        sharing: Parses the records of several tables together.
        number: Number of the next batch.
        entries: What was done, batch by batch.
        behind: Tables that failed in this run, and why. Later batches leave them out, so that nothing is missing
            between what they have and what they get; the next run takes their records again.
        refills: Those of them that take records again because `on_table_reset` says so.
        complete: Everything below is where it belongs, but for tables that are behind.
        recovering: Tables that were left behind by an earlier run, until they have reached `complete` again.
        topic_ids: The id of each topic that is read.
    """

    config: IngestConfig
    run_id: str
    topics: Topics
    writer: Writer
    sharing: Sharing
    number: int
    complete: Offsets
    recovering: set[str]
    topic_ids: dict[str, str]
    entries: list[LogEntry] = field(default_factory=list)
    behind: dict[str, Exception] = field(default_factory=dict)
    refills: set[str] = field(default_factory=set)

    def work(self, records: DataFrame, start: Offsets, end: Offsets) -> None:
        """Work on a batch: when this returns, everything in it is where it belongs, or its table is behind.

        Args:
            records: Spark's Kafka columns.
            start: Where the batch starts.
            end: Where it ends.
        """
        # The session of the batch, not that of the run: it is a copy with catalogs of its own, and what one of them
        # committed the other may not see.
        spark = records.sparkSession
        batch = Batch(self.number, start, end, self._valid_through(end), self.run_id)
        with _staging(spark, self.run_id), unless_set(spark, _KEPT_AS_IT_IS):
            tables, letters = self._all_tables(records, batch)
        tables = self.recovered(tables, batch)
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
            dead_letters=letters,
            # Not of all tables, while one is behind.
            valid_through=None if self.behind or self.recovering else batch.valid_through,
            tables=tables,
        )
        commit_log.write(spark, self.config.quoted_commit_log, entry)
        if batch.number % _BATCHES_OF_A_FILE == _BATCHES_OF_A_FILE - 1:
            compact(spark, [self.config.quoted_commit_log], _BATCHES_OF_A_FILE)
        self.entries.append(entry)
        self.number += 1
        told = {"batch": batch.number, "records": entry.records, "tables": len(tables), "dead_letters": letters}
        event("batch ended", **told, rows=sum(table.rows for table in tables))

    def _all_tables(self, records: DataFrame, batch: Batch) -> tuple[list[TableEntry], int]:
        known = decoded(records, self.config)
        if self.config.route_by == "table":
            # Read once and written in the same pass, unless the schema has to be found out first.
            name = quoted_table(self.config.table)
            spark, all_of_it = records.sparkSession, {name: Records(lambda: known)}
            if not (self.config.evolve_schema or self.config.column_case != "sensitive"):
                return self._each(spark, all_of_it, batch)
            known = known.persist()
            try:
                return self._each(spark, all_of_it, batch)
            finally:
                known.unpersist()
        shared = self.sharing.share(known)
        if shared is None:
            parts, counts = kept_by(TABLE, routed(known, self.config))
            try:
                return self._one_by_one(parts, counts, batch)
            finally:
                parts.unpersist()
        try:
            everything = routed(known, self.config)
            found = {
                name: Records(
                    partial(_of, everything, name), shared.of(name), shared.schema, shared.alone, _writers(count)
                )
                for name, count in shared.counts.items()
            }
            tables, letters = self._each(records.sparkSession, found, batch)
            if shared.others is not None:
                more, others = self._one_by_one(shared.others, shared.elsewhere, batch)
                tables, letters = tables + more, letters + others
            return tables, letters
        finally:
            shared.kept.unpersist()

    def _one_by_one(
        self, parts: DataFrame, counts: dict[str | None, int], batch: Batch
    ) -> tuple[list[TableEntry], int]:
        """Let every table parse its own records; those of no table are dead letters."""
        letters = self.writer.letters.keep(parts.where(F.col(TABLE).isNull())) if counts.get(None) else 0
        found = {
            name: Records(partial(_of, parts, name), partitions=_writers(count))
            for name, count in counts.items()
            if name is not None
        }
        tables, others = self._each(parts.sparkSession, found, batch)
        return tables, letters + others

    def _each(self, spark: SparkSession, records: dict[str, Records], batch: Batch) -> tuple[list[TableEntry], int]:
        """Write all tables, several at a time; what fails is noted, and does not stop the others."""
        wanted = [name for name in records if name not in self.behind]
        with ThreadPoolExecutor(self.config.table_concurrency, "icecdc-ingest") as pool:
            found = list(pool.map(lambda name: self._one(name, spark, records[name], batch), wanted))
        return [entry for entry, _ in found], sum(letters for _, letters in found)

    def _one(self, name: str, spark: SparkSession, records: Records, batch: Batch) -> tuple[TableEntry, int]:
        try:
            return self.writer.write(spark, name, records, batch)
        except RefillError as refill:
            self.behind[name] = refill
            self.refills.add(name)
            return TableEntry(name, state=BEHIND, offsets=offsets.text(refill.offsets), error=str(refill)), 0
        except (IcecdcError, PySparkException, Py4JError) as error:
            failure = typed_failure(error, name)
            self.behind[name] = failure
            event(f"a table was left behind: {failure}", logging.WARNING, table=name, batch=batch.number)
            known = self.writer.marks.known.get(name) or TableEntry(name)
            where, why = offsets.text(batch.start), str(failure)[:2000]
            return replace(known.unchanged(), state=BEHIND, offsets=where, error=why), 0

    def recovered(self, tables: list[TableEntry], batch: Batch) -> list[TableEntry]:
        """Leave tables of an earlier run behind until they are where the others are."""
        arrived = offsets.covers(batch.end, self.complete)
        entries = {entry.name: entry for entry in tables}
        for name in sorted(self.recovering - set(self.behind)):
            known = self.writer.marks.known[name]
            # A batch without a record for the table leaves its snapshot as it is, so the entry still names it:
            # a rollback of the table is recognized by the snapshot that the log names.
            entry = entries.get(name) or known.unchanged()
            has = offsets.text(offsets.furthest(offsets.parse(known.offsets), batch.end))
            entries[name] = replace(entry, state=WRITTEN if arrived else BEHIND, offsets=has)
            self.writer.marks.known[name] = entries[name]
        if arrived:
            self.recovering.clear()
        return list(entries.values())

    def _valid_through(self, end: Offsets) -> datetime | None:
        """Now, if nothing is left to read: then every partition is complete up to now, an idle one too."""
        asked = datetime.now(timezone.utc)
        return asked if offsets.covers(end, self.topics.latest(list(end))) else None


def _of(routed: DataFrame, name: str) -> DataFrame:
    """The records of one table."""
    return routed.where(F.col(TABLE) == name).drop(TABLE)


def _writers(count: int) -> int:
    return max(1, math.ceil(count / _ROWS_OF_A_WRITER))


@contextmanager
def _staging(spark: SparkSession, run_id: str) -> Iterator[None]:
    """Stage all that is written in the session meanwhile."""
    spark.conf.set(WAP_ID, f"icecdc-{run_id}")
    try:
        yield
    finally:
        spark.conf.unset(WAP_ID)
