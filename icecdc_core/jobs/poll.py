"""Polling: sync again and again; between two polls it keeps only the Spark session open."""

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from itertools import count

from pyspark.sql import SparkSession

from icecdc_core.config import SyncConfig
from icecdc_core.errors import IcecdcError, SparkJobError
from icecdc_core.jobs.sync import sync_changes
from icecdc_core.jobs.validate import validate_table
from icecdc_core.logs import event, log_fields, logging_to
from icecdc_core.reporting.exit_states import failure_report, state_of
from icecdc_core.reporting.instrumentation import leave_report
from icecdc_core.reporting.metrics import RunMetrics
from icecdc_core.reporting.progress import activity, print_line
from icecdc_core.reporting.reports import RunReport, ValidationReport
from icecdc_core.reporting.telemetry import publish_run_metrics
from icecdc_core.session.jvm import has_ended
from icecdc_core.session.processes import Stopped, stop_on_sigterm

_REMEMBERED_SYNCS = 5
# The last steps and refused documents that the report of a run has, which may poll for months.
_KEPT = 100
_AUDITED = "parts", "differences"
_MARGIN = 1.25
_SHORTEST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_REPEATED_STATES = ("retry", "locked")
_SINGLE_SYNC = "the run polls once: set max_polls (0: no limit)"
_NO_PAUSE = "max_polls takes effect only with poll_interval_seconds or target_lag: this was a single sync"


Sync = Callable[[SparkSession, SyncConfig], RunReport]


def audited(
    sync: Sync = sync_changes,
    validate: Callable[[SparkSession, SyncConfig], ValidationReport] = validate_table,
    clock: Callable[[], float] = time.monotonic,
) -> Sync:
    """Return a sync that also compares the next parts of the index, on average for `audit_seconds` after each poll."""
    left = took = 0.0

    def sync_and_audit(spark: SparkSession, config: SyncConfig) -> RunReport:
        nonlocal left, took
        report, budget = sync(spark, config), config.audit_seconds
        if config.dry_run or not budget:
            return report
        parts, differences, failure = 0, 0, ""
        own = config.replace(part="auto", repair=False, report_path="")
        # A part that takes longer than a budget uses up those of later polls.
        left = min(left, 0.0) + budget
        while left > 0 and left >= min(took, budget) and not failure:
            began = clock()
            try:
                differences += validate(spark, own).differences
                parts += 1
            except Exception as error:  # the sync did not fail
                failure = str(failure_report(error, {})["message"])
                print_line(f"the audit failed: {failure} ({config.index})")
            took = clock() - began
            left -= took
        return replace(report, audit={"parts": parts, "differences": differences, "failure": failure})

    return sync_and_audit


class PollInterval:
    """The interval between the polls of one run, from the end of one to the start of the next."""

    def __init__(self, target_lag: float, longest_pause: float = 0.0) -> None:
        self.target_lag = target_lag
        self.seconds_kept = self.seconds_missed = 0.0
        self._longest_pause = longest_pause
        self._syncs: deque[float] = deque(maxlen=_REMEMBERED_SYNCS)
        self._last: tuple[float, float] | None = None
        self._keeps = True

    def poll_ended(self, began: float, ended: float, lag: float | None) -> tuple[float | None, bool | None, bool]:
        """Return the lag that counts after a poll, whether the target was kept, and whether that is new."""
        last, self._last = self._last, (began, ended)
        took = ended - began
        if last is None:
            # A first poll that works off a backlog says little about the next ones.
            if lag is not None:
                self._syncs.append(min(took, self.target_lag / 2))
            return None, None, False
        if lag is not None:
            self._syncs.append(took)
            lag = round(min(lag, ended - last[0]), 3)
        if not self.target_lag:
            return lag, None, False
        elapsed = ended - last[1]
        missed = min(max(0.0, (lag or 0.0) - self.target_lag), elapsed)
        self.seconds_missed += missed
        self.seconds_kept += elapsed - missed
        # A poll without commits does not show that the next sync is fast enough, only that a slow one would be late.
        late = took > self.target_lag or (lag is not None and lag > self.target_lag)
        kept = False if late else None if lag is None else True
        is_new = kept is not None and kept != self._keeps
        self._keeps = self._keeps if kept is None else kept
        return lag, kept, is_new

    @property
    def pause(self) -> float:
        if not self.target_lag or self._last is None:
            return self._longest_pause
        took = self._last[1] - self._last[0]
        expected = max([*self._syncs, took]) * _MARGIN if self._syncs else max(self.target_lag / 2, took)
        shortest = min(_SHORTEST_PAUSE, self.target_lag / 10)
        pause = max(shortest, self.target_lag - took - expected)
        return min(pause, self._longest_pause) if self._longest_pause else pause


