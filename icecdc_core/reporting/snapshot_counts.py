"""What changed in each snapshot of a run, counted for a person to look at; it only reads."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from icecdc_core.carryover import remove_carryovers
from icecdc_core.changes.row_changes import changes_frame
from icecdc_core.changes.scan_planning import plan_scans
from icecdc_core.columns import CHANGE_ORDINAL, CHANGE_TYPE, DELETE, INSERT, quoted
from icecdc_core.shuffle import shuffle_by_identifiers
from icecdc_core.table.read_failures import spark_errors
from icecdc_core.table.snapshots import plan_steps
from icecdc_core.table.source import Source, open_source

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import SparkSession

    from icecdc_core.config import SyncConfig
    from icecdc_core.reporting.reports import RunReport

COLUMNS = ("snapshot_id", "committed_at", "operation", "inserted", "updated", "deleted", "carryovers_removed")
MOST_SNAPSHOTS = 20


def changes_per_snapshot(spark: SparkSession, config: SyncConfig, report: RunReport) -> pd.DataFrame:
    """Count what each snapshot of a sync changed, for the newest 20 of them.

    A row that was deleted and inserted under the same identifier within one snapshot counts as updated. An export
    follows no snapshots, so it has none to show.

    Args:
        spark: A session in which the table's catalog is configured, see ``get_spark``.
        config: The parameters of the run.
        report: What the run did.

    Returns:
        One row a snapshot, oldest first, compactions among them: ``snapshot_id``, ``committed_at``, ``operation``,
        ``inserted``, ``updated``, ``deleted``, ``carryovers_removed``.
    """
    import pandas as pd

    begin, end = report.from_snapshot_id, report.to_snapshot_id
    if end is None or begin == end or report.kind == "export" or "export" in report.strategy:
        return pd.DataFrame(columns=list(COLUMNS))
    source = open_source(spark, config)
    try:
        path = _path(source, begin, end)
        if len(path) > MOST_SNAPSHOTS:
            begin, path = path[-MOST_SNAPSHOTS - 1], path[-MOST_SNAPSHOTS:]
        with spark_errors(config, source.table):
            counts = _counts(source, begin, end)
    finally:
        source.table.release()
    return pd.DataFrame([_row(source, snapshot_id, counts) for snapshot_id in path], columns=list(COLUMNS))


def _path(source: Source, begin: int | None, end: int) -> list[int]:
    """The snapshots of the range; after a rollback, when none leads from one end to the other, its end alone."""
    return [
        snapshot_id
        for step in plan_steps(source.metadata, begin, end)
        for snapshot_id in (step.path or (step.to_snapshot_id,))
    ]


def _counts(source: Source, begin: int | None, end: int) -> dict[int, dict[str, int]]:
    """Counts by snapshot; snapshots that touched no row of the selection are not among them."""
    scans = plan_scans(source.table, source.metadata, begin, end, "snapshot")
    if not scans:
        return {}
    snapshots = {scan.step.ordinal: scan.step.to_snapshot_id for scan in scans}
    raw = changes_frame(source.table, scans, replace(source.selection, with_row_position=False))
    read = {row[CHANGE_ORDINAL]: row["count"] for row in raw.groupBy(CHANGE_ORDINAL).count().collect()}
    counts: dict[int, dict[str, int]] = {}
    for row in _by_kind(raw, source.identifier_columns).collect():
        left = row["inserted"] + row["deleted"] + 2 * row["updated"]
        counts[snapshots[row[CHANGE_ORDINAL]]] = {
            "inserted": row["inserted"],
            "updated": row["updated"],
            "deleted": row["deleted"],
            "carryovers_removed": (read.pop(row[CHANGE_ORDINAL]) - left) // 2,
        }
    # Of these nothing was left: every row that was read is carryover.
    counts |= {snapshots[ordinal]: {"carryovers_removed": rows // 2} for ordinal, rows in read.items()}
    return counts


def _by_kind(raw: DataFrame, identifier_columns: list[str]) -> DataFrame:
    """Inserted, updated and deleted rows of each step."""
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


def _row(source: Source, snapshot_id: int, counts: dict[int, dict[str, int]]) -> dict[str, Any]:
    snapshot = source.metadata.snapshot_by_id(snapshot_id)
    found = counts.get(snapshot_id, {})
    committed = datetime.fromtimestamp(snapshot.timestamp_ms / 1000, timezone.utc) if snapshot else None
    return {
        "snapshot_id": snapshot_id,
        "committed_at": committed,
        "operation": snapshot.summary.operation.value if snapshot and snapshot.summary else "unknown",
        **{name: found.get(name, 0) for name in COLUMNS[3:]},
    }
