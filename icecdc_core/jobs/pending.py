"""What the next sync would do, and what each snapshot that it would read changed; nothing is written."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from icecdc_core.jobs.snapshot_counts import changes_per_snapshot
from icecdc_core.jobs.sync import sync_changes
from icecdc_core.reporting.reports import Report
from icecdc_core.reporting.text_tables import text_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from icecdc_core.config import SyncConfig

_COUNTS = ("inserted", "updated", "deleted", "carryovers_removed")


@dataclass(frozen=True)
class PendingChanges(Report):
    """What an index lacks.

    Attributes:
        table: ``catalog.namespace.table``.
        index: The alias that readers use.
        kind: ``changes``.
        snapshots: The newest 20 snapshots that the next sync would read, oldest first: ``snapshot_id``,
            ``committed_at``, ``operation``, ``inserted``, ``updated``, ``deleted`` and ``carryovers_removed``.
        next_sync: The report of a dry run of the next sync.
        seconds: Seconds it took.
    """

    table: str
    index: str
    kind: str = "changes"
    snapshots: list[dict[str, Any]] = field(default_factory=list)
    next_sync: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def line(self) -> str:
        """What the next sync would do, in a few words."""
        sync = self.next_sync
        if sync["kind"] == "export":
            return f"the next sync exports {sync['upserts']:,} rows"
        return f"{sync['snapshots']:,} snapshots, {sync['upserts']:,} upserts, {sync['deletes']:,} deletes"

    def rows(self) -> list[tuple[str, str]]:
        """What a person wants to know first, as pairs of a name and a readable value."""
        return [("table", self.table), ("index", self.index), ("next sync", self.line)]

    def text(self) -> str:
        """The report as plain text: a row for each snapshot, and what the next sync would do."""
        table = [("snapshot", "committed", "operation", *(name.replace("_", " ") for name in _COUNTS))]
        for each in self.snapshots:
            when = f"{each['committed_at']:%Y-%m-%d %H:%M:%S}" if each["committed_at"] else ""
            counts = (f"{each[name]:,}" for name in _COUNTS)
            table.append((str(each["snapshot_id"]), when, each["operation"], *counts))
        shown = [text_table(table, numbers=(3, 4, 5, 6)), ""] if self.snapshots else []
        return "\n".join([*shown, super().text()])


def pending_changes(spark: SparkSession, config: SyncConfig) -> PendingChanges:
    """Count what each snapshot since the position changed, and what the next sync would write.

    It reads every changed file, as the sync would, and once more for the counts of each snapshot.
    """
    begin = time.monotonic()
    # A dry run is no sync, so it leaves no metrics of one.
    own = config.replace(dry_run=True, metrics_folder="", metrics_url="")
    report = sync_changes(spark, own)
    snapshots = changes_per_snapshot(spark, own, report, exact=True)
    return PendingChanges(
        table=config.table,
        index=config.index,
        snapshots=[{str(name): value for name, value in row.items()} for row in snapshots.to_dict("records")],
        next_sync=report.to_dict(),
        seconds=round(time.monotonic() - begin, 3),
    )
