"""Polling: sync again and again; between two polls it keeps only the Spark session open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from itertools import count

from pyspark.sql import SparkSession

from icecdc_core.config import SyncConfig
from icecdc_core.jobs.sync import sync_changes
from icecdc_core.reporting.reports import RunReport, write_report
from icecdc_core.session.shutdown import stop_on_sigterm


def follow_changes(
    spark: SparkSession,
    config: SyncConfig,
    *,
    sync: Callable[[SparkSession, SyncConfig], RunReport] = sync_changes,
    sleep: Callable[[float], object] | None = None,
) -> RunReport:
    """Sync once, or every ``poll_interval_seconds`` until ``max_polls`` are done (0: no limit).

    Each poll prints one line. With ``report_path`` the report so far is written after every poll, so that a run without
    a limit can be watched. SIGTERM ends the run after the current poll, or at once while it waits for the next one.

    Args:
        spark: A session in which the table's catalog is configured, see ``get_spark``.
        config: The job's parameters. With ``poll_interval_seconds`` 0 there is exactly one poll.
        sync: One poll.
        sleep: Waits so many seconds between two polls; None: until SIGTERM at most.

    Returns:
        One report on all polls, see ``combine``; ``stopped`` says that SIGTERM ended them.
    """
    limit = config.max_polls if config.poll_interval_seconds else 1
    reports: list[RunReport] = []
    with stop_on_sigterm() as stop:
        for number in count(1):
            report = sync(spark, config)
            # One report stands for all earlier polls, so that a run without a limit needs no more memory.
            reports = [combine([*reports, report])]
            if config.report_path:
                write_report(reports[0], config.report_path)
            line = (
                f"poll {number}: {report.snapshots} snapshots, {report.upserts:,} upserts, "
                f"{report.deletes:,} deletes in {report.seconds:.1f} s ({config.index})"
            )
            print(line, flush=True)  # noqa: T201
            if number != limit and not stop.requested:
                (sleep or stop.wait)(config.poll_interval_seconds)
            if number == limit or stop.requested:
                break
    if not stop.requested:
        return reports[0]
    total = replace(reports[0], stopped=True)
    if config.report_path:
        write_report(total, config.report_path)
    return total


def combine(reports: Sequence[RunReport]) -> RunReport:
    """Return one report on several runs of the same table, oldest first: counts and times are added up."""
    if len(reports) == 1:
        return reports[0]
    first, last = reports[0], reports[-1]
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
    )
