"""Process one batch: decode it once, route it, write it into all its tables, and add it to the commit log."""

import logging
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession, functions as F
from pyspark.sql.types import StringType, StructType

from icecdc_core.ingest import commit_log, deleted_keys, offsets
from icecdc_core.ingest.commit_log import BEHIND, WRITTEN, LogEntry, TableEntry
from icecdc_core.ingest.config import IngestConfig, quoted_table
from icecdc_core.ingest.decoding import TABLE, decode_records, route_records
from icecdc_core.ingest.destinations import payload_schema
from icecdc_core.ingest.expressions import Expressions
from icecdc_core.ingest.formats.schemas import RegisteredSchema
from icecdc_core.ingest.kafka import Topics, typed_failure
from icecdc_core.ingest.offsets import Offsets
from icecdc_core.ingest.publish import WAP_ID
from icecdc_core.ingest.rows import IS_VALID, ROW, needs_no_inference, parse_rows
from icecdc_core.ingest.start_offsets import RefillError, with_new_topics
from icecdc_core.ingest.table import Writer
from icecdc_core.ingest.writes import APPENDED, TableRecords
from icecdc_core.logs import event
from icecdc_core.session.jvm import persisted, unpersist
from icecdc_core.session.processes import StopRequest
from icecdc_core.session.spark import RowCount, settings_unless_set
from icecdc_core.table.catalogs import load_table

# With more tables, loading their schemas would take longer than the shared parse saves.
_MOST_TABLES = 2000


class SharedParse:
    """Parses the records of all tables together if these have the same columns: half of the CPU time."""

    def __init__(self, config: IngestConfig, tables: list[str], any_case: bool = False) -> None:
        own = [config.for_table(name) for name in tables] or [config]
        is_possible = (
            (config.route_field and 1 < len(tables) < _MOST_TABLES)
            and all(each is own[0] for each in own)
            and needs_no_inference(own[0])
            and (own[0].mode == "append" and not own[0].metadata_columns)
        )
        self._config, self._tables, self.any_case = own[0], tables if is_possible else [], any_case
        self.schema: StructType | None = None

    def cache_rows(self, decoded: DataFrame) -> tuple[DataFrame, dict[Any, int]] | None:
        """Cache rows with their tables, and count those of each table; None if a record is no row of a known table."""
        if self._tables and self.schema is None:
            self.schema = self._find_schema(decoded.sparkSession)
        known, self._tables = self._tables, []  # a record that is no row of them is usually followed by others
        if not known or self.schema is None:
            return None
        parsed, _ = parse_rows(decoded, self.schema, self._config)
        parsed = parsed.withColumn("problem", F.when(F.expr(f"NOT {APPENDED}"), F.lit("")))
        routed = route_records(parsed, self._config, self.any_case, F.col(ROW)[self._config.route_field])
        rows, counts = cache_and_count(routed.select(TABLE, ROW, "op", IS_VALID, "problem"))
        if set(counts) <= set(known):
            self._tables = known
            return rows, counts
        unpersist(rows)
        return None

    def _find_schema(self, spark: SparkSession) -> StructType | None:
        def schema(name: str) -> StructType | None:
            try:
                return payload_schema(spark, load_table(spark, name), self._config)
            except Exception:
                return None  # missing or broken; the writer reports it

        with ThreadPoolExecutor(self._config.table_concurrency, "icecdc-ingest") as pool:
            first, *others = pool.map(schema, self._tables)
        field = self._config.route_field
        is_text = first is not None and field in first.names and isinstance(first[field].dataType, StringType)
        return first if is_text and all(other == first for other in others) else None


def cache_and_count(routed: DataFrame) -> tuple[DataFrame, dict[Any, int]]:
    """Cache records, sorted by table so that reading one of them skips the others, and count each table's."""
    cached = routed.sortWithinPartitions(TABLE).persist()
    try:
        return cached, {row[TABLE]: int(row["count"]) for row in cached.groupBy(TABLE).count().collect()}
    except BaseException:
        unpersist(cached)
        raise


# With fewer rows a writer makes small files, and its task takes longer than its rows.
_ROWS_PER_WRITER = 250_000
# Compiling code for the columns of each table takes longer than reading few records without.
_FEW_RECORDS = 10_000
_INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