def follow_changes(
    spark: SparkSession,
    config: SyncConfig,
    *,
    sync: Sync | None = None,
    sleep: Callable[[float], object] | None = None,
    clock: Callable[[], float] = time.monotonic,
    on_poll: Callable[[RunReport], object] | None = None,
    on_failure: Callable[[IcecdcError], object] | None = None,
) -> RunReport:
    """Sync once, or again and again until ``max_polls`` are done (0: no limit); return one report on all polls.

    The run goes on after a poll that ends in state ``retry`` or ``locked``, unless it was the last one or Spark's Java
    process has ended; other failures end it. With ``report_path`` the report so far is written after every poll.
    SIGTERM ends the run after the current poll, or at once while it waits for the next one.
    """
    sync = sync or audited()
    limit = config.max_polls if config.polls else 1
    hints = [_SINGLE_SYNC] if config.polls and "max_polls" not in config.model_fields_set else []
    hints += [_NO_PAUSE] if not config.target_lag and config.max_polls != limit else []
    interval = PollInterval(config.target_lag, config.poll_interval_seconds)
    total: RunReport | None = None
    failure: IcecdcError | None = None
    failures = 0
    with stop_on_sigterm() as stop:
        wait = sleep or stop.wait
        for number in count(1):
            began = clock()
            try:
                report = sync(spark, config)
            except Stopped:
                if failure is not None:
                    raise failure from None
                if total is None:
                    raise
                stop.requested = True
                break
            except IcecdcError as error:
                if number == limit or state_of(error) not in _REPEATED_STATES:
                    raise
                if isinstance(error, SparkJobError) and has_ended(spark):  # only a new process has Spark again
                    raise
                if on_failure is not None:
                    on_failure(error)
                else:
                    print_line(f"poll {number} failed: {str(error).splitlines()[0]} ({config.index})")
                failure, failures = error, failures + 1
                wait(max(interval.pause, min(_LONGEST_PAUSE, 2.0 ** min(failures, 10))))
                if stop.requested:
                    raise
                continue
            failure, failures = None, 0
            if limit != 1:
                report = _judged(config, report, interval, began, clock())
            report = replace(report, target_lag_seconds=config.target_lag or None, notes=[*report.notes, *hints])
            # One report stands for all earlier polls, so that a run without a limit needs no more memory.
            total = report if total is None else combine(total, report)
            leave_report(total, config)
            if on_poll is not None:
                on_poll(total)
            print_line(
                f"poll {number}: {report.snapshots} snapshots, {report.upserts:,} upserts, "
                f"{report.deletes:,} deletes in {report.seconds:.1f} s ({config.index})"
            )
            if number != limit and not stop.requested:
                with activity(f"{config.index}: waiting {interval.pause:.1f} s for the next poll"):
                    wait(interval.pause)
            if number == limit or stop.requested:
                break
    assert total is not None, "a first poll that fails ends the run"
    if stop.requested:
        total = replace(total, stopped=True)
        leave_report(total, config)
    return total


def combine(total: RunReport, report: RunReport) -> RunReport:
    both, then = (total, report), total.then(report)
    lags = [each.worst_lag_seconds for each in both if each.worst_lag_seconds is not None]
    kept = [each.lag_kept for each in both if each.lag_kept is not None]
    strategies = [name for each in both if each.upserts or each.deletes for name in each.strategy.split(", ")]
    stages = {**total.stage_seconds, **report.stage_seconds}
    audit = report.audit | {name: total.audit.get(name, 0) + report.audit[name] for name in _AUDITED if report.audit}
    if total.audit.get("failure"):
        audit["failure"] = total.audit["failure"]
    return replace(
        then,
        kind=total.kind,
        audit=audit,
        strategy=", ".join(dict.fromkeys(strategies)) or report.strategy,
        steps=then.steps[-_KEPT:],
        rejected_samples=then.rejected_samples[-_KEPT:],
        seconds=total.seconds + report.seconds,
        stage_seconds={name: sum(each.stage_seconds.get(name, 0.0) for each in both) for name in stages},
        lag_snapshots=total.lag_snapshots,
        lag_seconds=total.lag_seconds,
        worst_lag_seconds=max(lags, default=None),
        lag_kept=all(kept) if kept else None,
    )


def _judged(config: SyncConfig, report: RunReport, interval: PollInterval, began: float, ended: float) -> RunReport:
    lag, kept, is_new = interval.poll_ended(began, ended, report.worst_lag_seconds)
    if config.target_lag:
        labels = {"job": "sync", **config.subject}
        # The poll has closed its log.
        with logging_to(config.log_path), log_fields(**labels, run_id=report.run_id):
            if is_new:
                message = "the target lag is kept again" if kept else "the target lag is not kept"
                level = logging.INFO if kept else logging.WARNING
                event(message, level, target_lag_seconds=config.target_lag, lag_seconds=lag, seconds=report.seconds)
            lags = {"target_lag": config.target_lag, "lag_achieved": lag}
            lags |= {"target_lag_kept": interval.seconds_kept, "target_lag_missed": interval.seconds_missed}
            publish_run_metrics(RunMetrics({**labels, **lags}), config)
    return replace(report, worst_lag_seconds=lag, lag_kept=kept)
