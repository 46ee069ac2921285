"""The reports of a sync: of one batch, and of several parts added up."""

from __future__ import annotations

from dataclasses import replace

from icecdc_core.jobs.run import Run
from icecdc_core.opensearch.bulk_writer import BulkResult
from icecdc_core.reporting.reports import RunReport
from icecdc_core.table.source import Source


def sync_report(
    run: Run,
    source: Source,
    start: int | None,
    end: int | None,
    strategy: str,
    result: BulkResult | None = None,
) -> RunReport:
    """Return the report of a batch, or of a run that had nothing to do."""
    counts = result or BulkResult()
    return RunReport(
        kind="sync",
        table=source.table.name,
        index=run.config.index,
        from_snapshot_id=start,
        to_snapshot_id=end,
        strategy=strategy,
        upserts=counts.upserts,
        deletes=counts.deletes,
        already_applied=counts.already_applied,
        rejected=counts.rejected,
        rejected_samples=counts.rejected_samples,
        requests=counts.requests,
        retries=counts.retries,
        bytes=counts.bytes,
        run_id=run.run_id,
        seconds=run.seconds,
        stage_seconds=run.stage_seconds,
    )


def joined(first: RunReport, second: RunReport) -> RunReport:
    """Add a replayed batch and the batch after it up into one report."""
    sums = (
        "upserts",
        "deletes",
        "carryovers_removed",
        "already_applied",
        "rejected",
        "snapshots",
        "requests",
        "retries",
        "bytes",
    )
    return replace(
        second,
        **{name: getattr(first, name) + getattr(second, name) for name in sums},
        steps=[*first.steps, *second.steps],
        notes=[*first.notes, *second.notes],
        rejected_samples=[*first.rejected_samples, *second.rejected_samples],
    )


def with_export(export: RunReport, rest: RunReport) -> RunReport:
    """Add an export and what was read after it up into one report, which is that of an export."""
    return replace(joined(export, rest), kind="export", strategy="export", from_snapshot_id=None)
