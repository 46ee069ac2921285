"""One run of the ingest: find the start, stream batch after batch into the tables, compact, report."""

import logging
import math
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from icecdc_core.errors import IcecdcError, LostOffsetsError, SparkJobError
from icecdc_core.ingest import commit_log, offsets, start_offsets
from icecdc_core.ingest.batch import Batches, SharedParse
from icecdc_core.ingest.checks import check_queries
from icecdc_core.ingest.commit_log import BEHIND, LogEntry, LoggedJob
from icecdc_core.ingest.config import IngestConfig
from icecdc_core.ingest.dead_letters import DeadLetters, judged_before
from icecdc_core.ingest.decoding import check_expressions, routed_topics
from icecdc_core.ingest.destinations import create_namespace
from icecdc_core.ingest.expressions import Expressions, used_expressions
from icecdc_core.ingest.formats.schemas import RegisteredSchema
from icecdc_core.ingest.kafka import Topics, run_stream, typed_stream_failure
from icecdc_core.ingest.offsets import Offsets
from icecdc_core.ingest.replay import replay_dead_letters
from icecdc_core.ingest.report import COUNTS, IngestReport, add_entry
from icecdc_core.ingest.status import measure
from icecdc_core.ingest.table import Writer
from icecdc_core.ingest.upkeep import failures_logged, rewrite_small_files
from icecdc_core.logs import event
from icecdc_core.reporting import telemetry
from icecdc_core.reporting.instrumentation import JobRun
from icecdc_core.reporting.metrics import RunMetrics
from icecdc_core.session.jvm import has_ended, java_ended
from icecdc_core.session.processes import StopRequest, stop_on_sigterm

SECONDS_BETWEEN = 15.0  # a continuous run publishes its metrics so often
# Seconds until a continuous run retries the tables that are behind; doubled after each failure.
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 300.0
_MOST_LOSSES_IN_A_ROW = 5


