"""The snapshots of a table: what each did, its branches and tags, and where the index stands; metadata alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from icecdc_core.explore.view import Part
from icecdc_core.table.metadata import Snapshot, TableMetadata
from icecdc_core.table.snapshots import ancestors, committed_at, operation, rows_added, rows_removed

if TYPE_CHECKING:
    import pandas as pd

    from icecdc_core.explore.view import View


@dataclass(frozen=True, repr=False)
class TimeLine(Part):
    """The newest snapshots of a table, and where its index stands."""

    entries: tuple[dict[str, Any], ...]
    snapshots: int
    notes: tuple[str, ...] = ()

    def table(self) -> pd.DataFrame:
        """The snapshots as a table, newest first."""
        import pandas as pd

        columns = ["snapshot_id", "committed_at", "operation", "rows_added", "rows_removed", "what"]
        return pd.DataFrame(list(self.entries), columns=columns)

    def shown(self) -> Iterator[str | pd.DataFrame]:
        """Yield the notes and the table."""
        yield f"{len(self.entries):,} of {self.snapshots:,} snapshots; max_snapshots shows more."
        yield from self.notes
        yield self.table()


def show_time_line(view: View) -> TimeLine:
    """Return the newest snapshots of the table; reads metadata only."""
    metadata, position = view.source.metadata, view.position_snapshot_id
    entries = time_line(metadata, view.source.head, position, view.config.max_snapshots)
    notes = [view.missing, *view.notes]
    if position is not None and metadata.snapshot_by_id(position) is None:
        notes.append(f"The snapshot of the index, {position}, has expired.")
    return TimeLine(entries, len(metadata.snapshots), tuple(filter(None, notes)))


def time_line(metadata: TableMetadata, head: int | None, position: int | None, most: int) -> tuple[dict[str, Any], ...]:
    """Return the newest snapshots of a table, newest first."""
    heads = {name: ref.snapshot_id for name, ref in sorted(metadata.refs.items())}
    reachable = {each for named in (*heads.values(), head) for each in ancestors(metadata, named)}

    def what(snapshot_id: int) -> str:
        names = [name for name, named in heads.items() if named == snapshot_id]
        names += ["the index"] if snapshot_id == position else []
        return ", ".join([*names, *([] if snapshot_id in reachable else ["rolled back"])])

    return tuple(
        {
            "snapshot_id": each.snapshot_id,
            "committed_at": committed_at(each),
            "operation": operation(each),
            "rows_added": rows_added(each),
            "rows_removed": rows_removed(each),
            "what": what(each.snapshot_id),
        }
        for each in sorted(metadata.snapshots, key=_moment, reverse=True)[:most]
    )


def _moment(snapshot: Snapshot) -> tuple[int, int]:
    # Clocks of writers may differ; sequence numbers do not (format v1 has none).
    return int(snapshot.sequence_number or 0), snapshot.timestamp_ms
