"""What each snapshot of a sync changed, by the snapshots' own summaries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from icecdc_core.changes.steps import snapshots_between
from icecdc_core.session.job_session import with_job_session
from icecdc_core.table.iceberg_table import IcebergTable
from icecdc_core.table.snapshots import committed_at, operation, rows_added, rows_removed

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import SparkSession

    from icecdc_core.config import SyncConfig
    from icecdc_core.reporting.reports import RunReport


COLUMNS = ("snapshot_id", "committed_at", "operation", "rows_added", "rows_removed")
MOST_SNAPSHOTS = 20


@with_job_session
def changes_per_snapshot(spark: SparkSession, config: SyncConfig, report: RunReport) -> pd.DataFrame:
    """Count what each snapshot of a sync added and removed, for the newest 20 of them; it reads no file.

    A snapshot that rewrites a file to update one of its rows adds and removes all rows of that file. An export follows
    no snapshots, so it has none.
    """
    import pandas as pd

    from icecdc_core.reporting.tables import NotebookFrame

    begin, end = report.from_snapshot_id, report.to_snapshot_id
    rows = []
    if end is not None and begin != end and report.kind != "export" and "export" not in report.strategy:
        metadata = IcebergTable(spark, config.table).metadata()
        # After a rollback there may be no path between the ends, or its begin has expired meanwhile.
        path = snapshots_between(metadata, begin, end) or (end,)
        for snapshot_id in path[-MOST_SNAPSHOTS:]:
            snapshot = metadata.snapshot_by_id(snapshot_id)
            committed = committed_at(snapshot) if snapshot else None
            counts = (rows_added(snapshot), rows_removed(snapshot)) if snapshot else (0, 0)
            rows.append((snapshot_id, committed, operation(snapshot), *counts))
    return NotebookFrame.of(pd.DataFrame(rows, columns=list(COLUMNS)), empty="This run read no snapshots.")
