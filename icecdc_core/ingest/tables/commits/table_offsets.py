"""The Kafka offsets that a table records: an ingest writes them into the summary of each snapshot it makes.

So the table itself is the commit log. All records below the offsets are in the table. An ingest reads the offsets,
writes, and publishes only if the table has not changed since. So it cannot write a record twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from icecdc_core.ingest.kafka import offsets
from icecdc_core.ingest.kafka.offsets import Offsets

PREFIX = "icecdc.ingest."
JOB, BATCH, OFFSETS, VALID_THROUGH, ATTEMPT, RUN = (
    PREFIX + name for name in ("job", "batch", "offsets", "valid-through", "attempt", "run")
)


@dataclass(frozen=True)
class TableOffsets:
    """The offsets of one job in one table."""

    offsets: Offsets = field(default_factory=dict)
    batch: int = -1
    snapshot_id: int | None = None
    valid_through: str = ""

    def properties(self, job: str, run_id: str) -> dict[str, str]:
        """Return the summary properties of a snapshot that records these offsets."""
        properties = {
            JOB: job,
            BATCH: str(self.batch),
            OFFSETS: offsets.to_json(self.offsets),
            VALID_THROUGH: self.valid_through,
            RUN: run_id,
        }
        return {key: value for key, value in properties.items() if value}


def current_snapshot_id(table: Any) -> int | None:
    """Return the id of the table's current snapshot; None for an empty table."""
    snapshot = table.currentSnapshot()
    return None if snapshot is None else int(snapshot.snapshotId())


def find_table_offsets(table: Any, job: str, earlier: dict[int, TableOffsets] | None = None) -> TableOffsets:
    """Find the newest offsets of a job among the table's current snapshot and its ancestors."""
    for snapshot in ancestors(table):
        snapshot_id = int(snapshot.snapshotId())
        if earlier and snapshot_id in earlier:
            return earlier[snapshot_id]
        summary = snapshot.summary()
        if summary.get(JOB) == job:
            return TableOffsets(
                offsets=offsets.from_json(summary.get(OFFSETS)),
                batch=int(summary.get(BATCH) or -1),
                snapshot_id=snapshot_id,
                valid_through=str(summary.get(VALID_THROUGH) or ""),
            )
    return TableOffsets()


def is_ancestor(table: Any, snapshot_id: int, back_to: int | None = None) -> bool:
    """Return whether a snapshot is the table's current one or an ancestor of it."""
    for snapshot in ancestors(table):
        if int(snapshot.snapshotId()) == back_to:
            return False
        if int(snapshot.snapshotId()) == snapshot_id:
            return True
    return False


def ancestors(table: Any) -> Iterator[Any]:
    """Yield the table's current snapshot and its ancestors, newest first, as far as they still exist."""
    snapshot = table.currentSnapshot()
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parentId()
        snapshot = None if parent is None else table.snapshot(int(parent))
