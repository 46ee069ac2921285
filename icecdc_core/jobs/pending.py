"""What the next sync would do, and what each snapshot that it would read changed; nothing is written."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from icecdc_core.carryover import remove_carryovers
from icecdc_core.changes.row_changes import changes_frame
from icecdc_core.changes.scan_planning import plan_scans
from icecdc_core.changes.steps import plan_steps
from icecdc_core.columns import CHANGE_ORDINAL, CHANGE_TYPE, DELETE, INSERT, quoted
from icecdc_core.jobs.sync import sync_changes
from icecdc_core.reporting.card import BEHIND, NOTHING
from icecdc_core.reporting.reports import Report, text_table
from icecdc_core.session.job_session import with_job_session
from icecdc_core.shuffle import shuffle_by_identifiers
from icecdc_core.table.failures import spark_errors
from icecdc_core.table.iceberg_table import IcebergTable
from icecdc_core.table.metadata import TableMetadata
from icecdc_core.table.snapshots import committed_at, operation, rows_added, rows_removed
from icecdc_core.table.source import Source, open_source

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import SparkSession

    from icecdc_core.config import SyncConfig
    from icecdc_core.reporting.reports import RunReport


SUMMARY_COLUMNS = ("snapshot_id", "committed_at", "operation", "rows_added", "rows_removed")
EXACT_COLUMNS = ("snapshot_id", "committed_at", "operation", "inserted", "updated", "deleted", "carryovers_removed")
MOST_SNAPSHOTS = 20


@with_job_session
def changes_per_snapshot(
    spark: SparkSession, config: SyncConfig, report: RunReport, exact: bool = False
) -> pd.DataFrame:
    """Count what each snapshot of a sync changed, for the newest 20 of them.

    By default the counts come from the snapshots' own summaries and cost nothing: a snapshot that rewrites a file to
    update one of its rows adds and removes all rows of that file. An export follows no snapshots, so it has none.
    """
    import pandas as pd

    from icecdc_core.reporting.tables import NotebookFrame

    begin, end = report.from_snapshot_id, report.to_snapshot_id
    columns = list(EXACT_COLUMNS if exact else SUMMARY_COLUMNS)
    if end is None or begin == end or report.kind == "export" or "export" in report.strategy:
        return NotebookFrame.of(pd.DataFrame(columns=columns))
    if not exact:
        metadata = IcebergTable(spark, config.table).metadata()
        path = _path(metadata, begin, end)[-MOST_SNAPSHOTS:]
        summaries = [_summary_row(metadata, snapshot_id) for snapshot_id in path]
        return NotebookFrame.of(pd.DataFrame(summaries, columns=columns))
    source = open_source(spark, config)
    try:
        path = _path(source.metadata, begin, end)
        if len(path) > MOST_SNAPSHOTS:
            begin, path = path[-MOST_SNAPSHOTS - 1], path[-MOST_SNAPSHOTS:]
        with spark_errors(config, source.table):
            counts = _counts(source, begin, end)
    finally:
        source.table.release()
    rows = [{**_identity(source.metadata, each), **_NONE, **counts.get(each, {})} for each in path]
    return NotebookFrame.of(pd.DataFrame(rows, columns=columns))


_COUNTS = EXACT_COLUMNS[3:]
_NONE = dict.fromkeys(_COUNTS, 0)


def _path(metadata: TableMetadata, begin: int | None, end: int) -> list[int]:
    """Return the snapshots of the range; only its end if a rollback left no path between its ends."""
    return [
        snapshot_id
        for step in plan_steps(metadata, begin, end)
        for snapshot_id in (step.path or (step.to_snapshot_id,))
    ]


def _counts(source: Source, begin: int | None, end: int) -> dict[int, dict[str, int]]:
    """Count the changes of each snapshot; snapshots without a changed row of the selection are left out."""
    scans = plan_scans(source.table, source.metadata, begin, end, "snapshot")
    if not scans:
        return {}
    snapshots = {scan.step.ordinal: scan.step.to_snapshot_id for scan in scans}
    raw = changes_frame(source.table, scans, replace(source.selection, with_row_position=False))
    read = {row[CHANGE_ORDINAL]: row["count"] for row in raw.groupBy(CHANGE_ORDINAL).count().collect()}
    counts: dict[int, dict[str, int]] = {}
    for row in _by_kind(raw, source.key_columns).collect():
        left = row["inserted"] + row["deleted"] + 2 * row["updated"]
        counts[snapshots[row[CHANGE_ORDINAL]]] = {
            "inserted": row["inserted"],
            "updated": row["updated"],
            "deleted": row["deleted"],
            "carryovers_removed": (read.pop(row[CHANGE_ORDINAL]) - left) // 2,
        }
    # Every row of the remaining snapshots is carryover.
    counts |= {snapshots[ordinal]: {"carryovers_removed": rows // 2} for ordinal, rows in read.items()}
    return counts


def _by_kind(raw: DataFrame, identifier_columns: list[str]) -> DataFrame:
    """Count inserted, updated and deleted rows of each step."""
    shuffled = raw.transform(shuffle_by_identifiers, identifier_columns) if identifier_columns else raw
    ids = [F.col(quoted(name)) for name in identifier_columns]
    by_id = remove_carryovers(shuffled).groupBy(CHANGE_ORDINAL, *ids)
    sides = by_id.agg(
        F.count_if(F.col(CHANGE_TYPE) == F.lit(INSERT)).alias("inserts"),
        F.count_if(F.col(CHANGE_TYPE) == F.lit(DELETE)).alias("deletes"),
    )
    both = F.least("inserts", "deletes") if identifier_columns else F.lit(0)
    return sides.groupBy(CHANGE_ORDINAL).agg(
        F.sum(F.col("inserts") - both).alias("inserted"),
        F.sum(both).alias("updated"),
        F.sum(F.col("deletes") - both).alias("deleted"),
    )


def _summary_row(metadata: TableMetadata, snapshot_id: int) -> dict[str, Any]:
    snapshot = metadata.snapshot_by_id(snapshot_id)
    added, removed = (rows_added(snapshot), rows_removed(snapshot)) if snapshot else (0, 0)
    return {**_identity(metadata, snapshot_id), "rows_added": added, "rows_removed": removed}


def _identity(metadata: TableMetadata, snapshot_id: int) -> dict[str, Any]:
    snapshot = metadata.snapshot_by_id(snapshot_id)
    committed = committed_at(snapshot) if snapshot else None
    return {"snapshot_id": snapshot_id, "committed_at": committed, "operation": operation(snapshot)}


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
    def word(self) -> str:
        """The state in a word or two."""
        return NOTHING if self.next_sync["strategy"] == "none" else BEHIND

    @property
    def line(self) -> str:
        """What the next sync would do, in a few words."""
        sync = self.next_sync
        if sync["kind"] == "export":
            return f"the next sync exports {sync['upserts']:,} rows"
        return f"{sync['snapshots']:,} snapshots, {sync['upserts']:,} upserts, {sync['deletes']:,} deletes"

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
    """Count what each snapshot since the position changed, and what the next sync would write."""
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
