"""Sync again and again: between two polls nothing is held but the session."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count

from pyspark.sql import SparkSession

from icecdc_core.config import SyncConfig
from icecdc_core.jobs.sync import sync_changes
from icecdc_core.reporting.reports import RunReport, write_report
from icecdc_core.session.shutdown import stop_on_sigterm

_WRITTEN = ("upserts", "deletes", "carryovers_removed", "already_applied", "rejected")
_COUNTS = (*_WRITTEN, "snapshots", "requests", "retries", "bytes")


def poll_changes(
    spark: SparkSession,
    config: SyncConfig,
    *,
    sync: Callable[[SparkSession, SyncConfig], RunReport] = sync_changes,
    sleep: Callable[[float], None] = time.sleep,
    should_end: Callable[[], bool] = lambda: False,
) -> Iterator[RunReport]:
    """Sync once, or every `poll_interval_seconds` until `max_polls` are done (0: no limit).

    Args:
        spark: The session.
        config: What to sync. With `poll_interval_seconds` 0 there is exactly one poll.
        sync: What one poll does.
        sleep: How to wait between two polls.
        should_end: Whether no other poll may begin.

    Yields:
        The report of each poll; a poll that finds nothing new reports zeros.
    """
    limit = config.max_polls if config.poll_interval_seconds else 1
    for number in count(1):
        yield sync(spark, config)
        if number == limit or should_end():
            return
        sleep(config.poll_interval_seconds)
        if should_end():
            return


def follow_changes(spark: SparkSession, config: SyncConfig) -> RunReport:
    """Poll as configured, tell about every poll in one line, and report on all of them together.

    With `report_path` the report so far is written after every poll: so a run without a limit can be watched. SIGTERM
    ends it after the poll that is under way, and at once while it waits for the next one.
    """
    total: RunReport | None = None
    with stop_on_sigterm() as stop:
        polls = poll_changes(spark, config, sleep=stop.wait, should_end=lambda: stop.requested)
        for number, report in enumerate(polls, start=1):
            total = report if total is None else combine([total, report])
            if config.report_path:
                write_report(total, config.report_path)
            line = (
                f"poll {number}: {report.snapshots} snapshots, {report.upserts:,} upserts, "
                f"{report.deletes:,} deletes in {report.seconds:.1f} s"
            )
            print(line, flush=True)  # noqa: T201
        assert total is not None
        if stop.requested:
            total = replace(total, stopped=True)
            if config.report_path:
                write_report(total, config.report_path)
    return total


def combine(reports: Sequence[RunReport]) -> RunReport:
    """One report over several runs of the same table, oldest first: counts and times added up."""
    first, last = reports[0], reports[-1]
    worked = [report.strategy for report in reports if report.upserts or report.deletes]
    stages: dict[str, float] = {}
    for report in reports:
        for stage, seconds in report.stage_seconds.items():
            stages[stage] = stages.get(stage, 0.0) + seconds
    total = {name: sum(getattr(report, name) for report in reports) for name in _COUNTS}
    return RunReport(
        kind=first.kind,
        table=first.table,
        index=first.index,
        from_snapshot_id=first.from_snapshot_id,
        to_snapshot_id=last.to_snapshot_id,
        strategy=", ".join(dict.fromkeys(worked)) or last.strategy,
        seconds=sum(report.seconds for report in reports),
        steps=[step for report in reports for step in report.steps],
        notes=[note for report in reports for note in report.notes],
        stage_seconds=stages,
        rejected_samples=[sample for report in reports for sample in report.rejected_samples],
        dry_run=last.dry_run,
        run_id=last.run_id,
        epoch=last.epoch,
        lag_snapshots=first.lag_snapshots,
        lag_seconds=first.lag_seconds,
        **total,
    )
