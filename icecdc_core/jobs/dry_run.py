"""What a sync would do, by the decisions of the sync itself; nothing is written."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

from icecdc_core.commits.position import Position
from icecdc_core.commits.preconditions import parameter_changes
from icecdc_core.jobs.export import dry_run_export
from icecdc_core.reporting.reports import RunReport
from icecdc_core.runs.batch import noted_changes, position_at
from icecdc_core.runs.changes import compute_changes, plan_batch
from icecdc_core.runs.plan import decide_start, needs_reexport, next_range
from icecdc_core.runs.run import Look, Run, require_identity
from icecdc_core.table.source import Source


def dry_run_sync(run: Run, look: Look) -> RunReport:
    """Count what a sync from the stored position would do."""
    source = look.source
    start = decide_start(look.position, source, run.config)
    position = start.position
    if start.creates_index:
        position = position_at(position, source, position.snapshot_id)
    if not start.exports:
        return _catch_up(run, source, position)
    export = dry_run_export(run, Look(position, source))
    if export.to_snapshot_id == source.head:
        return export
    exported = replace(position_at(position, source, export.to_snapshot_id), batch=None)
    both = export.then(_catch_up(run, source, exported))
    return replace(both, kind="export", strategy="export", from_snapshot_id=None)


def _catch_up(run: Run, source: Source, position: Position) -> RunReport:
    if needs_reexport(position, source, run.config):
        look = Look(position, source)
        require_identity(run.client, run.config, look)
        return replace(dry_run_export(run, look), strategy="reexport")
    notes = noted_changes(parameter_changes(position, source))
    report: RunReport | None = None
    while report is None or position.snapshot_id != source.head:
        part = _batch(run, source, position)
        position = replace(position, snapshot_id=part.to_snapshot_id, batch=None)
        report = replace(part, notes=notes) if report is None else report.then(part)
    return replace(report, seconds=run.seconds, stage_seconds=run.stage_seconds)


def _batch(run: Run, source: Source, position: Position) -> RunReport:
    wanted = next_range(position, source, run.config)
    with run.stage("plan"):
        plan = plan_batch(source, run.config, position.snapshot_id, wanted.end, wanted.cuts)
    with run.stage("changes"):
        with closing(compute_changes(source, run.config, plan)) as changes:
            found = {"upserts": changes.upserts, "deletes": changes.deletes}
        source.table.release()
    return run.report(
        "sync",
        position.snapshot_id,
        wanted.end,
        changes.reported_strategy,
        **found,
        carryovers_removed=changes.carryovers_removed,
        snapshots=plan.snapshots,
        steps=plan.steps,
        dry_run=True,
    )
