"""Compute one change row for each identifier that changed in a range, by the strategy that moves the fewest rows.

=================  ====================================================  =============================================
strategy           when                                                  what it does
=================  ====================================================  =============================================
``insert-only``    files were only added                                 reads their rows; nothing is left to compare
``narrow-rows``    only values show which rows of rewritten files        shuffles identifiers and hashes, then fetches
                   changed (copy-on-write before format v3)              changed rows, see ``changed_identifiers``
``row-ids``        row lineage shows it, and the older states are large  reads the row ids of the newer states first,
                                                                         see ``row_lineage``
``at-once``        row lineage, delete files or appends show it          shuffles the changed rows, see
                                                                         ``merge_unique_changes``
``last-rows``      identifiers may be duplicates; the last row of each   finds identifiers as ``narrow-rows`` does, then
                   counts                                                fetches their rows of the end snapshot
=================  ====================================================  =============================================

All of them leave one row for each identifier. Where rows were deleted or updated, that takes the three stages of the
public transforms:

- shuffle: all rows of one identifier come into one partition;
- carryovers: rows that did not change are dropped, by their values or already in the scan;
- updates: the last step of each identifier decides.

All but ``last-rows`` fail if two rows have one identifier.

An UPDATE to equal values ("no-op update") changes no document. ``narrow-rows`` and ``last-rows`` compare values and
skip it. The others compare no values: row lineage or delete files say that the row changed, so its document is written
again, which is harmless.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from py4j.protocol import Py4JError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from icecdc_core.changes.changed_identifiers import (
    fetch_changed_rows,
    fetch_current_rows,
    find_changed_identifiers,
)
from icecdc_core.changes.counts import any_null, count_each
from icecdc_core.changes.planned_range import PlannedRange
from icecdc_core.changes.row_changes import changes_by_row_ids, newer_states
from icecdc_core.changes.row_lineage import count_unchanged, unchanged_row_ids
from icecdc_core.changes.unique_changes import merge_unique_changes
from icecdc_core.columns import IS_INSERT
from icecdc_core.errors import DUPLICATE_MESSAGE
from icecdc_core.session.row_counts import RowCount
from icecdc_core.session.spark_settings import storage_level_for, tuned_for_many_groups
from icecdc_core.session.threads import active_session
from icecdc_core.shuffle import shuffle_by_identifiers
from icecdc_core.table.schemas.identifiers import require_no_null, require_unique

NARROW_ROWS, ROW_IDS, AT_ONCE = "narrow-rows", "row-ids", "at-once"
NONE, INSERT_ONLY, LAST_ROWS = "none", "insert-only", "last-rows"

ROW_IDS_FROM_ROWS = 100_000
"""Rows of the older states from which on ``row-ids`` pays; fewer are read whole in less time than a Spark job takes."""


@dataclass(frozen=True)
class NetChanges:
    """The net changes of a range: one change row for each identifier, and their counts."""

    rows: DataFrame | None = None
    strategy: str = NONE
    upserts: int = 0
    deletes: int = 0
    nulls: int = 0
    carryovers_removed: int = 0
    cached: tuple[DataFrame, ...] = ()

    @classmethod
    def from_rows(
        cls, rows: DataFrame, planned: PlannedRange, strategy: str, carryovers_removed: int = 0
    ) -> NetChanges:
        """Compute, count and cache these rows."""
        with storage_level_for(rows.sparkSession, planned.file_bytes) as level:
            rows = rows.persist(level)
            try:
                counts = count_each(
                    rows,
                    upserts=IS_INSERT,
                    deletes=f"NOT ({IS_INSERT})",
                    nulls=any_null(planned.identifier_columns),
                )
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
        with suppress(Py4JError, OSError):  # Spark has ended; the error that ended it must not be hidden
            for frame in self.cached:
                frame.unpersist()


def compute_net_changes(planned: PlannedRange, row_ids_from_rows: int | None = None) -> NetChanges:
    """Read the planned files and merge the changes of each identifier into one."""
    if planned.needs_values:
        return _by_narrow_rows(planned)
    planned = planned.with_bare_deletes()
    enough = ROW_IDS_FROM_ROWS if row_ids_from_rows is None else row_ids_from_rows
    older_rows = planned.older_row_count()
    if older_rows is not None and older_rows > enough:
        found = _by_row_ids(planned, older_rows)
        if found is not None:
            return found
    return NetChanges.from_rows(_merged(planned.changes(), planned), planned, AT_ONCE)


def compute_inserts(planned: PlannedRange, count: bool) -> NetChanges:
    """Read files that were only added: each row is an upsert."""
    rows = planned.changes()
    if planned.identifier_columns:
        require_unique(rows, planned.identifier_columns, planned.table.name, allow_duplicates=False)
    return NetChanges(rows, INSERT_ONLY, upserts=rows.count() if count else 0)


def compute_last_rows(planned: PlannedRange, current: DataFrame) -> NetChanges:
    """Look up the rows that remain in the end snapshot: of several rows of one identifier, changes do not show it."""
    ids = planned.identifier_columns
    found = find_changed_identifiers(planned.changes(), ids, row_hash=planned.row_hash)
    try:
        if found.nulls:
            require_no_null(found.identifiers, ids, planned.table.name)
        return NetChanges.from_rows(fetch_current_rows(current, ids, found), planned, LAST_ROWS, found.carryovers)
    finally:
        found.close()


def _by_narrow_rows(planned: PlannedRange) -> NetChanges:
    changes, ids = planned.changes(), planned.identifier_columns
    with tuned_for_many_groups(changes.sparkSession):
        found = find_changed_identifiers(changes, ids, planned.only_step, planned.change_count(), planned.row_hash)
    rows = fetch_changed_rows(changes, ids, found)
    if not found.duplicates:
        counts = (found.upserts, found.deletes, found.nulls, found.carryovers)
        return NetChanges(rows, NARROW_ROWS, *counts, (found.identifiers,))
    try:
        # Computed now, because it fails if an identifier is a duplicate.
        return NetChanges.from_rows(rows, planned, NARROW_ROWS, found.carryovers)
    finally:
        found.close()


def _by_row_ids(planned: PlannedRange, older_rows: int) -> NetChanges | None:
    """Find what changed by the row ids of the newer states."""
    table, scans = planned.table, planned.scans
    unchanged = unchanged_row_ids(newer_states(table, scans)).persist(StorageLevel.MEMORY_AND_DISK)

    def build() -> tuple[RowCount, DataFrame]:
        with active_session(table.spark):  # a new thread has none, and the run may have a session of its own
            changes, removed = changes_by_row_ids(table, scans, unchanged, planned.selection)
            return removed, _merged(changes, planned)

    try:
        with ThreadPoolExecutor(1) as pool:
            # Building frames keeps the driver busy for about as long as counting keeps the executors busy.
            building = pool.submit(build)
            removed_rows = older_rows - count_unchanged(unchanged)
            removed, rows = building.result()
        try:
            found = NetChanges.from_rows(rows, planned, ROW_IDS)
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
        with suppress(Py4JError, OSError):  # Spark has ended; the error that ended it must not be hidden
            unchanged.unpersist()


def _merged(changes: DataFrame, planned: PlannedRange) -> DataFrame:
    """Shuffle and updates; carryovers are not among these changes."""
    ids = planned.identifier_columns
    return changes.transform(shuffle_by_identifiers, ids).transform(merge_unique_changes, ids)
