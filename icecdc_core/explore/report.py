"""What the next sync would do, and the report of an exploration."""

from typing import Any

from icecdc_core.config import SyncConfig
from icecdc_core.errors import IcecdcError
from icecdc_core.explore.view import Part, View
from icecdc_core.jobs.sync import sync_changes
from icecdc_core.reporting.exit_states import reason_without_values, state_of, utc_now
from icecdc_core.reporting.reports import RunReport
from icecdc_core.runs.plan import heads


def explore_report(
    view: View, snapshots: Part, next_sync: RunReport | IcecdcError, differences: Part, document: Part, query: Part
) -> dict[str, Any]:
    """Return what was shown in counts, and the id of one document, which is made of its identifier columns."""
    if isinstance(next_sync, RunReport):
        dry_run = {
            name: getattr(next_sync, name)
            for name in ("state", "strategy", "snapshots", "upserts", "deletes", "carryovers_removed", "seconds")
        }
    else:
        dry_run = {"state": state_of(next_sync), "problem": reason_without_values(next_sync)}
    return {
        "kind": "explore",
        "state": "ok",
        "table": view.config.table,
        "index": view.config.index,
        "snapshot_id": view.source.head,
        "position_snapshot_id": view.position.snapshot_id,
        "nested_snapshots": heads(view.source),
        "position_nested_snapshots": view.position.nested_snapshots,
        **snapshots.report,
        "changes": differences.report,
        "next_sync": dry_run,
        "document": document.report,
        "query": query.report,
        "ended_at": utc_now(),
    }


def dry_run_next_sync(view: View) -> RunReport | IcecdcError:
    """Return what the next sync would write, or its error; it reads as the sync would, and writes nothing."""
    given = {name: getattr(view.config, name) for name in view.config.model_fields_set & SyncConfig.model_fields.keys()}
    # A dry run is no sync, so it leaves neither metrics nor a report of one.
    given |= {"dry_run": True, "metrics_folder": "", "metrics_url": "", "report_path": ""}
    try:
        return sync_changes(view.spark, SyncConfig(**given))
    except IcecdcError as error:
        return error.with_traceback(None)
