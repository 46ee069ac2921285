"""Decides what a sync does next, from position, table and parameters; used by the run and by its dry run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from icecdc_core.changes.scan_planning import StepScan, file_bytes, is_insert_only, plan_scans
from icecdc_core.changes.steps import snapshots_between
from icecdc_core.commits.position import Position
from icecdc_core.commits.preconditions import check_preconditions, policy_of
from icecdc_core.documents.spec import DIGEST
from icecdc_core.errors import ConfigError, HistoryGapError
from icecdc_core.table.snapshots import committed_at, history_gap_error, snapshot_as_of

if TYPE_CHECKING:
    from icecdc_core.commits.position import Batch
    from icecdc_core.config import SyncConfig
    from icecdc_core.table.source import Source


@dataclass(frozen=True)
class BatchPlan:
    """What a batch covers, from the position on; once it is planned, what it reads."""

    end: int | None
    cuts: tuple[int | None, ...] = ()
    replayed: Batch | None = None
    scans: Sequence[StepScan] = ()
    snapshots: int = 0
    steps: list[dict[str, Any]] = field(default_factory=list)

    @property
    def file_bytes(self) -> int:
        """Size of the data files that are read."""
        return sum(step["bytes"] for step in self.steps)


def start_position(position: Position, source: Source, config: SyncConfig) -> Position | None:
    """Return the position that a sync goes on from, which exists unless it has to be created; None: export first."""
    if position.begun_export or (not position.exists and config.start_point is None):
        return None
    if not position.exists:
        start = replace(position, snapshot_id=_start_snapshot(source, config), batch=None)
        if start.snapshot_id is not None and history_gap_error(source.metadata, start.snapshot_id) is not None:
            raise _wrong_start(source, config, "The table has no such snapshot")
        error = check_preconditions(replace(start, selection=source.stored_selection, schema=""), source)
        if error is not None:
            raise error
        return start
    # A repair writes documents of the position's snapshot, so it may be dropped at any point; a validation repeats it.
    return replace(position, batch=None) if position.batch and position.batch.kind == "repair" else position


def needs_reexport(position: Position, source: Source, config: SyncConfig) -> bool:
    """Return whether to export again because the changes cannot be read."""
    error = check_preconditions(position, source)
    if error is not None and getattr(config, policy_of(error)) != "reexport":
        raise error
    return error is not None


def has_other_spec(position: Position, source: Source) -> bool:
    """Return whether the index was built with another spec."""
    return bool(position.unfinished_specs) or position.selection.get(DIGEST) != source.spec.get(DIGEST)


def next_range(position: Position, source: Source, config: SyncConfig) -> BatchPlan:
    """Return what the next batch covers: the begun one if it can be repeated, else all that is new."""
    begun = position.batch
    if begun is None:
        return BatchPlan(source.head)
    if (
        begun.schema == source.schema_json
        # The position has the current spec, because a sync follows a changed one first.
        and begun.selection.get(DIGEST) == position.selection.get(DIGEST)
        and begun.on_duplicate_identifier in ("", config.on_duplicate_identifier)
        and (not begun.failure or begun.to_snapshot_id == source.head)
    ):
        return BatchPlan(begun.to_snapshot_id, tuple(begun.cuts), replayed=begun)
    # A begun batch is not repeated if the schema, the spec or the policy changed, or if its rows were rejected and the
    # table has changed since. With its versions, documents that it wrote would not get the fields of a new mapping.
    # The new batch reads the same snapshots as a step of their own, so it writes again whatever the earlier one wrote.
    return BatchPlan(source.head, (*begun.cuts, begun.to_snapshot_id))


def plan_batch(source: Source, config: SyncConfig, position: Position) -> BatchPlan:
    """Find the files that hold the changes of the next batch."""
    plan = next_range(position, source, config)
    scans: list[StepScan] = []
    snapshots, begin = 0, position.snapshot_id
    for stop in (stop for stop in (*plan.cuts, plan.end) if stop is not None):
        part = plan_scans(source.table, source.metadata, begin, stop, config.change_mode)
        scans += [replace(scan, step=replace(scan.step, ordinal=len(scans) + n)) for n, scan in enumerate(part)]
        snapshots += len(snapshots_between(source.metadata, begin, stop) or ())
        begin = stop
    if not is_insert_only(scans):
        source.require_identifier_columns("rows were deleted or updated since the position")
    steps = [
        {
            "ordinal": scan.step.ordinal,
            "from_snapshot_id": scan.step.from_snapshot_id,
            "to_snapshot_id": scan.step.to_snapshot_id,
            "files_before": sum(len(tasks) for tasks in scan.read_older),
            "files_after": sum(len(tasks) for tasks in scan.read_newer),
            "bytes": file_bytes(source.table, [scan]),
        }
        for scan in scans
    ]
    return replace(plan, scans=scans, snapshots=snapshots, steps=steps)


def _start_snapshot(source: Source, config: SyncConfig) -> int | None:
    point = config.start_point
    if point == "latest":
        return source.head
    if isinstance(point, datetime):
        try:
            return snapshot_as_of(source.metadata, int(point.timestamp() * 1000), config.branch)
        except HistoryGapError as error:
            raise _wrong_start(source, config, "The snapshots of that time have expired") from error
    return point if isinstance(point, int) else None


def _wrong_start(source: Source, config: SyncConfig, problem: str) -> ConfigError:
    times = [(committed_at(snapshot).isoformat(), snapshot.snapshot_id) for snapshot in source.metadata.snapshots]
    oldest = "; the oldest is {1} of {0}".format(*min(times)) if times else ""
    return ConfigError(
        f"{problem}{oldest}",
        subject="start_from",
        value=str(config.start_point),
        remedy="give a snapshot that the table has, a later time, or latest; without it the sync exports the table",
    )