class IngestRun(JobRun[IngestConfig]):
    def __init__(self, spark: SparkSession, config: IngestConfig, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__("ingest", spark, config, clock)
        self.batches = 0
        self.counts: dict[str, Any] = {**dict.fromkeys(COUNTS, 0), "tables": {}}
        self.valid_through: datetime | None = None
        self.lost: list[dict[str, Any]] = []
        self.stop = StopRequest()
        self._routed = routed_topics(spark, config)
        self._known_schemas: dict[int, RegisteredSchema] = {}
        self._expressions: Expressions | None = None
        self._progress_due = clock()
        self._limit = config.max_seconds if config.trigger == "continuous" and config.max_seconds else math.inf

    def run(self) -> IngestReport:
        try:
            with stop_on_sigterm() as self.stop:
                check_expressions(self.spark, self.config)
                self._expressions = used_expressions(self.spark, self.config)
                if self._expressions:
                    self._expressions.check(self.spark)
                check_queries(self.spark, self.config)
                with closing(Topics(self.spark, self.config)) as topics:
                    with self.stage("check"):
                        create_namespace(self.spark, self.config.quoted_namespace)
                        commit_log.create(self.spark, self.config.quoted_commit_log)
                    run = self._replay if self.config.replay_dead_letters else self._run_streams
                    stream_start, batches = run(topics)
                return self._report(stream_start, batches)
        except Exception as error:
            # Whatever was raised: without Java every error is one of its ends, and most do not say so.
            if not has_ended(self.spark):
                raise
            raise java_ended(SparkJobError, error) from error

    def _replay(self, topics: Topics) -> tuple[start_offsets.StreamStart, Batches]:
        """Replay dead letters; they are read from their table, and no offset moves."""
        nothing = start_offsets.StreamStart(self.config.topics, {})
        logged = commit_log.read(self.spark, self.config.quoted_commit_log, self.config.job)
        batches = self._new_batches(topics, replace(nothing, topics=[]), logged)
        with self.stage("batches"):
            entry, self.counts["failed_again"] = replay_dead_letters(self.spark, batches)
        add_entry(self.counts, entry)
        return nothing, replace(batches, recovering={})

    def _run_streams(self, topics: Topics) -> tuple[start_offsets.StreamStart, Batches]:
        """Run stream after stream: a new one to refill tables, after lost records, and to retry tables behind."""
        # No library for this loop: each stream starts from a new plan, and most of them follow a success.
        pause, losses_in_a_row = FIRST_PAUSE, 0
        while True:
            planned_at = datetime.now(UTC)
            with self.stage("plan"):
                logged = commit_log.read(self.spark, self.config.quoted_commit_log, self.config.job)
                recorded = {} if logged.exists else start_offsets.recorded_offsets(self.spark, self.config)
                stream_start = start_offsets.find_start(topics, self.config, logged, recorded, self._routed)
                self._log_start(stream_start, logged)
                logged = replace(logged, tables={**logged.tables, **stream_start.given_up})
            batches = self._new_batches(topics, stream_start, logged)
            try:
                with self.stage("batches"):
                    self._stream(stream_start, batches, pause)
            except LostOffsetsError:
                losses_in_a_row = 1 if batches.last else losses_in_a_row + 1
                if self.config.on_lost_offsets == "fail" or losses_in_a_row > _MOST_LOSSES_IN_A_ROW:
                    raise
                continue
            losses_in_a_row = 0
            complete_at = planned_at if stream_start.is_at_end and not logged.behind else None
            if (through := batches.last.valid_through if batches.last else complete_at) is not None:
                self.note(complete_through=through.timestamp())
            failures = batches.behind.values()
            is_refilling = failures and all(isinstance(error, start_offsets.RefillError) for error in failures)
            is_done = self.config.trigger == "available_now" and not is_refilling
            if self.stop.requested or self.seconds > self._limit or is_done:
                self.note(**self._lags(topics))
                return stream_start, batches
            pause = min(LONGEST_PAUSE, 2 * pause) if batches.behind else FIRST_PAUSE

    def _stream(self, stream_start: start_offsets.StreamStart, batches: Batches, pause: float) -> None:
        available_now = self.config.trigger == "available_now"
        complete = {topic: parts for topic, parts in batches.complete.items() if topic in stream_start.topics}
        # The pause counts from where new records begin: a broken table must not keep the others from these.
        retry_at = self._clock() + pause if offsets.covers(stream_start.start, complete) else math.inf

        def should_end() -> bool:
            # A scheduled run reads on for the other tables; the next run retries those that are behind.
            retry = not available_now and batches.behind and self._clock() > retry_at
            if not available_now:
                self._publish_progress(batches)
            return self.stop.requested or self.seconds > self._limit or bool(retry)

        def process(records: DataFrame, start: Offsets, end: Offsets) -> None:
            nonlocal retry_at
            with self.batch(batches.number) as written:
                entry = batches.process(records, start, end)
                for counts in (self.counts, written):
                    add_entry(counts, entry)
                if batches.is_cut_off:
                    return
                self.batches += 1
                self.valid_through = entry.valid_through
            if retry_at == math.inf and offsets.covers(end, complete):
                retry_at = self._clock() + pause

        if stream_start.is_at_end and available_now:
            return
        try:
            run_stream(self.spark, self.config, stream_start.topics, stream_start.start, process, should_end)
        except (PySparkException, Py4JError) as error:
            typed = typed_stream_failure(error, self.config.bootstrap_servers)
            if typed is None:
                raise
            raise typed from error

    def _publish_progress(self, batches: Batches) -> None:
        """Publish the metrics if it is time; never while a batch runs, because Kafka is asked for the topics' ends."""
        config = self.config
        if not self._has_metrics or self._clock() < self._progress_due:
            return
        self._progress_due = self._clock() + SECONDS_BETWEEN
        facts = {**self.counts, "tables_behind": len({*batches.behind, *batches.recovering})}
        with suppress(IcecdcError):  # a batch will say what is wrong with Kafka
            if (through := batches.complete_through()) is not None:
                facts["complete_through"] = through.timestamp()
        facts |= self._lags(batches.topics)
        telemetry.publish_run_metrics(RunMetrics({**facts, "job": "ingest", **config.subject}), config)

    @property
    def _has_metrics(self) -> bool:
        return bool(self.config.metrics_folder or self.config.metrics_url or telemetry.is_loaded())

    def _lags(self, topics: Topics) -> dict[str, Any]:
        """What the topics have that the tables lack, for the metrics."""
        with suppress(IcecdcError):
            if self._has_metrics:
                logged = commit_log.read(self.spark, self.config.quoted_commit_log, self.config.job)
                partitions, tables = measure(topics, logged, self._routed, seconds=1.0)
                return {"partition_lags": partitions, "table_lags": tables}
        return {}

    def _log_start(self, stream_start: start_offsets.StreamStart, logged: LoggedJob) -> None:
        self.note(topics=stream_start.topics)
        self.lost += stream_start.lost
        for name, error in stream_start.cut_off.items():
            event(f"a table could not be written: {error}", logging.WARNING, table=name)
        if logged.exists and not stream_start.lost:
            return
        entry = LogEntry(
            job=self.config.job,
            batch=logged.batch,
            run_id=self.run_id,
            kind="lost" if logged.exists else "start",
            offsets=offsets.furthest(logged.offsets, stream_start.start),
            topic_ids=stream_start.topic_ids,
            lost=str(stream_start.lost) if stream_start.lost else "",
            tables=list(stream_start.given_up.values()),
        )
        commit_log.write(self.spark, self.config.quoted_commit_log, entry)
        if stream_start.lost:
            event("records were lost before they were read", logging.WARNING, lost=stream_start.lost)

    def _new_batches(self, topics: Topics, stream_start: start_offsets.StreamStart, logged: LoggedJob) -> Batches:
        config = self.config
        by_name = config.route_by in ("field", "topic", "expression")
        any_case = by_name and start_offsets.ignores_case(self.spark, config)
        earliest = topics.earliest(stream_start.topics)
        judged = offsets.furthest(logged.offsets, judged_before(self.spark, config))
        return Batches(
            config,
            self.run_id,
            topics,
            Writer(config, DeadLetters(config, self.run_id, judged), logged.tables, earliest, routed=self._routed),
            SharedParse(config, start_offsets.known_tables(self.spark, config, logged), any_case),
            number=logged.batch + 1,
            complete=logged.offsets,
            recovering=logged.behind,
            topic_ids=stream_start.topic_ids,
            expressions=self._expressions,
            known_schemas=self._known_schemas,
            behind=dict(stream_start.cut_off),
            stop=self.stop,
        )

    def _report(self, stream_start: start_offsets.StreamStart, batches: Batches) -> IngestReport:
        """Compact the tables, then report. Raises the error of a table if none was written."""
        tables, compacted = self.counts["tables"], list[str]()
        own = {name: self.config.for_table(name) for name, total in sorted(tables.items()) if total["files"]}
        if any(each.compact_min_files for each in own.values()) and not self.stop.requested:
            with self.stage("compact"):
                for name, each in own.items():
                    with failures_logged("the table was not compacted", name):
                        least = each.compact_min_files
                        if least and rewrite_small_files(self.spark, name, least, each.branch):
                            compacted.append(name)
        # A table that was behind before the first batch has no entry.
        lacking = {name: batches.writer.last_entries[name].error for name in batches.recovering}
        for name, error in {**lacking, **batches.behind}.items():
            lacks = {"rows": 0, "deletes": 0, "files": 0, "valid_through": "", "state": BEHIND, "snapshot_id": None}
            tables.setdefault(name, {**lacks, "error": str(error)})
        behind = sorted(name for name, total in tables.items() if total["state"] == BEHIND)
        if batches.behind and len(behind) == len(tables):
            raise next(iter(batches.behind.values()))
        return IngestReport(
            job=self.config.job,
            topics=stream_start.topics,
            batches=self.batches,
            **self.counts,
            behind=behind,
            lost=self.lost,
            compacted=compacted,
            offsets=batches.last.offsets if batches.last else stream_start.start,
            valid_through=self.valid_through.isoformat() if self.valid_through else "",
            seconds=self.seconds,
            stage_seconds=self.stage_seconds,
            run_id=self.run_id,
            stopped=self.stop.requested,
        )
