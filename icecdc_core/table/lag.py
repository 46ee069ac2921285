"""How far an index is behind its table, in snapshots and in seconds; pure, over the table's metadata."""

from __future__ import annotations

import time

from pyiceberg.table.metadata import TableMetadata

from icecdc_core.table.snapshots import ancestors, common_ancestor


def lag(metadata: TableMetadata, position: int | None, head: int | None, now: float | None = None) -> tuple[int, float]:
    """Return the snapshots that the index does not hold, and the age of the oldest of them in seconds.

    Args:
        metadata: The table's metadata.
        position: The snapshot the index equals; None: it holds none.
        head: The snapshot it is compared with.
        now: The time, in seconds since 1970. Default: now.
    """
    common = common_ancestor(metadata, position, head) if position is not None else None
    chain = ancestors(metadata, head)
    behind = chain[: chain.index(common)] if common in chain else chain
    if not behind or position == head:
        return 0, 0.0
    times = [snapshot.timestamp_ms for snapshot in metadata.snapshots if snapshot.snapshot_id in set(behind)]
    return len(behind), round(max(0.0, (time.time() if now is None else now) - min(times) / 1000), 3)
