"""The report of an exploration: what was shown, in counts, and the id of one document; no other value of a row."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from icecdc_core.errors import IcecdcError
from icecdc_core.jobs.sync import sync_changes
from icecdc_core.reporting.card import report_html
from icecdc_core.reporting.exit_states import failure_of, failure_report, reason_without_values
from icecdc_core.reporting.reports import Report, RunReport
from icecdc_core.runs.nested import heads

if TYPE_CHECKING:
    from icecdc_core.explore.differences import Differences
    from icecdc_core.explore.documents import DocumentView, QueryResult
    from icecdc_core.explore.view import TimeLine, View


@dataclass(frozen=True)
class ExploreReport(Report):
    """What an exploration showed.

    Attributes:
        table: ``catalog.namespace.table``.
        index: The alias that readers use.
        kind: ``explore``.
        snapshot_id: The table's current snapshot; null if it is empty.
        position_snapshot_id: The snapshot that the index equals; null if it has no position or cannot be read.
        nested_snapshots: The current snapshot of each nested table.
        position_nested_snapshots: The snapshot of each nested table that the index equals.
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
    nested_snapshots: dict[str, int | None] = field(default_factory=dict)
    position_nested_snapshots: dict[str, int | None] = field(default_factory=dict)
    snapshots: int = 0
    changes: dict[str, Any] = field(default_factory=dict)
    next_sync: dict[str, Any] = field(default_factory=dict)
    document: dict[str, Any] = field(default_factory=dict)
    query: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0


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
        nested_snapshots=heads(view.source),
        position_nested_snapshots=view.position.nested_snapshots if view.position else {},
        snapshots=snapshots.snapshots,
        changes=differences.to_dict(),
        next_sync=next_sync.to_dict(),
        document=document.to_dict(),
        query=query.to_dict(),
        notes=list(snapshots.notes),
        seconds=round(time.monotonic() - view.since, 3),
    )


@dataclass(frozen=True, repr=False)
class NextSync:
    """The outcome of a dry run: its report, or that of its failure."""

    report: RunReport | None
    failure: dict[str, Any] = field(default_factory=dict)
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The outcome for the report; no value of a row."""
        if self.report is None:
            return {"state": self.failure["state"], "problem": self.reason}
        names = ("state", "strategy", "snapshots", "upserts", "deletes", "carryovers_removed", "seconds")
        return {name: getattr(self.report, name) for name in names}

    def _repr_html_(self) -> str:
        return report_html(self.report or self.failure)

    def __repr__(self) -> str:
        return self.report.text() if self.report else str(self.failure["message"])


def dry_run_next_sync(view: View) -> NextSync:
    """Count what the next sync would write; it reads the changed files as the sync would, and writes nothing."""
    # A dry run is no sync, so it leaves neither metrics nor a report of one.
    config = view.config.job_config(dry_run=True, metrics_folder="", metrics_url="", report_path="")
    try:
        return NextSync(sync_changes(view.spark, config))
    except IcecdcError as error:
        return NextSync(None, failure_of(error) or failure_report(error, {}), reason_without_values(error))
