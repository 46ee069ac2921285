"""What a sync would do, computed by its own decisions; nothing is written."""

from __future__ import annotations

from dataclasses import replace

from icecdc_core.commits.position_format import Position
from icecdc_core.jobs.export import dry_run_export
from icecdc_core.jobs.pipeline import prepare
from icecdc_core.jobs.plan import must_reexport, next_range, sync_start
from icecdc_core.jobs.run import Run
from icecdc_core.jobs.sync_reports import joined, sync_report, with_export
from icecdc_core.reporting.reports import RunReport
from icecdc_core.table.source import Source


def dry_run_sync(run: Run, source: Source, position: Position) -> RunReport:
    """Count what a sync from this position would do."""
    start = sync_start(position, source, run.config)
    position = start.position
    if start.exports:
        report = dry_run_export(run, source, position.batch)
        if report.to_snapshot_id == source.head:
            return report
        return with_export(report, _dry_catch_up(run, source, _reached(position, source, report.to_snapshot_id)))
    return _dry_catch_up(
        run, source, _reached(position, source, position.snapshot_id) if start.creates_index else position
    )


def _dry_catch_up(run: Run, source: Source, position: Position) -> RunReport:
    if must_reexport(position, source, run.config):
        return replace(dry_run_export(run, source), strategy="reexport")
    start, report = position.snapshot_id, None
    while report is None or position.snapshot_id != source.head:
        part = _dry_batch(run, source, position)
        position = replace(position, snapshot_id=part.to_snapshot_id, batch=None)
        report = part if report is None else joined(report, part)
    return replace(report, from_snapshot_id=start, seconds=run.seconds, stage_seconds=run.stage_seconds)


def _dry_batch(run: Run, source: Source, position: Position) -> RunReport:
    chosen = next_range(position, source, run.config)
    with run.stage("changes"):
        prepared = prepare(source, run.config, position.snapshot_id, chosen.end, position.epoch + 1, chosen.cuts)
        try:
            prepared.compute()
        finally:
            prepared.close()
    return replace(
        sync_report(run, source, position.snapshot_id, chosen.end, prepared.strategy),
        upserts=prepared.upserts,
        deletes=prepared.deletes,
        carryovers_removed=prepared.carryovers_removed,
        snapshots=prepared.snapshots,
        steps=prepared.steps,
        dry_run=True,
    )


def _reached(position: Position, source: Source, snapshot_id: int | None) -> Position:
    """Return the position that a run has once it created or exported the index."""
    return replace(
        position,
        snapshot_id=snapshot_id,
        table_uuid=source.table_uuid,
        selection=source.stored_selection,
        schema=source.schema_json,
        batch=None,
    )
