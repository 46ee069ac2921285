"""The instrumentation of a run: its id, clock and facts, and the log, metrics and failure report that it leaves."""

import logging
import time
import traceback
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from pyspark.sql import SparkSession

from icecdc_core.changes.steps import snapshots_between
from icecdc_core.config.model import ParameterModel
from icecdc_core.errors import CARD, ConfigError, IcecdcError, shorten
from icecdc_core.logs import event, log_fields, logging_to
from icecdc_core.reporting.card import card_html, failure_card
from icecdc_core.reporting.exit_states import LONGEST_MESSAGE, REPORT, failure_report, state_of, utc_now
from icecdc_core.reporting.lineage import send_lineage
from icecdc_core.reporting.metrics import RunMetrics
from icecdc_core.reporting.progress import activity
from icecdc_core.reporting.reports import Report, RunReport, check_report_path, write_report
from icecdc_core.reporting.telemetry import orchestrator, publish_run_metrics, span, trace_of_run
from icecdc_core.secrets import mask_secrets
from icecdc_core.session.catalog import require_catalog
from icecdc_core.session.job_session import job_session
from icecdc_core.table.snapshots import rows_added, rows_removed
from icecdc_core.table.source import Source

C = TypeVar("C", bound=ParameterModel)
R = TypeVar("R", bound=Report)


class JobRun(Generic[C]):
    """One run of a job, for a ``with``; it leaves its metrics, and its report at ``report_path``."""

    opened_source: Source | None = None

    def __init__(self, job: str, spark: SparkSession, config: C, clock: Callable[[], float] = time.monotonic) -> None:
        self.job = job
        self.spark = spark
        self.config = config
        self.run_id = uuid.uuid4().hex
        self.stage_seconds: dict[str, float] = {}
        self._identity = {"job": job, **config.subject, "run_id": self.run_id}
        self._facts: dict[str, Any] = {**self._identity, "stage": "start"}
        self._finished: Report | None = None
        self._clock = clock
        self._started_at, self._began_at = clock(), utc_now()
        self._resources = ExitStack()
        self.is_endless = getattr(config, "trigger", "") == "continuous"
        self._traced: dict[str, Any] = {}
        self._trace: Any = None

    def __enter__(self) -> Self:
        self._resources.enter_context(logging_to(self.config.log_path))
        self._resources.enter_context(log_fields(**self._identity))
        attributes = {f"icecdc.{name}": value for name, value in self._identity.items()}
        self._traced = self._resources.enter_context(span(f"icecdc {self.job}", attributes, orchestrator()))
        self._trace = trace_of_run()
        event("run started")
        try:
            check_report_path(self.config.report_path)
            self.spark = self._resources.enter_context(job_session(self.spark))
            require_catalog(self.spark, self.config)
            self._open()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is not None:
                self.note(seconds=self.seconds, state=state_of(error))
                report = failure_report(error, self._facts)
                setattr(error, REPORT, report)
                setattr(error, CARD, card_html(failure_card(report)))
                logged = {name: report[name] for name in ("state", "exit_code", "error", "seconds", "stage")}
                # A notebook does not show it. The event has the message already, which can be long.
                shown = "".join(traceback.format_exception(error))
                if isinstance(error, IcecdcError) and str(error):
                    shown = shown.replace(str(error), "(see message)")
                logged["traceback"] = shorten(mask_secrets(shown), LONGEST_MESSAGE)
                event(f"run failed: {report['message']}", logging.ERROR, **logged)
                leave_report(report, self.config)
            elif self._finished is not None:
                # The report of an ingest has its name as the job.
                self._facts.update({**self._finished.to_dict(), **self._identity})
                counts = {name: value for name, value in self._facts.items() if type(value) is int}
                event("run ended", state=self._facts["state"], seconds=self._facts["seconds"], **counts)
                leave_report(self._finished, self.config)
            self._traced.update(self._facts)
            if error is not None or self._finished is not None:
                publish_run_metrics(RunMetrics(self._facts, time.time()), self.config)
            send_lineage(self.config, self.opened_source, self._began_at, self._facts, error)
        finally:
            self._resources.__exit__(kind, error, trace)

    def _open(self) -> None:
        """Open what the job needs; what fails here is reported like any other failure of the run."""

    def note(self, **facts: Any) -> None:
        self._facts.update(facts)

    def finish(self, report: R) -> R:
        if isinstance(report, RunReport):
            known: dict[str, Any] = {
                name: self._facts[name] for name in ("lag_snapshots", "lag_seconds") if name in self._facts
            }
            known |= {"seconds": self.seconds, "stage_seconds": self.stage_seconds}
            if known.get("lag_snapshots") and "lag_read_at" in self._facts and not report.dry_run:
                waited = self.seconds - self._facts["lag_read_at"]
                known["worst_lag_seconds"] = round((known["lag_seconds"] or 0.0) + waited, 3)
            if self.opened_source is not None and report.snapshots and "export" not in report.strategy:
                metadata, end = self.opened_source.metadata, report.to_snapshot_id
                path = () if end is None else snapshots_between(metadata, report.from_snapshot_id, end) or ()
                # A compaction changes no row.
                read = [metadata.by_id[each] for each in path if metadata.by_id[each].operation != "replace"]
                known["rows_rewritten"] = sum(rows_added(each) + rows_removed(each) for each in read)
            report = replace(report, **known)
        self._finished = report
        return report

    @property
    def seconds(self) -> float:
        return round(self._clock() - self._started_at, 3)

    @contextmanager
    def stage(self, name: str, doing: Callable[[], str] | None = None) -> Iterator[None]:
        """Time a stage, and show on a terminal what it does; its seconds are added to earlier ones of that name."""
        begin = self._clock()
        self.note(stage=name, stage_seconds=self.stage_seconds)
        with log_fields(stage=name):
            try:
                with span(name), activity(lambda: f"{self.config.subject['index']}: {doing() if doing else name}"):
                    yield
            finally:
                seconds = round(self._clock() - begin, 3)
                self.stage_seconds[name] = round(self.stage_seconds.get(name, 0.0) + seconds, 3)
                event("stage ended", stage=name, seconds=seconds)

    @contextmanager
    def batch(self, number: int) -> Iterator[dict[str, Any]]:
        """Trace a batch of an ingest, in a thread of Spark; yields a mapping for what it wrote."""
        attributes = {"icecdc.batch": number, "icecdc.run_id": self.run_id}
        # In a run without a natural end it is a trace of its own.
        with span("batch", attributes, None if self.is_endless else self._trace) as facts:
            yield facts


def leave_report(report: Report | Mapping[str, Any], config: ParameterModel) -> None:
    """Write the report to ``report_path``; a problem there is logged and does not change how the run ended."""
    if config.report_path:
        try:
            write_report(report, config.report_path)
        except ConfigError as unwritable:
            event(str(unwritable), logging.WARNING)
