"""The mark of an ingest in a table: what it took, in the summary of the snapshot that brought it.

The table is the commit log. A mark says that everything below its offsets is in the table, so whoever looks first and
then writes with a mark that is published only while nothing has changed, can never write a record twice.
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
class Mark:
    """What a table says about an ingest.

    Attributes:
        offsets: Everything below is in the table.
        batch: Number of the batch that brought it; -1 before the first.
        snapshot_id: The snapshot that says so; None before the first.
        valid_through: ISO time up to which all partitions were complete then; "" if nobody knows.
    """

    offsets: Offsets = field(default_factory=dict)
    batch: int = -1
    snapshot_id: int | None = None
    valid_through: str = ""

    def properties(self, job: str, run_id: str) -> dict[str, str]:
        """The mark as properties of a snapshot."""
        told = {
            JOB: job,
            BATCH: str(self.batch),
            OFFSETS: offsets.text(self.offsets),
            VALID_THROUGH: self.valid_through,
            RUN: run_id,
        }
        return {key: value for key, value in told.items() if value}


def head_of(table: Any) -> int | None:
    """The snapshot that the main branch shows; None while there is none."""
    snapshot = table.currentSnapshot()
    return None if snapshot is None else int(snapshot.snapshotId())


def find_mark(table: Any, job: str, known: dict[int, Mark] | None = None) -> Mark:
    """The newest mark of the job among the ancestors of the table's current snapshot.

    Args:
        table: Iceberg's table, as `catalogs.load_table` returns it.
        job: Whose mark; others, and commits without any, lie between.
        known: Marks that were found before, by the snapshot the search began at: the search ends there.

    Returns:
        The mark; an empty one if no ancestor that still exists has any.
    """
    for snapshot in ancestors(table):
        identifier = int(snapshot.snapshotId())
        if known and identifier in known:
            return known[identifier]
        summary = snapshot.summary()
        if summary.get(JOB) == job:
            return Mark(
                offsets=offsets.parse(summary.get(OFFSETS)),
                batch=int(summary.get(BATCH) or -1),
                snapshot_id=identifier,
                valid_through=str(summary.get(VALID_THROUGH) or ""),
            )
    return Mark()


def is_ancestor(table: Any, snapshot_id: int, back_to: int | None = None) -> bool:
    """Whether a snapshot is the table's current one or an ancestor of it; the search ends at `back_to`."""
    for snapshot in ancestors(table):
        if int(snapshot.snapshotId()) == back_to:
            return False
        if int(snapshot.snapshotId()) == snapshot_id:
            return True
    return False


def ancestors(table: Any) -> Iterator[Any]:
    """The table's current snapshot and its ancestors, newest first, as far as they still exist."""
    snapshot = table.currentSnapshot()
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parentId()
        snapshot = None if parent is None else table.snapshot(int(parent))
