"""Polling: sync again and again; between two polls it keeps only the Spark session open."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import count

from pyspark.sql import SparkSession

from icecdc_core.config import SyncConfig
from icecdc_core.errors import IcecdcError, SparkJobError
from icecdc_core.jobs.sync import sync_changes
from icecdc_core.logs import event, log_fields, logging_to
from icecdc_core.reporting.exit_states import state_of
from icecdc_core.reporting.instrumentation import publish_run_metrics
from icecdc_core.reporting.metrics import PlainMetrics
from icecdc_core.reporting.reports import RunReport, write_report
from icecdc_core.session.jvm import has_ended
from icecdc_core.session.processes import Stopped, stop_on_sigterm

_REMEMBERED_SYNCS = 5
_MARGIN = 1.25
_SHORTEST_PAUSE = 1.0


@dataclass(frozen=True)
class LagVerdict:
    """What one poll says about the lag."""

    lag: float | None = None
    kept: bool | None = None
    changed: bool = False


class PollInterval:
    """The interval between the polls of one run, from the end of one to the start of the next.

    A commit that lands just after a poll has read the table waits for the rest of that poll, for the pause and for the
    whole next sync. So the pause is the target lag, less the time of the last poll, less the time that a sync is
    expected to take: the longest of the last five that found commits, plus a quarter. Until a poll has found commits, a
    sync is expected to take half the target lag.

    Commits that the first poll finds do not count: they waited before the run began. Later polls find only commits
    that the poll before them could not see. So none of these waited longer than since that poll began, even if its
    snapshot is older: it was staged first, or the clock of the writer is slow.

    Example, target lag 10 s: an idle poll takes 0.2 s, the slowest of the last syncs took 2 s. The pause is
    10 - 0.2 - 1.25 * 2 = 7.3 s.
    """

    def __init__(self, target_lag: float, longest_pause: float = 0.0) -> None:
        self.target_lag = target_lag
        self.seconds_kept = self.seconds_missed = 0.0
        self._longest_pause = longest_pause
        self._syncs: deque[float] = deque(maxlen=_REMEMBERED_SYNCS)
        self._last: tuple[float, float] | None = None
        self._keeps = True

    def poll_ended(self, began: float, ended: float, lag: float | None) -> LagVerdict:
        """Take a poll into account."""
        last, self._last = self._last, (began, ended)
        took = ended - began
        if last is None:
            # A first poll that works off a backlog says little about the next ones.
            if lag is not None:
                self._syncs.append(min(took, self.target_lag / 2))
            return LagVerdict()
        if lag is not None:
            self._syncs.append(took)
            lag = round(min(lag, ended - last[0]), 3)
        if not self.target_lag:
            return LagVerdict(lag)
        elapsed = ended - last[1]
        missed = min(max(0.0, (lag or 0.0) - self.target_lag), elapsed)
        self.seconds_missed += missed
        self.seconds_kept += elapsed - missed
        return self._verdict(lag, took)

    @property
    def pause(self) -> float:
        """Seconds to wait before the next poll."""
        if not self.target_lag or self._last is None:
            return self._longest_pause
        took = self._last[1] - self._last[0]
        expected = max([*self._syncs, took]) * _MARGIN if self._syncs else max(self.target_lag / 2, took)
        shortest = min(_SHORTEST_PAUSE, self.target_lag / 10)
        pause = max(shortest, self.target_lag - took - expected)
        return min(pause, self._longest_pause) if self._longest_pause else pause

    def _verdict(self, lag: float | None, took: float) -> LagVerdict:
        # A poll without commits does not show that the next sync is fast enough, only that a slow one would be late.
        late = took > self.target_lag or (lag is not None and lag > self.target_lag)
        kept = False if late else None if lag is None else True
        changed = kept is not None and kept != self._keeps
        self._keeps = self._keeps if kept is None else kept
        return LagVerdict(lag, kept, changed)


_LONGEST_PAUSE = 60.0
_REPEATED_STATES = ("retry", "locked")
_SINGLE_SYNC = "target_lag takes effect only if the run polls: set max_polls (0: no limit)"


def follow_changes(
    spark: SparkSession,
    config: SyncConfig,
    *,
    sync: Callable[[SparkSession, SyncConfig], RunReport] = sync_changes,
    sleep: Callable[[float], object] | None = None,
    clock: Callable[[], float] = time.monotonic,
    on_poll: Callable[[RunReport], object] | None = None,
    on_failure: Callable[[IcecdcError], object] | None = None,
) -> RunReport:
    """Sync once, or again and again until ``max_polls`` are done (0: no limit).

    It polls if ``poll_interval_seconds`` or ``target_lag`` is set. With ``target_lag`` a pause is as long as the target
    allows, see ``PollInterval``, and at most ``poll_interval_seconds`` if that is set.

    The run goes on after a poll that ends in state ``retry`` or ``locked``, unless it was the last one or Spark's Java
    process has ended; other failures end it. The pause is then 2 seconds, twice as long after each further failure, up
    to a minute, and never shorter than usual.

    Each poll prints one line. With ``report_path`` the report so far is written after every poll, so that a run without
    a limit can be watched. SIGTERM ends the run after the current poll, or at once while it waits for the next one.

    Args:
        spark: A session in which the table's catalog is configured, see ``get_spark``.
        config: The job's parameters. Without ``poll_interval_seconds`` and ``target_lag`` there is exactly one poll.
        sync: One poll; it may raise ``Stopped`` instead.
        sleep: Waits so many seconds between two polls; None: until SIGTERM at most.
        clock: A monotonic clock, in seconds.
        on_poll: Gets the report so far after each poll.
        on_failure: Gets the error of a poll that failed, if another poll follows; None: it is printed.

    Returns:
        One report on all polls, see ``combine``; ``stopped`` says that SIGTERM ended them.

    Raises:
        Stopped: SIGTERM ended the first poll, so there is no report.
        IcecdcError: A poll failed.
    """
    limit = config.max_polls if config.polls else 1
    polls = _Polls(config, limit)
    with stop_on_sigterm() as stop:
        wait = sleep or stop.wait
        for number in count(1):
            began = clock()
            try:
                report = sync(spark, config)
            except Stopped:
                if polls.failure is not None:
                    raise polls.failure from None
                if not polls.reports:
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
                    failed = f"poll {number} failed: {str(error).splitlines()[0]} ({config.index})"
                    print(f"{failed}\n", end="", flush=True)  # noqa: T201
                polls.failed(error)
                wait(polls.pause)
                if stop.requested:
                    raise
                continue
            polls.succeeded(report, began, clock)
            if on_poll is not None:
                on_poll(polls.reports[0])
            line = (
                f"poll {number}: {report.snapshots} snapshots, {report.upserts:,} upserts, "
                f"{report.deletes:,} deletes in {report.seconds:.1f} s ({config.index})"
            )
            print(f"{line}\n", end="", flush=True)  # noqa: T201  # in one write, because loops of other indexes print too
            if number != limit and not stop.requested:
                wait(polls.pause)
            if number == limit or stop.requested:
                break
    return polls.stopped() if stop.requested else polls.reports[0]


class _Polls:
    """The polls of one run so far: their report, and what failed since the last one that succeeded."""

    def __init__(self, config: SyncConfig, limit: int) -> None:
        self.reports: list[RunReport] = []
        self.failure: IcecdcError | None = None
        self._failures = 0
        self._config = config
        self._is_single = limit == 1
        self._interval = PollInterval(config.target_lag, config.poll_interval_seconds)

    def failed(self, error: IcecdcError) -> None:
        """Note a poll that failed."""
        self.failure, self._failures = error, self._failures + 1

    def succeeded(self, report: RunReport, began: float, clock: Callable[[], float]) -> None:
        """Add the report of a poll to that of the earlier ones, and judge its lag."""
        config, self.failure, self._failures = self._config, None, 0
        report = replace(report, target_lag_seconds=config.target_lag or None)
        if config.target_lag and "max_polls" not in config.model_fields_set:
            report = replace(report, notes=[*report.notes, _SINGLE_SYNC])
        if not self._is_single:
            verdict = self._interval.poll_ended(began, clock(), report.worst_lag_seconds)
            report = replace(report, worst_lag_seconds=verdict.lag, lag_kept=verdict.kept)
            _publish_lag(config, report, self._interval, verdict)
        # One report stands for all earlier polls, so that a run without a limit needs no more memory.
        self.reports = [combine([*self.reports, report])]
        self._write()

    def stopped(self) -> RunReport:
        """Return the report of a run that SIGTERM ended."""
        self.reports = [replace(self.reports[0], stopped=True)]
        self._write()
        return self.reports[0]

    @property
    def pause(self) -> float:
        """Seconds to wait before the next poll."""
        if self.failure is None:
            return self._interval.pause
        return max(self._interval.pause, min(_LONGEST_PAUSE, 2.0 ** min(self._failures, 10)))

    def _write(self) -> None:
        if self._config.report_path:
            write_report(self.reports[0], self._config.report_path)


def combine(reports: Sequence[RunReport]) -> RunReport:
    """Return one report on several runs of the same table, oldest first: counts and times are added up."""
    if len(reports) == 1:
        return reports[0]
    first, last = reports[0], reports[-1]
    lags = [report.worst_lag_seconds for report in reports if report.worst_lag_seconds is not None]
    kept = [report.lag_kept for report in reports if report.lag_kept is not None]
    strategies = [report.strategy for report in reports if report.upserts or report.deletes]
    stages: dict[str, float] = {}
    for report in reports:
        for stage, seconds in report.stage_seconds.items():
            stages[stage] = stages.get(stage, 0.0) + seconds
    return replace(
        reduce(RunReport.then, reports),
        kind=first.kind,
        strategy=", ".join(dict.fromkeys(strategies)) or last.strategy,
        seconds=sum(report.seconds for report in reports),
        stage_seconds=stages,
        lag_snapshots=first.lag_snapshots,
        lag_seconds=first.lag_seconds,
        worst_lag_seconds=max(lags, default=None),
        lag_kept=all(kept) if kept else None,
    )


def _publish_lag(config: SyncConfig, report: RunReport, interval: PollInterval, verdict: LagVerdict) -> None:
    """Log when the run begins or stops keeping its target lag, and publish its metrics of the lag."""
    if not config.target_lag:
        return
    labels = {"job": "sync", **config.subject}
    # The poll has closed its log.
    with logging_to(config.log_path), log_fields(**labels, run_id=report.run_id):
        if verdict.changed:
            fields = {"target_lag_seconds": config.target_lag, "lag_seconds": verdict.lag, "seconds": report.seconds}
            if verdict.kept:
                event("the target lag is kept again", logging.INFO, **fields)
            else:
                event("the target lag is not kept", logging.WARNING, **fields)
        lags = {"target_lag": config.target_lag, "lag_achieved": verdict.lag}
        lags |= {"target_lag_kept": interval.seconds_kept, "target_lag_missed": interval.seconds_missed}
        publish_run_metrics(PlainMetrics(labels, lags), config)
