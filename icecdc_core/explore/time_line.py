"""The snapshots of a table: what each did, its branches and tags, and where the index stands; metadata alone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from icecdc_core.explore.figures import Part, paragraphs, table
from icecdc_core.table.metadata import Snapshot, TableMetadata
from icecdc_core.table.snapshots import ancestors, committed_at, operation, rows_added, rows_removed

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from icecdc_core.explore.view import View


@dataclass(frozen=True)
class Entry:
    """One snapshot."""

    snapshot_id: int
    committed_at: datetime
    operation: str
    rows_added: int
    rows_removed: int
    names: tuple[str, ...]
    is_reachable: bool
    has_index: bool

    @property
    def what(self) -> str:
        """Where the snapshot is, and who stands there, in a few words."""
        names = list(self.names)
        if self.has_index:
            names.append("the index")
        if not self.is_reachable:
            names.append("rolled back")
        return ", ".join(names)


@dataclass(frozen=True, repr=False)
class TimeLine(Part):
    """The newest snapshots of a table, and where its index stands."""

    entries: tuple[Entry, ...]
    snapshots: int
    notes: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """How many snapshots there are, and where the index stands."""
        return " ".join([f"{self.snapshots:,} snapshots.", *self.notes])

    def table(self) -> pd.DataFrame:
        """The snapshots as a table, newest first."""
        import pandas as pd

        columns = ["snapshot_id", "committed_at", "operation", "rows_added", "rows_removed", "what"]
        return pd.DataFrame([[getattr(each, name) for name in columns] for each in self.entries], columns=columns)

    def figure(self) -> Figure:
        """The snapshots as a figure, newest on top."""
        from icecdc_core.reporting.figures import changes_figure

        return changes_figure(self.table())

    def _repr_html_(self) -> str:
        from icecdc_core.explore.figures import as_html

        older = self.snapshots - len(self.entries)
        rows = [
            (
                str(each.snapshot_id),
                f"{each.committed_at:%Y-%m-%d %H:%M:%S}",
                each.operation,
                f"{each.rows_added:,}",
                f"{each.rows_removed:,}",
                each.what,
            )
            for each in self.entries
        ]
        head = ("snapshot", "committed (UTC)", "operation", "rows added", "rows removed", "")
        more = (f"{older:,} older snapshots are not shown; max_snapshots shows more.",) if older else ()
        shown = as_html(self.figure()) if self.entries else ""
        return shown + paragraphs(*self.notes, *more) + (table(head, rows) if rows else "")


def show_time_line(view: View) -> TimeLine:
    """Return the newest snapshots of the table; reads metadata only."""
    metadata = view.source.metadata
    entries = time_line(metadata, view.source.head, view.position_snapshot_id, view.config.max_snapshots)
    notes = view.notes
    position = view.position_snapshot_id
    if position is not None and metadata.snapshot_by_id(position) is None:
        notes = (f"The snapshot of the index, {position}, has expired.", *notes)
    elif position is not None and position not in {each.snapshot_id for each in entries}:
        notes = (f"The snapshot of the index, {position}, is older than those shown.", *notes)
    return TimeLine(entries, len(metadata.snapshots), (*((view.missing,) if view.missing else ()), *notes))


def time_line(
    metadata: TableMetadata,
    head: int | None,
    position: int | None,
    most: int,
) -> tuple[Entry, ...]:
    """Return the newest snapshots of a table, newest first."""
    heads = [ref.snapshot_id for ref in metadata.refs.values()] + ([head] if head is not None else [])
    reachable = {each for named in heads for each in ancestors(metadata, named)}
    names: dict[int, list[str]] = {}
    for name, ref in sorted(metadata.refs.items()):
        names.setdefault(ref.snapshot_id, []).append(name)
    newest = sorted(metadata.snapshots, key=_moment, reverse=True)[:most]
    return tuple(
        Entry(
            snapshot_id=each.snapshot_id,
            committed_at=committed_at(each),
            operation=operation(each),
            rows_added=rows_added(each),
            rows_removed=rows_removed(each),
            names=tuple(names.get(each.snapshot_id, ())),
            is_reachable=each.snapshot_id in reachable,
            has_index=each.snapshot_id == position,
        )
        for each in newest
    )


def _moment(snapshot: Snapshot) -> tuple[int, int]:
    # Clocks of writers may differ; sequence numbers do not (format v1 has none).
    return int(snapshot.sequence_number or 0), snapshot.timestamp_ms
