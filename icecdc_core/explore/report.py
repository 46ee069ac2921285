"""The report of an exploration: what was shown, in counts, and the id of one document; no other value of a row."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from icecdc_core.reporting.reports import Report

if TYPE_CHECKING:
    from icecdc_core.explore.differences import Differences
    from icecdc_core.explore.documents import DocumentView
    from icecdc_core.explore.next_sync import NextSync
    from icecdc_core.explore.queries import QueryResult
    from icecdc_core.explore.time_line import TimeLine
    from icecdc_core.explore.view import View


@dataclass(frozen=True)
class ExploreReport(Report):
    """What an exploration showed.

    Attributes:
        table: ``catalog.namespace.table``.
        index: The alias that readers use.
        kind: ``explore``.
        snapshot_id: The table's current snapshot; null if it is empty.
        position_snapshot_id: The snapshot that the index equals; null if it has no position or cannot be read.
        snapshots: How many snapshots the table has.
        changes: The two snapshots that were compared, and the counts of what changed.
        next_sync: What the next sync would do.
        document: What was found of one document. Its id is the text of the identifier columns.
        query: The hits of the query, and the time it took.
        notes: What is good to know about the index and its table.
        seconds: Seconds it took.
    """

    table: str
    index: str
    kind: str = "explore"
    snapshot_id: int | None = None
    position_snapshot_id: int | None = None
    snapshots: int = 0
    changes: dict[str, Any] = field(default_factory=dict)
    next_sync: dict[str, Any] = field(default_factory=dict)
    document: dict[str, Any] = field(default_factory=dict)
    query: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def rows(self) -> list[tuple[str, str]]:
        """What a person wants to know first, as pairs of a name and a readable value."""
        return [("table", self.table), ("index", self.index), ("snapshots", f"{self.snapshots:,}")]


def explore_report(
    view: View,
    snapshots: TimeLine,
    next_sync: NextSync,
    differences: Differences,
    document: DocumentView,
    query: QueryResult,
) -> ExploreReport:
    """Return the report on what was shown."""
    return ExploreReport(
        table=view.config.table,
        index=view.config.index,
        snapshot_id=view.source.head,
        position_snapshot_id=view.position_snapshot_id,
        snapshots=snapshots.snapshots,
        changes=differences.to_dict(),
        next_sync=next_sync.to_dict(),
        document=document.to_dict(),
        query=query.to_dict(),
        notes=list(snapshots.notes),
        seconds=view.seconds,
    )
