"""The lag of an index behind its table, in snapshots and seconds, computed from the table's metadata."""

from __future__ import annotations

import time

from pyiceberg.table.metadata import TableMetadata

from icecdc_core.table.snapshots import ancestors, common_ancestor


def lag(metadata: TableMetadata, position: int | None, head: int | None, now: float | None = None) -> tuple[int, float]:
    """Return the number of snapshots that the index lacks, and the age of the oldest of them in seconds."""
    common = common_ancestor(metadata, position, head) if position is not None else None
    chain = ancestors(metadata, head)
    behind = chain[: chain.index(common)] if common in chain else chain
    if not behind or position == head:
        return 0, 0.0
    times = [snapshot.timestamp_ms for snapshot in metadata.snapshots if snapshot.snapshot_id in set(behind)]
    return len(behind), round(max(0.0, (time.time() if now is None else now) - min(times) / 1000), 3)
