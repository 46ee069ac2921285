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
    """The offsets of one job in one table.

    Attributes:
        offsets: All records below are in the table.
        batch: Number of the batch that wrote them; -1 before the first.
        snapshot_id: The snapshot that records them; None before the first.
        valid_through: ISO time up to which all partitions were complete then; "" if unknown.
    """

    offsets: Offsets = field(default_factory=dict)
    batch: int = -1
    snapshot_id: int | None = None
    valid_through: str = ""

    def properties(self, job: str, run_id: str) -> dict[str, str]:
        """Return the summary properties of a snapshot that records these offsets.

        Args:
            job: The job that makes the snapshot.
            run_id: Its run.
        """
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
    """Find the newest offsets of a job among the table's current snapshot and its ancestors.

    Args:
        table: Iceberg's table, as `catalogs.load_table` returns it.
        job: The job. Snapshots of other writers may be newer.
        earlier: What an earlier search returned, by the snapshot at which it began. This search ends there.

    Returns:
        The offsets; empty ones if no ancestor that still exists has any.
    """
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
    """Return whether a snapshot is the table's current one or an ancestor of it.

    Args:
        table: Iceberg's table.
        snapshot_id: The snapshot.
        back_to: The search ends at this snapshot; None: at the oldest that still exists.
    """
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
