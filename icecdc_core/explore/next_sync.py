"""What a sync would do now: the dry run of the sync itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from icecdc_core.errors import IcecdcError
from icecdc_core.explore.html import Part, paragraphs, table
from icecdc_core.jobs.sync import sync_changes
from icecdc_core.reporting.exit_states import state_of
from icecdc_core.reporting.failure_reasons import reason_without_values
from icecdc_core.reporting.reports import RunReport

if TYPE_CHECKING:
    from icecdc_core.explore.view import View


@dataclass(frozen=True, repr=False)
class NextSync(Part):
    """The outcome of a dry run."""

    report: RunReport | None
    problem: str = ""
    state: str = "ok"
    reason: str = ""

    @property
    def line(self) -> str:
        """The outcome in a sentence."""
        if self.report is None:
            return f"The next sync would fail: {self.problem}"
        found = self.report
        if "export" in found.strategy:
            return f"The next sync would export the table: {found.upserts:,} documents."
        if not found.snapshots:
            return "Nothing: the index is up to date."
        return (
            f"The next sync would apply {found.snapshots:,} snapshots: {found.upserts:,} upserts and "
            f"{found.deletes:,} deletes. {found.carryovers_removed:,} rewritten rows are the same and are not sent."
        )

    def to_dict(self) -> dict[str, Any]:
        """The outcome for the report."""
        if self.report is None:
            return {"state": self.state, "problem": self.reason}
        names = ("strategy", "snapshots", "upserts", "deletes", "carryovers_removed", "seconds")
        return {"state": self.state, **{name: getattr(self.report, name) for name in names}}

    def _repr_html_(self) -> str:
        if self.report is None or not self.report.steps:
            return paragraphs(self.line)
        head = ("from snapshot", "to snapshot", "files read", "bytes read")
        rows = [
            (
                str(step["from_snapshot_id"] or "the empty table"),
                str(step["to_snapshot_id"]),
                f"{step['files_before'] + step['files_after']:,}",
                f"{step['bytes']:,}",
            )
            for step in self.report.steps
        ]
        return paragraphs(self.line) + table(head, rows)


def dry_run_next_sync(view: View) -> NextSync:
    """Count what the next sync would write; it reads the changed files as the sync would, and writes nothing."""
    # A dry run is no sync, so it leaves neither metrics nor a report of one.
    config = view.config.job_config(dry_run=True, metrics_folder="", metrics_url="", report_path="")
    try:
        return NextSync(sync_changes(view.spark, config))
    except IcecdcError as error:
        return NextSync(None, str(error), state_of(error), reason_without_values(error))
