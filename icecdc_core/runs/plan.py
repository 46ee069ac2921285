"""Decides what a sync does next, from position, table and parameters; used by the run, its dry run and its plan."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from icecdc_core.changes.scan_planning import StepScan, file_bytes, is_insert_only, plan_scans
from icecdc_core.changes.steps import snapshots_between
from icecdc_core.commits.position import Batch, NestedPosition, Position
from icecdc_core.commits.preconditions import check_preconditions
from icecdc_core.config import SyncConfig
from icecdc_core.documents.spec import DIGEST
from icecdc_core.errors import ConfigError, HistoryGapError, IcecdcError, SchemaChangeError, UnplannedActionError
from icecdc_core.table.snapshots import history_gap_error, identity_of, lag, snapshot_as_of
from icecdc_core.table.source import Source

Vector = Mapping[str, int | None]
"""A snapshot of each nested table."""


@dataclass(frozen=True)
class BatchPlan:
    """What a batch covers, from the position on; once it is planned, what it reads."""

    end: int | None
    cuts: tuple[int | None, ...] = ()
    replayed: Batch | None = None
    is_first_try: bool = False
    """Whether no earlier try may have written some of its documents, so that each write is a check."""
    looks_up: bool = False
    """Whether other rows of a changed identifier may remain in the table, although they did not change."""
    suffixes: Sequence[str] = ()
    scans: Sequence[StepScan] = ()
    snapshots: int = 0
    steps: list[dict[str, Any]] = field(default_factory=list)
    nested: Mapping[str, NestedPosition] = field(default_factory=dict)
    """The nested tables at its end."""
    nested_cuts: tuple[dict[str, int | None], ...] = ()
    nested_scans: Mapping[str, Sequence[StepScan]] = field(default_factory=dict)

    @property
    def file_bytes(self) -> int:
        return sum(step["bytes"] for step in self.steps)


def heads(source: Source) -> dict[str, int | None]:
    return {name: each.head for name, each in source.nested.items()}


def nested_positions(source: Source, vector: Vector) -> dict[str, NestedPosition]:
    return {
        name: NestedPosition(
            each.metadata.table_uuid, vector[name], each.schema_json, identity_of(each.metadata, vector[name])
        )
        for name, each in source.nested.items()
    }


def is_at_head(position: Position, source: Source) -> bool:
    return position.snapshot_id == source.head and position.nested_snapshots == heads(source)


def lag_of_tables(position: Position, source: Source) -> tuple[int, float]:
    """Return how many snapshots of all tables an index lacks, and the age of the oldest of them in seconds."""
    behind = [lag(source.metadata, position.snapshot_id, source.head)]
    behind += [lag(e.metadata, position.nested_snapshots.get(name), e.head) for name, e in source.nested.items()]
    return sum(snapshots for snapshots, _ in behind), max(seconds for _, seconds in behind)


def start_position(position: Position, source: Source, config: SyncConfig) -> Position | None:
    """Return the position that a sync goes on from, which exists unless it has to be created; None: export first."""
    if position.begun_export or (not position.exists and config.start_point is None):
        return None
    if not position.exists:
        try:
            vector = {name: _start_snapshot(each, config) for name, each in source.nested.items()}
            nested = nested_positions(source, vector)
            snapshot_id = _start_snapshot(source, config)
            start = replace(position, snapshot_id=snapshot_id, nested=nested, batch=None)
            start = replace(start, is_partial=any(each is not None for each in (snapshot_id, *vector.values())))
            unchanged = replace(start, selection=source.stored_selection, schema="")
            if (refusal := check_preconditions(unchanged, source)) is not None:
                raise refusal
            plan_batch(source, config, unchanged)  # what cannot be read from there is refused before there is an index
            return start
        except HistoryGapError as error:
            raise ConfigError(
                error.message,
                subject="start_from",
                value=str(config.start_point),
                remedy="give a snapshot that the table has, a later time, or latest; without it the sync exports the "
                "table",
            ) from error
    # A repair writes documents of the position's snapshot, so it may be dropped at any point; a validation repeats it.
    if position.batch and position.batch.kind == "repair":
        return replace(position, batch=None, indexes=position.every_index)
    return position


def needs_reexport(position: Position, source: Source, config: SyncConfig) -> IcecdcError | None:
    """Return why a sync exports again, if the policy for that allows it; None if it need not."""
    error = None if position.begun_export else check_preconditions(position, source)  # it goes on, or starts over
    policy = config.on_schema_change if isinstance(error, SchemaChangeError) else config.on_history_gap
    if error is not None and policy != "reexport":
        raise error
    return error


def has_other_spec(position: Position, source: Source) -> bool:
    return bool(position.unfinished_specs) or position.selection.get(DIGEST) != source.spec.get(DIGEST)


def has_other_schema(position: Position, source: Source) -> bool:
    schemas = {name: each.schema_json for name, each in source.nested.items()}
    return position.schema != source.schema_json or {n: at.schema for n, at in position.nested.items()} != schemas


def is_up_to_date(position: Position, source: Source) -> bool:
    return (
        position.exists
        and position.batch is None
        and is_at_head(position, source)
        and check_preconditions(position, source) is None
        and not has_other_spec(position, source)
        and not has_other_schema(position, source)
    )


CREATE, EXPORT, FOLLOW, SYNC, NOTHING = "create", "export", "follow", "sync", "nothing"


def next_action(position: Position, source: Source, config: SyncConfig) -> tuple[str, IcecdcError | None]:
    """Return what a sync does with an index, and why it exports it again."""
    if is_up_to_date(position, source):
        return NOTHING, None
    start = start_position(position, source, config)
    if start is None or not start.exists:
        return EXPORT if position.exists else CREATE, None
    if (reason := needs_reexport(start, source, config)) is not None:
        return EXPORT, reason
    return FOLLOW if has_other_spec(start, source) else SYNC, None


def planned_spec(source: Source) -> str:
    text = json.dumps([source.table.name, source.stored_selection], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def replaced_by(position: Position, config: SyncConfig) -> str:
    """The physical index that an export replaces; if there is none, with what an index begins."""
    return position.physical_index or f"start_from={config.start_from or 'none'}"


def require_planned(position: Position, source: Source, config: SyncConfig, action: str = "") -> None:
    """Refuse what the plan in `only_as_planned` did not announce; changes of rows are always allowed."""
    if not (path := config.only_as_planned):
        return
    action, problem = action or next_action(position, source, config)[0], ""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8").splitlines()[-1])
        plans = content.get("indexes", {"": content}).values()
        plan = next((each for each in plans if each["index"] == config.index and "action" in each), dict[str, Any]())
        planned = plan.get("action", "nothing of it, or could not plan it")
        # Only the server can refuse to follow; then the export is checked.
        is_announced = action in (planned, FOLLOW if planned == EXPORT else "", SYNC, NOTHING)
        if action in (CREATE, EXPORT):  # once
            is_announced &= plan.get("replaces") == replaced_by(position, config)
        if not is_announced or plan.get("spec") != planned_spec(source):
            problem = f"A sync would {action} '{config.index}' as it and its spec are now; the plan announced {planned}"
    except (OSError, ValueError, LookupError, AttributeError, TypeError):
        problem = "The file cannot be read as the report of a plan"
    if problem:
        remedy = "write the plan (icecdc plan --json) to the file and review it, or leave only_as_planned out"
        raise UnplannedActionError(problem, subject="only_as_planned", value=path, remedy=remedy)


def next_range(position: Position, source: Source, config: SyncConfig) -> BatchPlan:
    """Return what the next batch covers: the begun one if it can be repeated, else all that is new."""
    begun, now = position.batch, nested_positions(source, heads(source))
    looks_up = config.on_duplicate_identifier == "last" or not position.is_unique
    if begun is None:
        return BatchPlan(source.head, nested=now, is_first_try=True, looks_up=looks_up)
    if (
        not begun.met_duplicates
        and begun.schema == source.schema_json
        and all(table in begun.nested and begun.nested[table].schema == at.schema for table, at in now.items())
        # The position has the current spec, because a sync follows a changed one first.
        and begun.selection.get(DIGEST) == position.selection.get(DIGEST)
        and begun.on_duplicate_identifier in ("", config.on_duplicate_identifier)
        and (not begun.failure or (begun.to_snapshot_id == source.head and begun.nested_snapshots == heads(source)))
    ):
        cuts, nested_cuts = tuple(begun.cuts), tuple(begun.nested_cuts)
        again = BatchPlan(begun.to_snapshot_id, cuts, begun, nested=begun.nested, nested_cuts=nested_cuts)
        return replace(again, looks_up=looks_up)
    # With the versions of the begun batch, documents that it wrote would not get the fields of a new mapping. The new
    # one reads the same snapshots as a step of their own, so it writes again whatever the earlier one wrote.
    return BatchPlan(
        source.head,
        (*begun.cuts, begun.to_snapshot_id),
        nested=now,
        looks_up=looks_up or begun.met_duplicates,
        nested_cuts=(*begun.nested_cuts, begun.nested_snapshots),
    )


def plan_batch(source: Source, config: SyncConfig, position: Position) -> BatchPlan:
    plan = next_range(position, source, config)
    # Across a compaction, rows of its files would look deleted, and nothing identifies them.
    cut = not source.identifier_columns
    found = _plan_table(source, position.snapshot_id, [*plan.cuts, plan.end], config.change_mode, cut)
    plan = replace(plan, scans=found.scans, snapshots=found.snapshots, steps=found.steps)
    if not is_insert_only(plan.scans):
        source.require_identifier_columns("rows were deleted or updated since the position")
    for name, each in source.nested.items():
        stops = [*(cut[name] for cut in plan.nested_cuts), plan.nested[name].snapshot_id]
        found = _plan_table(each, position.nested_snapshots[name], stops, "net", cut=False)
        steps = [*plan.steps, *({"table": name, **step} for step in found.steps)]
        scans = {**plan.nested_scans, name: found.scans}
        plan = replace(plan, nested_scans=scans, snapshots=plan.snapshots + found.snapshots, steps=steps)
    return plan


def _plan_table(source: Source, begin: int | None, stops: Sequence[int | None], mode: str, cut: bool) -> BatchPlan:
    scans: list[StepScan] = []
    snapshots = 0
    for stop in (stop for stop in stops if stop is not None):
        part = plan_scans(source.table, source.metadata, begin, stop, mode, cut_everywhere=cut)
        scans += [replace(scan, step=replace(scan.step, ordinal=len(scans) + n)) for n, scan in enumerate(part)]
        snapshots += len(snapshots_between(source.metadata, begin, stop) or ())
        begin = stop
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
    return BatchPlan(begin, scans=scans, snapshots=snapshots, steps=steps)


def _start_snapshot(source: Source, config: SyncConfig) -> int | None:
    point = config.start_point
    # A snapshot id is one of the root's; nested tables have ids of their own.
    if point == "latest" or (isinstance(point, int) and source.table.name != config.table):
        return source.head
    if isinstance(point, datetime):
        return snapshot_as_of(source.metadata, int(point.timestamp() * 1000), source.branch)
    if isinstance(point, int) and (gap := history_gap_error(source.metadata, point)) is not None:
        raise gap
    return point if isinstance(point, int) else None