@dataclass
class Batches:
    config: IngestConfig
    run_id: str
    topics: Topics
    writer: Writer
    shared: SharedParse
    number: int
    complete: Offsets
    recovering: dict[str, Offsets]
    topic_ids: dict[str, str]
    expressions: Expressions | None = None
    last: LogEntry | None = None
    known_schemas: dict[int, RegisteredSchema] = field(default_factory=dict)
    behind: dict[str, Exception] = field(default_factory=dict)
    stop: StopRequest = field(default_factory=StopRequest)
    is_cut_off: bool = False

    def process(self, records: DataFrame, start: Offsets, end: Offsets) -> LogEntry:
        # The batch has a session with catalogs of its own, in which a commit through another one may be invisible.
        spark = records.sparkSession
        # A pattern matches topics that came later, and one that came again.
        self.topic_ids = with_new_topics(self.topic_ids, self.topics.ids(list(end)))
        batch = LogEntry(
            job=self.config.job,
            batch=self.number,
            run_id=self.run_id,
            kind="batch",
            offsets=end,
            started_at=start,
            topic_ids=self.topic_ids,
            records=offsets.count(start, end),
            valid_through=self._valid_through(end),
        )
        self.writer.dead_letters.end = end
        with self.settings(spark, batch.records < _FEW_RECORDS):
            decoded, filtered = self.decode(records)
            tables, dead_letters = self._write_tables(decoded, batch)
            if filtered is not None and any(each.state == WRITTEN for each in tables):  # else perhaps none was read
                batch = replace(batch, filtered=filtered.value())
        if self.is_cut_off:
            # It is not logged: the next run reads it again, as after a crash, and each table skips what it has.
            event("batch cut off", batch=batch.batch, tables=len(tables))
            left = "the batch that brings what it lacks was cut off"
            tables = [replace(e, state=BEHIND, error=left) if e.name in self.recovering else e for e in tables]
            return replace(batch, records=0, dead_letters=dead_letters, valid_through=None, tables=tables)
        tables = self.recover_tables(tables, batch)
        self.complete = offsets.furthest(self.complete, end)
        entry = replace(
            batch,
            offsets=self.complete,
            dead_letters=dead_letters,
            valid_through=None if self.behind or self.recovering else batch.valid_through,
            tables=tables,
            ends_read_at=batch.valid_through,
            behind=sorted({*self.behind, *self.recovering}),
        )
        commit_log.write(spark, self.config.quoted_commit_log, entry)
        if batch.batch % commit_log.KEEP == commit_log.KEEP - 1:
            commit_log.trim(spark, self.config.quoted_commit_log, self.config.job, self.config.quoted_dead_letters)
            deleted_keys.trim(spark, self.config)
        self.last = entry
        self.number += 1
        event(
            "batch ended",
            batch=batch.batch,
            records=entry.records,
            tables=len(tables),
            dead_letters=dead_letters,
            filtered=entry.filtered,
            rows=sum(table.rows for table in tables),
        )
        return entry

    @contextmanager
    def settings(self, spark: SparkSession, few: bool = True) -> Iterator[None]:
        spark.conf.unset("spark.sql.caseSensitive")
        settings = {
            WAP_ID: f"icecdc-{self.run_id}",  # every Iceberg write is staged
            "spark.sql.inMemoryColumnarStorage.compressed": "false",  # compressing takes longer than it saves
            "spark.sql.caseSensitive": "true",  # records may have fields whose names differ only in case
            "spark.sql.mapKeyDedupPolicy": "LAST_WIN",  # the default ends the batch
        }
        with settings_unless_set(spark, {**settings, **(_INTERPRETED if few else {})}):
            yield

    def decode(self, records: DataFrame) -> tuple[DataFrame, RowCount | None]:
        """Decode records, and evaluate the expressions over them; counts those that `where` drops."""
        if self.expressions is None:
            return decode_records(records, self.config, self.known_schemas), None
        envelope = self.expressions.envelope_fields
        return self.expressions.evaluate(decode_records(records, self.config, self.known_schemas, envelope))

    def _write_tables(self, decoded: DataFrame, batch: LogEntry) -> tuple[list[TableEntry], int]:
        if self.config.route_by == "table":
            table = quoted_table(self.config.table)
            # Without inference they are read and written in one pass.
            is_one_pass = needs_no_inference(self.config.for_table(table))
            with nullcontext(decoded) if is_one_pass else persisted(decoded) as cached:
                return self.write_each({table: TableRecords(cached)}, batch)
        routed = route_records(decoded, self.config, self.shared.any_case)
        shared = self.shared.cache_rows(decoded)
        cached, counts = shared or cache_and_count(routed)
        dead_letters = 0
        try:
            if not self.writer.is_first(batch):
                nowhere = cached.where(F.col(TABLE).isNull())
                self.writer.dead_letters.judge_again(cached.sparkSession, None, self.complete, nowhere)
            if counts.pop(None, 0):
                dead_letters = self.writer.dead_letters.write(cached.where(F.col(TABLE).isNull()))
            parts = {}
            for name, count in sorted(counts.items()):
                own, writers = F.col(TABLE) == name, max(1, math.ceil(count / _ROWS_PER_WRITER))
                found = cached.where(own).drop(TABLE).coalesce(writers)
                parts[name] = TableRecords(found, in_one_task=writers == 1)
                if shared:  # they are rows already; the records are parsed again for a table with other columns
                    records = routed.where(own).drop(TABLE).coalesce(writers)
                    parts[name] = TableRecords(records, writers == 1, found, self.shared.schema)
            tables, others = self.write_each(parts, batch)
            return tables, dead_letters + others
        finally:
            unpersist(cached)

    def write_each(self, parts: dict[str, TableRecords], batch: LogEntry) -> tuple[list[TableEntry], int]:
        """Write several tables at a time; one that fails does not stop the others, a request to stop does."""

        def write(name: str) -> tuple[TableEntry, int] | None:
            return None if self.stop.requested else self._write_table(name, parts[name], batch)

        names = [name for name in parts if name not in self.behind]
        with ThreadPoolExecutor(self.config.table_concurrency, "icecdc-ingest") as pool:
            written = [each for each in pool.map(write, names) if each is not None]
        self.is_cut_off = len(written) < len(names)
        return [entry for entry, _ in written], sum(dead_letters for _, dead_letters in written)

    def _write_table(self, name: str, records: TableRecords, batch: LogEntry) -> tuple[TableEntry, int]:
        try:
            return self.writer.write(records.decoded.sparkSession, name, records, batch)
        except RefillError as refill:
            self.behind[name] = refill
            # A topic that this run does not read may have been read into the table before: without offsets, it is
            # read from its beginning.
            start = self.writer.routed(name, {**{topic: {} for topic in self.complete}, **refill.offsets})
            return TableEntry(name, state=BEHIND, offsets=start, error=str(refill)), 0
        except Exception as error:
            failure = typed_failure(error, name)
            self.behind[name] = failure
            event(f"a table could not be written: {failure}", logging.WARNING, table=name, batch=batch.batch)
            last = self.writer.last_entries.get(name) or TableEntry(name)
            # Only the log may still have the table's own offsets: lower ones would read records twice.
            own = {topic: parts for topic, parts in last.offsets.items() if topic in batch.started_at}
            start = {**self.recovering.get(name, {}), **offsets.furthest(batch.started_at, own)}
            start = self.writer.routed(name, start)
            return replace(last.unchanged(), state=BEHIND, offsets=start, error=str(failure)[:2000]), 0

    def complete_through(self) -> datetime | None:
        """The time up to which all tables have every record; None if a table is behind, or records wait."""
        return None if self.behind or self.recovering else self._valid_through(self.complete)

    def recover_tables(self, tables: list[TableEntry], batch: LogEntry) -> list[TableEntry]:
        """Move the tables that an earlier run left behind forward; return the batch's entries with theirs."""
        entries = {entry.name: entry for entry in tables}
        for name in sorted(self.recovering.keys() - self.behind):
            last, left = self.writer.last_entries[name], self.recovering[name]
            # A batch without a record for the table leaves its snapshot as it is, so the entry still names it:
            # a rollback of the table is recognized by the snapshot that the log names.
            entry = entries.get(name) or last.unchanged()
            reached = self.writer.routed(name, offsets.furthest(left, last.offsets, batch.offsets))
            # A topic that this run does not read may be read again, so that what the table lacks of it is kept.
            complete = {topic: parts for topic, parts in self.complete.items() if topic in {**left, **batch.offsets}}
            complete = self.writer.routed(name, complete)
            lacking = [topic for topic, parts in complete.items() if not offsets.covers(reached, {topic: parts})]
            state, error = (BEHIND, f"lacks records of {', '.join(lacking)}") if lacking else (WRITTEN, "")
            entries[name] = replace(entry, state=state, offsets=reached, error=error)
            self.writer.last_entries[name] = entries[name]
            if not lacking:
                del self.recovering[name]
        return list(entries.values())

    def _valid_through(self, end: Offsets) -> datetime | None:
        """The time before the topics' ends were read, if the batch reaches all of them; else None."""
        now = datetime.now(UTC)
        names = self.topics.names() if self.config.topic_pattern else list(end)  # a new topic may match
        return now if offsets.covers(end, self.topics.latest(names)) else None
