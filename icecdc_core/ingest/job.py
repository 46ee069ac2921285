"""The ingest: from Kafka into Iceberg tables, every record exactly once."""

from __future__ import annotations

import logging
import time
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from icecdc_core.columns import quoted
from icecdc_core.errors import LostOffsetsError, TableNotFoundError
from icecdc_core.ingest.batches import Batches
from icecdc_core.ingest.config import IngestConfig
from icecdc_core.ingest.failures import typed_stream_failure
from icecdc_core.ingest.kafka import offsets
from icecdc_core.ingest.kafka.offsets import Offsets
from icecdc_core.ingest.kafka.stream import run_stream
from icecdc_core.ingest.kafka.topics import Topics
from icecdc_core.ingest.parameters import quoted_table
from icecdc_core.ingest.report import IngestReport
from icecdc_core.ingest.routing import check_expressions
from icecdc_core.ingest.shared_parse import Sharing
from icecdc_core.ingest.start_offsets import Plan, make_plan
from icecdc_core.ingest.tables import commit_log
from icecdc_core.ingest.tables.commit_log import BEHIND, Known, LogEntry
from icecdc_core.ingest.tables.compaction import compact
from icecdc_core.ingest.tables.dead_letters import DeadLetters
from icecdc_core.ingest.tables.destinations import create_namespace
from icecdc_core.ingest.tables.table_offsets import find_mark
from icecdc_core.ingest.tables.table_resets import Marks
from icecdc_core.ingest.tables.writer import Writer
from icecdc_core.logs import event
from icecdc_core.reporting.instrumentation import JobRun
from icecdc_core.session.shutdown import Stop, stop_on_sigterm
from icecdc_core.table.catalogs import load_table

_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 300.0


