"""Which two snapshots to compare: from what a person wrote to snapshots of the table; pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pyiceberg.table.metadata import TableMetadata

from icecdc_core.errors import ConfigError
from icecdc_core.table.snapshots import ancestors, operation

CURRENT, POSITION, EARLIEST = "current", "position", "earliest"
_BACK = re.compile(r"-\d{1,4}|0")
_MOST_LISTED = 12


@dataclass(frozen=True)
class SnapshotRange:
    """Two snapshots to compare."""

    start: int | None
    end: int | None
    note: str


def choose_snapshots(
    metadata: TableMetadata, head: int | None, position: int | None, from_snapshot: str, to_snapshot: str
) -> SnapshotRange:
    """Return the two snapshots that the parameters name, or those that a person most likely wants to compare."""
    if head is None:
        # What was asked for is checked nevertheless.
        for parameter, text in (("from_snapshot", from_snapshot), ("to_snapshot", to_snapshot)):
            if text not in ("", CURRENT, EARLIEST):
                _named(metadata, head, position, parameter, text)
        return SnapshotRange(None, None, "The table has no snapshot yet.")
    end = _named(metadata, head, position, "to_snapshot", to_snapshot) if to_snapshot else head
    if end is None:
        return SnapshotRange(None, None, "Before the first snapshot the table is empty.")
    if from_snapshot:
        return SnapshotRange(_named(metadata, head, position, "from_snapshot", from_snapshot), end, "")
    known = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    if position in known and position != end and not to_snapshot:
        return SnapshotRange(position, end, "That is what the index lacks.")
    # A compaction changes no row, so the snapshot before it is the one to look at.
    changing = next((each for each in ancestors(metadata, end) if operation(known[each]) != "replace"), end)
    parent = known[changing].parent_snapshot_id
    if parent is not None and parent not in known:
        return SnapshotRange(
            None, None, f"The snapshot before {changing} has expired, so there is nothing to compare with."
        )
    reason = "The index is up to date, so these are the changes" if position == end else "The changes"
    return SnapshotRange(parent, end, f"{reason} of snapshot {changing} alone.")


def _named(metadata: TableMetadata, head: int | None, position: int | None, parameter: str, text: str) -> int | None:
    """The snapshot that a text names; None is the empty table before the first snapshot."""
    known = {snapshot.snapshot_id for snapshot in metadata.snapshots}
    chain = ancestors(metadata, head)
    if text == CURRENT:
        return head
    if text == POSITION:
        if position is None:
            raise _snapshot_error(metadata, chain, parameter, text, "The index has no position yet")
        if position not in known:
            raise _snapshot_error(
                metadata, chain, parameter, text, f"The snapshot of the index, {position}, has expired"
            )
        return position
    if text == EARLIEST:
        oldest = metadata.snapshot_by_id(chain[-1]) if chain else None
        if oldest is not None and oldest.parent_snapshot_id is not None:
            raise _snapshot_error(metadata, chain, parameter, text, "The first snapshots of the table have expired")
        return None
    if text in metadata.refs:
        return metadata.refs[text].snapshot_id
    if _BACK.fullmatch(text):
        if -int(text) < len(chain):
            return chain[-int(text)]
        raise _snapshot_error(metadata, chain, parameter, text, f"The branch has only {len(chain)} snapshots")
    if text.isdecimal() and int(text) in known:
        return int(text)
    problem = "The table has no such snapshot; it may have expired" if text.isdecimal() else "This is no snapshot"
    raise _snapshot_error(metadata, chain, parameter, text, problem)


def _snapshot_error(metadata: TableMetadata, chain: list[int], parameter: str, text: str, problem: str) -> ConfigError:
    newest = sorted(metadata.snapshots, key=lambda each: each.timestamp_ms, reverse=True)
    ids = [str(each.snapshot_id) for each in newest]
    listed = ", ".join(ids[:_MOST_LISTED]) + (f" and {len(ids) - _MOST_LISTED} older" if ids[_MOST_LISTED:] else "")
    names = ", ".join(sorted(metadata.refs))
    counted = f", 0 to {1 - len(chain)} to count back" if len(chain) > 1 else ""
    remedy = f"use one of {listed}; {names}{counted}" if ids else "leave it empty: the table has no snapshot yet"
    return ConfigError(problem, subject=parameter, value=text, remedy=remedy)
