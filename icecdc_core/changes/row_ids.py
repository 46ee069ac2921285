"""Find changes by row lineage where the older states are large: row ids first, then the rows that are left.

``row_lineage`` says which row ids of the newer states are unchanged. With them, the older states are read once for the
rows that were removed, and the newer ones for the rows that were written.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce

from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from icecdc_core.changes.row_changes import NetChanges, PlannedRange, change_columns, changes_of_step, merge_changes
from icecdc_core.changes.row_lineage import count_unchanged, is_old, removed_rows, unchanged_row_ids
from icecdc_core.changes.scan_planning import StepScan
from icecdc_core.columns import CHANGE_ORDINAL, CHANGE_TYPE, COMMIT_SNAPSHOT_ID, DELETE, INSERT, OWN_PREFIX
from icecdc_core.errors import DUPLICATE_MESSAGE
from icecdc_core.session.jvm import active_session, unpersist
from icecdc_core.session.spark import RowCount
from icecdc_core.table.iceberg_table import IcebergTable
from icecdc_core.table.source import Selection


def find_changes_by_row_ids(planned: PlannedRange, older_rows: int) -> NetChanges | None:
    """Return the changes; None if a row id repeats or a row came back, so that only values show what changed."""
    table, scans = planned.table, planned.scans
    newer_states = {
        scan.step.ordinal: (table.read(table.union(*scan.read_newer)), scan.unchanged_until)
        for scan in scans
        if scan.unchanged_until is not None
    }
    unchanged = unchanged_row_ids(newer_states).persist(StorageLevel.MEMORY_AND_DISK)

    def build() -> tuple[RowCount, DataFrame]:
        with active_session(table.spark):  # a new thread has none, and the run may have a session of its own
            changes, removed = changes_by_row_ids(table, scans, unchanged, planned.selection)
            return removed, merge_changes(changes, planned.identifier_columns)

    try:
        with ThreadPoolExecutor(1) as pool:
            # Building frames keeps the driver busy for about as long as counting keeps the executors busy.
            building = pool.submit(build)
            unchanged_rows = count_unchanged(unchanged)
            removed, rows = building.result()
        if unchanged_rows is None:
            return None
        try:
            found = NetChanges.from_rows(rows, planned, "row-ids")
        except PySparkException as error:
            # The INSERT of a row that came back is missing here, so that its next DELETE looks like a second one.
            if DUPLICATE_MESSAGE not in str(error):
                raise
            return None
        if removed.value() == older_rows - unchanged_rows:
            return found
        found.close()
        return None
    finally:
        unpersist(unchanged)


def changes_by_row_ids(
    table: IcebergTable, scans: Sequence[StepScan], unchanged: DataFrame, selection: Selection
) -> tuple[DataFrame, RowCount]:
    """Read the planned files, given the row ids that the newer states did not change, and count the removed rows."""
    removed: list[DataFrame] = []
    inserts: list[DataFrame] = []
    for scan in scans:
        step, until, written = scan.step, scan.unchanged_until, scan.read_newer.own
        if until is None:
            rows_written = [rows for _, rows in changes_of_step(table, scan)]
        else:
            older = table.union(*scan.read_older)
            row_count = max(sum(table.row_counts(tasks)) for tasks in (older, *scan.read_newer))
            rows = removed_rows(table.read(older), unchanged, step.ordinal, until, row_count)
            removed.append(rows.selectExpr("*", *change_columns(DELETE, step, OWN_PREFIX)))
            rows_written = [table.read(written).where(f"NOT ({is_old(until)})")] if len(written) else []
        inserts += [selection.select(rows, *change_columns(INSERT, step)) for rows in rows_written]
    # With the unchanged rows they must be all rows of the older states; else one came back that was deleted before.
    counted = RowCount(reduce(DataFrame.unionAll, removed))
    change = (f"{OWN_PREFIX}{name} AS {name}" for name in (CHANGE_TYPE, CHANGE_ORDINAL, COMMIT_SNAPSHOT_ID))
    deletes = selection.select_deleted(counted.rows, *change)
    return reduce(DataFrame.unionAll, [*inserts, deletes]), counted