class IngestRun(JobRun[IngestConfig]):
    """One run of an ingest.

    Args:
        spark: A session with Kafka's connector and the tables' catalog.
        config: The job's parameters.
    """

    def __init__(self, spark: SparkSession, config: IngestConfig) -> None:
        super().__init__("ingest", spark, config)
        self.entries: list[LogEntry] = []
        self.lost: list[dict[str, Any]] = []
        self.done: Offsets = {}
        self.compacted: list[str] = []
        self.failed: dict[str, Exception] = {}
        self.topic_names: list[str] = []
        self.stop = Stop()

    def run(self) -> IngestReport:
        """Read what there is, or go on until the time is over or SIGTERM comes; returns what was done."""
        with stop_on_sigterm() as self.stop:
            return self._run()

    def _run(self) -> IngestReport:
        check_expressions(self.spark, self.config)
        topics = Topics(self.spark, self.config)
        try:
            with self.stage("check"):
                create_namespace(self.spark, self.config.namespace_parts)
                commit_log.create(self.spark, self.config.quoted_commit_log)
            self._rounds(topics)
        finally:
            topics.close()
        written = {table.name for entry in self.entries for table in entry.tables if table.files}
        if self.config.compact_min_files and written and not self.stop.requested:
            with self.stage("compact"):
                self.compacted = compact(self.spark, sorted(written), self.config.compact_min_files)
        report = self._report()
        if self.failed and not any(told["state"] != BEHIND for told in report.tables.values()):
            raise next(iter(self.failed.values()))
        return report

    def _rounds(self, topics: Topics) -> None:
        """Stream after stream: another one for tables to be refilled, for lost records, and after a failure."""
        pause, lost_again = _FIRST_PAUSE, 0
        while True:
            with self.stage("plan"):
                known = commit_log.read(self.spark, self.config.quoted_commit_log, self.config.job)
                plan = make_plan(topics, self.config, known, [] if known.exists else self._marked())
                self._begin(plan, known)
            batches = self._batches(topics, plan, known)
            retry_at = time.monotonic() + pause
            try:
                with self.stage("batches"):
                    self._stream(plan, batches, retry_at)
            except LostOffsetsError:
                lost_again += 1
                if self.config.on_lost_offsets == "fail" or lost_again > 5:
                    raise
                continue
            finally:
                self.entries += batches.entries
                self.done = batches.entries[-1].offsets if batches.entries else plan.start
            self.failed = batches.behind
            if self.stop.requested:
                return
            if self.config.trigger == "available_now":
                if set(batches.behind) - batches.refills or not batches.refills:
                    return
            elif self._time_is_over():
                return
            else:
                pause = min(_LONGEST_PAUSE, 2 * pause) if batches.behind else _FIRST_PAUSE

    def _stream(self, plan: Plan, batches: Batches, retry_at: float) -> None:
        available_now = self.config.trigger == "available_now"

        def should_end() -> bool:
            # A run of a schedule takes all there is for the other tables; the next one sees to those left behind.
            again = not available_now and batches.behind and time.monotonic() > retry_at
            return self.stop.requested or self._time_is_over() or bool(again)

        if plan.is_empty and available_now:
            return
        try:
            run_stream(self.spark, self.config, plan.topics, plan.start, batches.work, should_end)
        except (PySparkException, Py4JError) as error:
            typed = typed_stream_failure(error, self.config.bootstrap_servers)
            if typed is None:
                raise
            raise typed from error

    def _begin(self, plan: Plan, known: Known) -> None:
        """Write down where the job starts, and what it passes by, before it does."""
        self.topic_names = plan.topics
        self.lost += plan.lost
        if known.exists and not plan.lost:
            return
        kind = "lost" if known.exists else "start"
        entry = LogEntry(
            self.config.job,
            known.batch,
            self.run_id,
            kind,
            offsets.furthest(known.offsets, plan.start) if known.exists else plan.start,
            topic_ids=plan.topic_ids,
            lost=str(plan.lost) if plan.lost else "",
        )
        commit_log.write(self.spark, self.config.quoted_commit_log, entry)
        if plan.lost:
            event("records were lost before they were read", logging.WARNING, lost=plan.lost)

    def _batches(self, topics: Topics, plan: Plan, known: Known) -> Batches:
        earliest = topics.earliest(plan.topics)
        writer = Writer(self.config, DeadLetters(self.config, self.run_id), Marks(self.config, known.tables, earliest))
        return Batches(
            self.config,
            self.run_id,
            topics,
            writer,
            Sharing(self.config, self._destinations(known)),
            number=known.batch + 1,
            complete=known.offsets,
            recovering=set(known.behind),
            topic_ids=plan.topic_ids,
        )

    def _marked(self) -> list[Offsets]:
        """What tables have of this job though the log knows nothing of it: somebody removed the log."""
        found = []
        for name in self._destinations(Known()):
            try:
                found.append(find_mark(load_table(self.spark, name), self.config.job).offsets)
            except TableNotFoundError:
                found.append({})
        # Any mark means that the job ran: then a table without one may lack everything since the beginning.
        return found if any(found) else []

    def _destinations(self, known: Known) -> list[str]:
        """Tables that records may go to, as far as they are known before any was read."""
        if self.config.route_by == "table":
            return [quoted_table(self.config.table)]
        if self.config.route_by == "regex":
            return [quoted_table(table) for table in self.config.routes]
        listed = self.spark.sql(f"SHOW TABLES IN {self.config.quoted_namespace}").collect()
        there = (f"{self.config.quoted_namespace}.{quoted(row['tableName'])}" for row in listed)
        own = {self.config.quoted_commit_log, self.config.quoted_dead_letters}
        return sorted({*known.tables, *there} - own)

    def _time_is_over(self) -> bool:
        limit = self.config.max_seconds
        return self.config.trigger == "continuous" and bool(limit) and self.seconds > limit

    def _report(self) -> IngestReport:
        tables: dict[str, dict[str, Any]] = {}
        for entry in self.entries:
            for each in entry.tables:
                total = tables.setdefault(each.name, {"rows": 0, "deletes": 0, "files": 0})
                for count in ("rows", "deletes", "files"):
                    total[count] += getattr(each, count)
                total |= {"state": each.state, "snapshot_id": each.snapshot_id, "error": each.error}
        batches = [entry for entry in self.entries if entry.kind == "batch"]
        last = batches[-1].valid_through if batches else None
        return IngestReport(
            job=self.config.job,
            topics=self.topic_names,
            batches=len(batches),
            records=sum(entry.records for entry in batches),
            rows_written=sum(total["rows"] for total in tables.values()),
            deletes=sum(total["deletes"] for total in tables.values()),
            dead_letters=sum(entry.dead_letters for entry in batches),
            files=sum(total["files"] for total in tables.values()),
            tables=tables,
            behind=sorted(name for name, total in tables.items() if total["state"] == BEHIND),
            lost=self.lost,
            compacted=self.compacted,
            offsets=self.done,
            valid_through=last.isoformat() if last else "",
            seconds=self.seconds,
            stage_seconds=self.stage_seconds,
            run_id=self.run_id,
            stopped=self.stop.requested,
        )
