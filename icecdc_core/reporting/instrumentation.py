"""What leaves a run for the people who watch it: log, metrics, and a report also when it fails."""

from __future__ import annotations

import functools
import logging
import re
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from icecdc_core.columns import literal_names
from icecdc_core.errors import ConfigError, IcecdcError
from icecdc_core.logs import event, log_fields, logging_to
from icecdc_core.reporting.exit_states import EXIT_STATES, exit_code, state_of
from icecdc_core.reporting.metrics import check_folder, push_metrics, render, write_metrics
from icecdc_core.reporting.reports import Report, RunReport, check_report_path, write_report
from icecdc_core.secrets import shortened
from icecdc_core.session.catalog import require_catalog
from icecdc_core.session.compat import require_supported

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from icecdc_core.config.model import ParameterModel

R = TypeVar("R", bound=Report)
C = TypeVar("C", bound="ParameterModel")
_LONGEST_MESSAGE = 20_000
_REPORT = "icecdc_report"
_facts: ContextVar[dict[str, Any] | None] = ContextVar("icecdc_facts", default=None)
_COUNTS = (
    *("upserts", "deletes", "already_applied", "rejected", "snapshots", "missing", "extra", "stale", "repaired"),
    *("batches", "records", "rows_written", "dead_letters"),
)


def note(**facts: Any) -> None:
    """Remember something of the run that is under way, for its log and metrics, however it ends."""
    known = _facts.get()
    if known is not None:
        known.update(facts)


@contextmanager
def timed_stage(name: str, stage_seconds: dict[str, float]) -> Iterator[None]:
    """Time a stage of the run that is under way; its seconds are added to those of its name."""
    begin = time.monotonic()
    note(stage=name, stage_seconds=stage_seconds)
    try:
        with log_fields(stage=name):
            yield
    finally:
        seconds = round(time.monotonic() - begin, 3)
        stage_seconds[name] = round(stage_seconds.get(name, 0.0) + seconds, 3)
        event("stage ended", stage=name, seconds=seconds)


def run_id() -> str:
    """The id of the run that is under way; a new one outside of any."""
    known = _facts.get()
    return str(known["run_id"]) if known else uuid.uuid4().hex


def observed(job: str) -> Callable[[Callable[[SparkSession, C], R]], Callable[[SparkSession, C], R]]:
    """Let a job leave log, metrics and, when it fails, a report of the failure at `report_path`.

    Args:
        job: Its name in all of them.
    """

    def decorate(
        work: Callable[[SparkSession, C], R],
    ) -> Callable[[SparkSession, C], R]:
        @functools.wraps(work)
        def run(spark: SparkSession, config: C) -> R:
            facts = {"job": job, **config.subject, "run_id": uuid.uuid4().hex}
            token = _facts.set({**facts, "stage": "start"})
            try:
                with logging_to(config.log_path), log_fields(**facts):
                    return _watched(work, spark, config)
            finally:
                _facts.reset(token)

        return run

    return decorate


def failure_report(error: BaseException, facts: dict[str, Any]) -> dict[str, Any]:
    """What a scheduler is told of a run that failed."""
    state = state_of(error)
    told = {name: facts.get(name) for name in ("job", "table", "index", "run_id", "seconds", "stage")}
    text = shortened(str(error), _LONGEST_MESSAGE) if isinstance(error, IcecdcError) else type(error).__name__
    # Of several problems each names its own remedy, and what an executor raised comes home as a text.
    remedies = re.findall(r"Remedy: (.*?)\.?$", text, re.MULTILINE)
    return {
        **told,
        "state": state,
        "exit_code": exit_code(state),
        "error": type(error).__name__,
        "message": text,
        "remedy": getattr(error, "remedy", "") or "; ".join(remedies) or EXIT_STATES[state].action,
    }


def failure_of(error: BaseException) -> dict[str, Any] | None:
    """The report of the job that this error ended; None where no job had begun."""
    report: dict[str, Any] | None = getattr(error, _REPORT, None)
    return report


def _watched(
    work: Callable[[SparkSession, C], R],
    spark: SparkSession,
    config: C,
) -> R:
    facts = _facts.get() or {}
    begin = time.monotonic()
    event("run started")
    try:
        check_report_path(config.report_path)
        if config.metrics_folder:
            check_folder(config.metrics_folder)
        require_supported(spark)
        require_catalog(spark, config)
        with literal_names(spark):
            report = work(spark, config)
    except BaseException as error:
        facts["seconds"] = round(time.monotonic() - begin, 3)
        facts["state"] = state_of(error)
        told = failure_report(error, facts)
        setattr(error, _REPORT, told)
        shown = {name: told[name] for name in ("state", "exit_code", "error", "seconds", "stage")}
        event(f"run failed: {told['message']}", logging.ERROR, **shown)
        if config.report_path:
            try:
                write_report(told, config.report_path)
            except ConfigError as unwritable:  # must not hide why the run failed
                event(str(unwritable), logging.WARNING)
        _publish(config, facts)
        raise
    found = {name: facts[name] for name in ("lag_snapshots", "lag_seconds") if name in facts}
    if isinstance(report, RunReport):
        report = replace(report, **found)
    facts.update(report.to_dict())
    counts = {name: facts[name] for name in _COUNTS if name in facts}
    event("run ended", state=facts["state"], seconds=facts["seconds"], **counts)
    _publish(config, facts)
    return report


def _publish(config: ParameterModel, facts: dict[str, Any]) -> None:
    if not (config.metrics_folder or config.metrics_url):
        return
    # The work is done, or has failed for a reason of its own: trouble here is told, and changes neither.
    text = render(facts, time.time())
    problems = []
    if config.metrics_folder:
        problems.append(write_metrics(text, config.metrics_folder, facts["job"], facts["index"]))
    if config.metrics_url:
        problems.append(push_metrics(text, config.metrics_url, facts["job"], facts["index"]))
    for problem in filter(None, problems):
        event(f"the metrics were not published: {problem}", logging.WARNING)
