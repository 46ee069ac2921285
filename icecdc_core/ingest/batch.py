"""Process one batch: decode it once, route it, write it into all its tables, and add it to the commit log."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

from icecdc_core.ingest import commit_log, offsets
from icecdc_core.ingest.commit_log import BEHIND, WRITTEN, LogEntry, TableEntry
from icecdc_core.ingest.config import quoted_table
from icecdc_core.ingest.decoding import decode_records
from icecdc_core.ingest.destinations import metadata_checks, payload_schema
from icecdc_core.ingest.formats.decode_results import json_field
from icecdc_core.ingest.formats.registry import RegisteredSchema
from icecdc_core.ingest.kafka import Topics, typed_failure
from icecdc_core.ingest.offsets import Offsets
from icecdc_core.ingest.offsets_reader import RefillError
from icecdc_core.ingest.publish import WAP_ID
from icecdc_core.ingest.routing import TABLE, route_records
from icecdc_core.ingest.rows import IS_VALID, ROW, needs_no_inference, parse_rows, parse_rows_only
from icecdc_core.ingest.start_offsets import with_new_topics
from icecdc_core.ingest.table import MicroBatch, TableRecords, Writer, needs_only_rows
from icecdc_core.logs import event
from icecdc_core.session.jvm import SPARK_HAS_ENDED, persisted, unpersist
from icecdc_core.session.spark import settings_unless_set
from icecdc_core.table.catalogs import load_table

if TYPE_CHECKING:
    from icecdc_core.ingest.config import IngestConfig


_RAW, _REASON, _NUMBER = "_icecdc_raw", "_icecdc_reason", "_icecdc_number"
_KAFKA = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
_OF_PAYLOAD = ("payload", "payload_type")
_AS_DECODED = (*_OF_PAYLOAD, "problem")
_MOST_TABLES = 2000
"""How many tables are compared. With more, loading their schemas would take longer than the shared parse saves."""


@dataclass(frozen=True)
class SharedParse:
    """Records of several tables, parsed once."""

    cached: DataFrame
    rows_of: Callable[[str], DataFrame]
    rows_only: bool
    schema: StructType
    counts: dict[str, int]
    other_counts: dict[str | None, int]
    others: DataFrame | None


@dataclass
class SharedParser:
    """Finds the tables with the same columns, once for a run, and parses their records together."""

    config: IngestConfig
    candidates: Iterable[str]
    _group: tuple[list[str], StructType] | None = None
    _is_searched: bool = False
    _try_rows_only: bool = True

    def parse(self, decoded: DataFrame) -> SharedParse | None:
        """Parse the records of the tables that have the same columns."""
        config = self.config
        if not needs_no_inference(config):
            return None
        if not self._is_searched:
            self._group, self._is_searched = self._largest_group(decoded.sparkSession), True
        if self._group is None:
            return None
        names, schema = self._group
        if self._try_rows_only and needs_only_rows(config) and _has_text_column(schema, config.route_field):
            shared = self._parse_rows_only(decoded, names, schema)
            if shared is not None:
                return shared
            # One record without a row in these tables is usually followed by others, so this run caches whole records.
            self._try_rows_only = False
        raw = F.struct(*(F.col(column) for column in _AS_DECODED))
        parsed = parse_rows(decoded.withColumn(_RAW, raw), schema, config).withColumnRenamed("problem", _REASON)
        parsed = parsed.withColumn("problem", F.col(_RAW)["problem"])
        every = self._compact(route_records(parsed, config, self._route_value(schema)), names)
        every, counts = cache_and_count(TABLE, every)
        within = {name: counts[name] for name in names if name in counts}
        other_counts = {name: count for name, count in counts.items() if name not in within}
        others = every.where(F.col(TABLE).isNull() | ~F.col(TABLE).isin(names))
        others = others.select(
            TABLE, *_KAFKA, "op", "before", *(F.col(_RAW)[column].alias(column) for column in _OF_PAYLOAD), "problem"
        )
        rows = every.drop(_RAW)
        return SharedParse(
            cached=every,
            rows_of=lambda name: rows.where(F.col(TABLE) == name).drop(TABLE),
            rows_only=False,
            schema=schema,
            counts=within,
            other_counts=other_counts,
            others=others if other_counts else None,
        )

    def _parse_rows_only(self, decoded: DataFrame, names: list[str], schema: StructType) -> SharedParse | None:
        """Cache rows only, which is fastest; None if a record is no row of these tables."""
        parsed = parse_rows_only(decoded, schema, self.config).withColumn(
            "problem", F.when(~F.col(IS_VALID), F.lit(""))
        )
        rows = route_records(parsed, self.config, F.col(ROW)[self.config.route_field])
        # A number is cheaper than a table name to cache, compare and count with every row.
        numbers = decoded.sparkSession.range(1).select(F.posexplode(F.array(*map(F.lit, names))).alias(_NUMBER, TABLE))
        numbered = rows.join(F.broadcast(numbers), TABLE, "left").select(_NUMBER, ROW)
        every, counts = cache_and_count(_NUMBER, numbered)
        if None in counts:
            every.unpersist()
            return None
        number_of = {name: number for number, name in enumerate(names)}
        return SharedParse(
            cached=every,
            rows_of=lambda name: every.where(F.col(_NUMBER) == number_of[name]).select(ROW),
            rows_only=True,
            schema=schema,
            counts={name: counts[number] for name, number in number_of.items() if number in counts},
            other_counts={},
            others=None,
        )

    def _route_value(self, schema: StructType) -> Column | None:
        """The route field: from the parsed row, else from the payload."""
        name = self.config.route_field
        if not name:
            return None
        in_payload = json_field(F.col(_RAW)["payload"], name)
        return F.coalesce(F.col(ROW)[name], in_payload) if _has_text_column(schema, name) else in_payload

    def _compact(self, rows: DataFrame, names: list[str]) -> DataFrame:
        """Drop what is no longer needed: the bytes of a record are cached only if it may become a dead letter."""
        within = F.coalesce(F.col(TABLE).isin(names), F.lit(False))
        fits = within & F.col(IS_VALID)
        # The reason is evaluated only for records that do not fit, as it is much slower than the check.
        problem = F.when(~fits, F.coalesce("problem", F.when(within, F.col(_REASON))))
        may_be_rejected = ~fits | (F.col("op") == "delete") | F.lit(self.config.mode == "upsert")
        columns = {column: F.col(column) for column in _KAFKA}
        for column in {"key", "value", "headers"} - set(self.config.metadata_columns):
            columns[column] = F.when(may_be_rejected, F.col(column))
        metadata = [value.alias(column) for column, value in columns.items()]
        raw = F.when(~within, F.col(_RAW)).alias(_RAW)
        validated = ("op", "before", problem.alias("problem"), fits.alias(IS_VALID))
        return rows.select(TABLE, *metadata, *validated, F.when(within, F.col(ROW)).alias(ROW), raw)

    def _largest_group(self, spark: SparkSession) -> tuple[list[str], StructType] | None:
        """Return the tables with the most common schema; None if no two have the same."""

        def schema(name: str) -> StructType | None:
            try:
                table = load_table(spark, name)
                # The shared parse validates the payload only.
                return None if metadata_checks(spark, table, self.config) else payload_schema(spark, table, self.config)
            except Exception:
                return None  # missing or broken; the writer reports it

        compared = list(self.candidates)[:_MOST_TABLES]
        with ThreadPoolExecutor(self.config.table_concurrency, "icecdc-ingest") as pool:
            pairs = zip(compared, pool.map(schema, compared), strict=True)
        schemas = {name: columns for name, columns in pairs if columns is not None}
        times = Counter(schema.json() for schema in schemas.values())
        if not times or times.most_common(1)[0][1] < 2:
            return None
        most = times.most_common(1)[0][0]
        names = [name for name, schema in schemas.items() if schema.json() == most]
        return names, schemas[names[0]]


def cache_and_count(column: str, records: DataFrame) -> tuple[DataFrame, dict[Any, int]]:
    """Cache records, sorted by a column so that reading one of its values skips the others, and count each value."""
    cached = records.sortWithinPartitions(column).persist()
    try:
        return cached, {row[column]: int(row["count"]) for row in cached.groupBy(column).count().collect()}
    except BaseException:
        unpersist(cached)
        raise


def _has_text_column(schema: StructType, route_field: str) -> bool:
    """Whether the route field is a text column, so that the parsed row has it."""
    return route_field in schema.names and isinstance(schema[route_field].dataType, StringType)


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
        if needs_no_inference(self.config):
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
        except Exception as error:
            failure = typed_failure(error, name, offsets.span(batch.start, batch.end))
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
        now = datetime.now(UTC)
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
