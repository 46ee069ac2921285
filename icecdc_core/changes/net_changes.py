"""Compute one change row for each identifier that changed in a range, by the strategy that moves the fewest rows.

=================  ====================================================  =============================================
strategy           when                                                  what it does
=================  ====================================================  =============================================
``narrow-rows``    only values show which rows of rewritten files        shuffles identifiers and hashes, then fetches
                   changed (copy-on-write before format v3)              changed rows, see ``changed_identifiers``
``row-ids``        row lineage shows it, and the older states are large  reads the row ids of the newer states first,
                                                                         see ``row_lineage``
``at-once``        row lineage, delete files or appends show it          shuffles the changed rows, see
                                                                         ``merge_unique_changes``
=================  ====================================================  =============================================

All of them leave one row for each identifier, and end the query if two rows have one identifier.

An UPDATE to equal values ("no-op update") changes no document. ``narrow-rows`` compares values and skips it. The others
compare no values: row lineage or delete files say that the row changed, so its document is written again, which is
harmless.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from icecdc_core.changes.changed_identifiers import fetch_changed_rows, find_changed_identifiers
from icecdc_core.changes.row_changes import changes_by_row_ids, changes_frame, newer_states
from icecdc_core.changes.row_hash import FAST
from icecdc_core.changes.row_lineage import count_unchanged, unchanged_row_ids
from icecdc_core.changes.step_scan import StepScan
from icecdc_core.changes.unique_changes import merge_unique_changes
from icecdc_core.columns import IS_INSERT, quoted
from icecdc_core.errors import DUPLICATE_MESSAGE
from icecdc_core.session.row_counts import RowCount
from icecdc_core.session.spark_settings import storage_level_for, tuned_for_many_groups
from icecdc_core.session.threads import active_session
from icecdc_core.shuffle import shuffle_by_identifiers
from icecdc_core.table.iceberg_table import IcebergTable
from icecdc_core.table.selection import Selection

NARROW_ROWS, ROW_IDS, AT_ONCE = "narrow-rows", "row-ids", "at-once"
NONE, INSERT_ONLY, LAST_ROWS = "none", "insert-only", "last-rows"

ROW_IDS_FROM_ROWS = 100_000
"""Rows of the older states from which on ``row-ids`` pays; fewer are read whole in less time than a Spark job takes."""


@dataclass(frozen=True)
class NetChanges:
    """The net changes of a range: one change row for each identifier, and their counts.

    Attributes:
        rows: One change row for each identifier; a DELETE may have its identifier only. None if no file differs.
        strategy: How they were found: ``narrow-rows``, ``row-ids`` or ``at-once`` where both sides of files are
            compared, ``insert-only`` for files that were only added, ``last-rows`` for rows of the end snapshot, or
            ``none`` if no file differs.
        upserts: INSERT rows among them. 0 for ``insert-only``, whose rows are counted when they are written.
        deletes: DELETE rows among them.
        nulls: Rows with a part of the identifier that is null.
        carryovers_removed: Unchanged rows of rewritten files that were dropped.
        cached: Frames that stay cached (memory, then disk) until ``close``.
    """

    rows: DataFrame | None = None
    strategy: str = NONE
    upserts: int = 0
    deletes: int = 0
    nulls: int = 0
    carryovers_removed: int = 0
    cached: tuple[DataFrame, ...] = ()

    @classmethod
    def from_rows(
        cls,
        rows: DataFrame,
        identifier_columns: Sequence[str],
        file_bytes: int,
        strategy: str,
        carryovers_removed: int = 0,
    ) -> NetChanges:
        """Compute, count and cache these rows.

        Args:
            rows: One change row for each identifier.
            identifier_columns: The columns that identify a row.
            file_bytes: Size of the files that the rows are read from.
            strategy: How they were found.
            carryovers_removed: Unchanged rows that were dropped to find them.
        """
        some_null = " OR ".join(f"{quoted(name)} IS NULL" for name in identifier_columns)
        with storage_level_for(rows.sparkSession, file_bytes) as level:
            rows = rows.persist(level)
            try:
                counts = rows.selectExpr(
                    f"count_if({IS_INSERT}) AS upserts",
                    f"count_if(NOT ({IS_INSERT})) AS deletes",
                    f"count_if({some_null}) AS `nulls`",
                ).collect()[0]
            except BaseException:
                rows.unpersist()
                raise
        return cls(rows, strategy, counts.upserts, counts.deletes, counts.nulls, carryovers_removed, (rows,))

    @property
    def reported_strategy(self) -> str:
        """The strategy as a report names it: ``none``, ``insert-only`` or ``diff``."""
        return self.strategy if self.strategy in (NONE, INSERT_ONLY) else "diff"

    def close(self) -> None:
        """Release what is cached; the rows cannot be read any more."""
        for frame in self.cached:
            frame.unpersist()


def compute_net_changes(
    table: IcebergTable,
    scans: Sequence[StepScan],
    identifier_columns: Sequence[str],
    file_bytes: int,
    selection: Selection | None = None,
    row_hash: str = FAST,
    row_ids_from_rows: int | None = None,
) -> NetChanges:
    """Read the planned files and merge the changes of each identifier into one.

    Args:
        table: The table the scans were planned on.
        scans: What to read, once or twice.
        identifier_columns: The columns that identify a row.
        file_bytes: Size of the data files in them.
        selection: What to read of the rows; None: all columns of all rows.
        row_hash: ``fast`` or ``keyed``, see ``row_hash``.
        row_ids_from_rows: See ``ROW_IDS_FROM_ROWS``, the default. It changes the time it takes, not the result.

    Raises:
        PySparkException: Two rows have one identifier, equal or not ("duplicate identifier").
    """
    selection = selection or Selection(tuple(table.column_names()))
    if any(scan.by_value for scan in scans):
        return _by_narrow_rows(table, scans, identifier_columns, selection, file_bytes, row_hash)
    # Nothing but the identifier is needed of a deleted row.
    selection = replace(selection, delete_columns=tuple(identifier_columns))
    enough = ROW_IDS_FROM_ROWS if row_ids_from_rows is None else row_ids_from_rows
    older_rows = _older_rows(table, scans)
    if older_rows is not None and older_rows > enough:
        found = _by_row_ids(table, scans, identifier_columns, selection, file_bytes, older_rows)
        if found is not None:
            return found
    changes = changes_frame(table, scans, selection)
    return NetChanges.from_rows(_merged(changes, identifier_columns), identifier_columns, file_bytes, AT_ONCE)


def _merged(changes: DataFrame, identifier_columns: Sequence[str]) -> DataFrame:
    return merge_unique_changes(changes.transform(shuffle_by_identifiers, identifier_columns), identifier_columns)


def _older_rows(table: IcebergTable, scans: Sequence[StepScan]) -> int | None:
    """Return the rows of the older states; None if row lineage does not cover every step or deletes hide the number."""
    changing = [scan for scan in scans if not scan.only_inserts]
    if any(scan.unchanged_until is None for scan in changing):
        return None
    older = table.union(*(tasks for scan in changing for tasks in scan.read_older))
    return None if any(table.delete_counts(older)) else sum(table.row_counts(older))


def _by_row_ids(
    table: IcebergTable,
    scans: Sequence[StepScan],
    identifier_columns: Sequence[str],
    selection: Selection,
    file_bytes: int,
    older_rows: int,
) -> NetChanges | None:
    """Find what changed by the row ids of the newer states.

    Returns:
        None if a row came back that an earlier snapshot deleted, as after a rollback: this strategy does not find it.
    """
    unchanged = unchanged_row_ids(newer_states(table, scans)).persist(StorageLevel.MEMORY_AND_DISK)

    def planned() -> tuple[RowCount, DataFrame]:
        with active_session(table.spark):  # a new thread has none, and the run may have a session of its own
            changes, removed = changes_by_row_ids(table, scans, unchanged, selection)
            return removed, _merged(changes, identifier_columns)

    try:
        with ThreadPoolExecutor(1) as pool:
            # Building frames keeps the driver busy for about as long as counting keeps the executors busy.
            building = pool.submit(planned)
            removed_rows = older_rows - count_unchanged(unchanged)
            removed, rows = building.result()
        try:
            found = NetChanges.from_rows(rows, identifier_columns, file_bytes, ROW_IDS)
        except PySparkException as error:
            # The INSERT of a row that came back is missing here, so that its next DELETE looks like a second one.
            if DUPLICATE_MESSAGE not in str(error):
                raise
            return None
        if removed.value() == removed_rows:
            return found
        found.close()
        return None
    finally:
        unchanged.unpersist()


def _by_narrow_rows(
    table: IcebergTable,
    scans: Sequence[StepScan],
    identifier_columns: Sequence[str],
    selection: Selection,
    file_bytes: int,
    row_hash: str,
) -> NetChanges:
    changes = changes_frame(table, scans, selection)
    row_count = None if selection.row_filter else _row_count(table, scans)
    steps = {scan.step.ordinal for scan in scans}
    only_step = steps.pop() if len(steps) == 1 else None
    with tuned_for_many_groups(changes.sparkSession):
        found = find_changed_identifiers(changes, identifier_columns, only_step, row_count, row_hash)
    rows = fetch_changed_rows(changes, identifier_columns, found)
    if not found.duplicates:
        counts = (found.upserts, found.deletes, found.nulls, found.carryovers)
        return NetChanges(rows, NARROW_ROWS, *counts, (found.identifiers,))
    try:
        # Computed now, because it fails if an identifier is a duplicate.
        return NetChanges.from_rows(rows, identifier_columns, file_bytes, NARROW_ROWS, found.carryovers)
    finally:
        found.close()


def _row_count(table: IcebergTable, scans: Sequence[StepScan]) -> int | None:
    """Return the number of rows that are read; None if the files alone do not say it."""
    files = table.union(*(tasks for scan in scans for tasks in (*scan.read_older, *scan.read_newer)))
    only_parts = any(scan.unchanged_until is not None for scan in scans) or any(table.delete_counts(files))
    return None if only_parts else sum(table.row_counts(files))
