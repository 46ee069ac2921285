"""Recognize a table that was dropped, created again or rolled back since the ingest last wrote into it.

The offsets of a table are in the ancestors of its current snapshot. If they are missing, or older than those in the
commit log, the history of the table says why.
"""

from __future__ import annotations

from typing import Any, Literal

from icecdc_core.ingest.kafka import offsets
from icecdc_core.ingest.tables.commits.commit_log import TableEntry
from icecdc_core.ingest.tables.commits.table_offsets import TableOffsets, ancestors, is_ancestor

State = Literal["current", "log is ahead", "replaced", "rolled back"]


def table_state(table: Any, recorded: TableOffsets, logged: TableEntry) -> State:
    """Compare a table with what the commit log says about it."""
    if logged.uuid and logged.uuid != str(table.uuid()):
        return "replaced"
    if offsets.covers(recorded.offsets, offsets.from_json(logged.offsets)):
        return "current"
    if logged.snapshot_id is None or is_ancestor(table, logged.snapshot_id):
        return "log is ahead"
    return "log is ahead" if _has_expired(table, recorded, logged) else "rolled back"


def _has_expired(table: Any, recorded: TableOffsets, logged: TableEntry) -> bool:
    """Return whether the logged snapshot was removed because it was old, rather than by a rollback.

    It was a rollback if an ancestor is older than the logged snapshot: a snapshot with older offsets, with a lower
    sequence number, or the first of all. Format version 1 has no sequence numbers, so the time of the snapshots
    decides there.
    """
    if recorded.snapshot_id is not None or table.snapshot(logged.snapshot_id) is not None:
        return False
    oldest = None
    for snapshot in ancestors(table):
        oldest = snapshot
    if oldest is None or oldest.parentId() is None:
        return False
    sequence_number = logged.sequence_number or 0
    if sequence_number == 0:
        return logged.snapshot_ms is None or int(oldest.timestampMillis()) >= logged.snapshot_ms
    # The snapshot with the next number has the logged one as its parent, unless that one was rolled back.
    return int(oldest.sequenceNumber()) > sequence_number + 1 or int(oldest.parentId()) == logged.snapshot_id
