"""What the next sync would do, and the report of an exploration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from icecdc_core.errors import IcecdcError
from icecdc_core.jobs.sync import sync_changes
from icecdc_core.reporting.exit_states import reason_without_values, state_of, utc_now
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
    next_sync: RunReport | IcecdcError,
    differences: Differences,
    document: DocumentView,
    query: QueryResult,
) -> dict[str, Any]:
    """Return what was shown in counts, and the id of one document, which is made of its identifier columns."""
    if isinstance(next_sync, RunReport):
        dry_run = {name: getattr(next_sync, name) for name in _OF_DRY_RUN}
    else:
        dry_run = {"state": state_of(next_sync), "problem": reason_without_values(next_sync)}
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


def dry_run_next_sync(view: View) -> RunReport | IcecdcError:
    """Return what the next sync would write, or its error; it reads as the sync would, and writes nothing."""
    # A dry run is no sync, so it leaves neither metrics nor a report of one.
    config = view.config.job_config(dry_run=True, metrics_folder="", metrics_url="", report_path="")
    try:
        return sync_changes(view.spark, config)
    except IcecdcError as error:
        return error.with_traceback(None)
