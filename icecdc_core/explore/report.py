"""What the next sync would do, and the report of an exploration."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from icecdc_core.errors import IcecdcError
from icecdc_core.jobs.sync import sync_changes
from icecdc_core.reporting.card import report_html
from icecdc_core.reporting.exit_states import failure_of, failure_report, reason_without_values, utc_now
from icecdc_core.reporting.reports import RunReport
from icecdc_core.runs.nested import heads

if TYPE_CHECKING:
    from icecdc_core.explore.differences import Differences
    from icecdc_core.explore.documents import DocumentView, QueryResult
    from icecdc_core.explore.view import TimeLine, View

_OF_DRY_RUN = ("state", "strategy", "snapshots", "upserts", "deletes", "carryovers_removed", "seconds")
_OF_CHANGES = ("from_snapshot_id", "to_snapshot_id", "inserts", "updates", "deletes", "carryovers_removed")


def explore_report(
    view: View,
    snapshots: TimeLine,
    next_sync: NextSync,
    differences: Differences,
    document: DocumentView,
    query: QueryResult,
) -> dict[str, Any]:
    """Return what was shown in counts, and the id of one document, which is made of its identifier columns."""
    if next_sync.report is None:
        dry_run = {"state": next_sync.failure["state"], "problem": next_sync.reason}
    else:
        dry_run = {name: getattr(next_sync.report, name) for name in _OF_DRY_RUN}
    return {
        "kind": "explore",
        "state": "ok",
        "table": view.config.table,
        "index": view.config.index,
        "snapshot_id": view.source.head,
        "position_snapshot_id": view.position_snapshot_id,
        "nested_snapshots": heads(view.source),
        "position_nested_snapshots": view.position.nested_snapshots if view.position else {},
        "snapshots": snapshots.snapshots,
        "changes": {name: getattr(differences, name) for name in _OF_CHANGES},
        "next_sync": dry_run,
        "document": {
            "document_id": document.document_id,
            "version": document.version,
            "in_table": bool(document.rows),
            "agrees": document.agrees,
            "changes": len(document.history),
        },
        "query": {"hits": query.total, "took_ms": query.took_ms, "problem": query.problem},
        "notes": list(snapshots.notes),
        "ended_at": utc_now(),
    }


@dataclass(frozen=True, repr=False)
class NextSync:
    """The outcome of a dry run: its report, or that of its failure."""

    report: RunReport | None
    failure: dict[str, Any] = field(default_factory=dict)
    reason: str = ""

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
