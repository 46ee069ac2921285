"""Decides what a sync does next, from position, table and parameters; used by the run and by its dry run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from icecdc_core.commits.position import Batch, Position
from icecdc_core.commits.preconditions import check_preconditions, policy_of
from icecdc_core.documents.spec import DIGEST
from icecdc_core.errors import ConfigError, HistoryGapError
from icecdc_core.table.snapshots import committed_at, history_gap_error, snapshot_as_of

if TYPE_CHECKING:
    from icecdc_core.commits.position import Batch
    from icecdc_core.config import SyncConfig
    from icecdc_core.table.source import Source


@dataclass(frozen=True)
class SyncStart:
    """How a sync starts."""

    position: Position
    exports: bool = False
    creates_index: bool = False


@dataclass(frozen=True)
class BatchRange:
    """What the next batch covers, from the position on."""

    end: int | None
    cuts: tuple[int | None, ...] = ()
    replayed: Batch | None = None


def decide_start(position: Position, source: Source, config: SyncConfig) -> SyncStart:
    """Decide how a sync starts."""
    kind = position.batch.kind if position.batch is not None else ""
    if kind == "export" or (not position.exists and config.start_point is None):
        return SyncStart(position, exports=True)
    if not position.exists:
        start = replace(position, snapshot_id=_start_snapshot(source, config), batch=None)
        if start.snapshot_id is not None and history_gap_error(source.metadata, start.snapshot_id) is not None:
            raise _wrong_start(source, config, "The table has no such snapshot")
        error = check_preconditions(replace(start, selection=source.stored_selection, schema=""), source)
        if error is not None:
            raise error
        return SyncStart(start, creates_index=True)
    # A repair writes documents of the position's snapshot, so it may be dropped at any point; a validation repeats it.
    return SyncStart(replace(position, batch=None) if kind == "repair" else position)


def needs_reexport(position: Position, source: Source, config: SyncConfig) -> bool:
    """Return whether to export again because the changes cannot be read."""
    error = check_preconditions(position, source)
    if error is not None and getattr(config, policy_of(error)) != "reexport":
        raise error
    return error is not None


def has_other_spec(position: Position, source: Source) -> bool:
    """Return whether the index was built with another spec."""
    return bool(position.unfinished_specs) or position.selection.get(DIGEST) != source.spec.get(DIGEST)


def next_range(position: Position, source: Source, config: SyncConfig) -> BatchRange:
    """Return what the next batch covers: the begun one if it can be repeated, else all that is new."""
    begun = position.batch
    if begun is None:
        return BatchRange(source.head)
    if (
        begun.schema == source.schema_json
        # The position has the current spec, because a sync follows a changed one first.
        and begun.selection.get(DIGEST) == position.selection.get(DIGEST)
        and begun.on_duplicate_identifier in ("", config.on_duplicate_identifier)
        and (not begun.failure or begun.to_snapshot_id == source.head)
    ):
        return BatchRange(begun.to_snapshot_id, tuple(begun.cuts), replayed=begun)
    # A begun batch is not repeated if the schema, the spec or the policy changed, or if its rows were rejected and the
    # table has changed since. With its versions, documents that it wrote would not get the fields of a new mapping.
    # The new batch reads the same snapshots as a step of their own, so it writes again whatever the earlier one wrote.
    return BatchRange(source.head, (*begun.cuts, begun.to_snapshot_id))


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
