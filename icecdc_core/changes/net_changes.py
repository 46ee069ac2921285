"""Compute one change row for each identifier that changed in a range, by the strategy that moves the fewest rows.

=================  ====================================================  =============================================
strategy           when                                                  what it does
=================  ====================================================  =============================================
``insert-only``    files were only added                                 reads their rows; nothing is left to compare
``joined``         only values show which rows of rewritten files        joins whole newer rows with hashes of older
                   changed (copy-on-write before format v3), and the     ones, which every task gets, see
                   older ones are few                                    ``joined_rows``
``narrow-rows``    the same, and they are many, or more than the newer   shuffles identifiers and hashes, then fetches
                   ones; or there are several steps, delete files, a     changed rows
                   filter or places; or an identifier may be a
                   duplicate
``row-ids``        row lineage shows it, and the older states are large  reads the row ids of the newer states first,
                                                                         see ``row_ids``
``at-once``        row lineage, delete files or appends show it          shuffles the changed rows
``last-rows``      identifiers may be duplicates; the last row of each   finds identifiers as ``narrow-rows`` does, then
                   counts (the batch decides that)                       fetches their rows of the end snapshot
=================  ====================================================  =============================================

All of them leave one row for each identifier, and all but ``last-rows`` fail if two rows have one. Carryovers are
dropped by their values or already in the scan. Each row says whether the table had one of its identifier before
(``WAS_THERE``), so that what OpenSearch answers to its operation shows whether index and table agree.

An UPDATE to equal values ("no-op update") changes no document. ``joined``, ``narrow-rows`` and ``last-rows``
compare values and skip it. The others do not, so its document is written again, which is harmless.
"""

from collections.abc import Callable
from dataclasses import replace

from pyspark.sql import DataFrame

from icecdc_core.changes.joined_rows import JOINED_ROWS, ROW_BYTES, find_joined_changes
from icecdc_core.changes.narrow_rows import find_narrow_changes
from icecdc_core.changes.row_changes import INSERT_ONLY, NetChanges, PlannedRange, merge_changes
from icecdc_core.changes.row_ids import find_changes_by_row_ids
from icecdc_core.changes.scan_planning import is_insert_only
from icecdc_core.columns import WAS_THERE
from icecdc_core.session.job_session import accelerated
from icecdc_core.session.spark import can_broadcast, fits_in_memory
from icecdc_core.table.schema import require_unique

# Rows of the older states from which on ``row-ids`` pays; fewer are read whole in less time than a Spark job takes.
ROW_IDS_FROM_ROWS = 100_000


def compute_net_changes(planned: PlannedRange, count: Callable[[DataFrame], int] | None = None) -> NetChanges:
    """Choose a strategy; ``count`` counts rows that were only added, which otherwise OpenSearch counts."""
    if is_insert_only(planned.scans):
        return _inserts(planned, count)
    if any(scan.by_value for scan in planned.scans):
        counts = planned.side_counts()
        found = None
        # Other engines are not tested with delete files, row ids and deletion vectors.
        is_tested = counts is not None and not planned.table.has_row_lineage
        with accelerated(planned.table.spark, planned.accelerator if is_tested else ""):
            if counts and _joining_pays(planned, *counts):
                step, ids = planned.scans[0].step, planned.identifier_columns
                found = find_joined_changes(*planned.sides(), ids, step, *counts, planned.row_hash, planned.file_bytes)
            return found or find_narrow_changes(planned, planned.changes(), sum(counts) if counts else None)
    # Nothing else of a DELETE is needed than its identifiers.
    bare = replace(planned.selection, delete_columns=tuple(planned.identifier_columns))
    planned = replace(planned, selection=bare)
    older_rows = planned.older_row_count()
    if older_rows is not None and older_rows > ROW_IDS_FROM_ROWS:
        return find_changes_by_row_ids(planned, older_rows) or _at_once(planned)
    return _at_once(planned)


def _joining_pays(planned: PlannedRange, older_rows: int, newer_rows: int) -> bool:
    if len(planned.scans) > 1 or planned.selection.has_places:
        return False
    table, older_files = planned.table, planned.scans[0].read_older.own
    return (  # with fewer newer rows some were deleted, which takes a second read of both sides
        older_rows <= min(newer_rows, JOINED_ROWS)
        and fits_in_memory(table.spark, sum(table.sizes(older_files)))
        and can_broadcast(table.spark, 2 * older_rows * ROW_BYTES)  # to find deletes, up to twice as many newer ones
    )


def _inserts(planned: PlannedRange, count: Callable[[DataFrame], int] | None) -> NetChanges:
    rows = planned.changes()
    if planned.identifier_columns:
        require_unique(rows, planned.identifier_columns, planned.table.name, allow_duplicates=False)
    upserts = count(rows) if count else 0
    return NetChanges(rows.selectExpr("*", f"false AS {WAS_THERE}"), INSERT_ONLY, upserts)


def _at_once(planned: PlannedRange) -> NetChanges:
    rows = merge_changes(planned.changes(), planned.identifier_columns)
    return NetChanges.from_rows(rows, planned, "at-once")
