"""One change row for each identifier that changed in a range: the three transforms, by the way that moves the least.

Where files were rewritten and nothing but values tells which of their rows changed, nearly all rows are carryover; they
are told by narrow rows first, see `survivors`. Where row lineage tells it, see `lineage`, the newer state's row ids are
read first: they say how many rows are gone, and so whether it pays to read what those held. Everywhere else (delete
files, appends, few rows) what is read is what changed, so whole rows go through the three transforms at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from icecdc_core.changes.changed_identifiers import fetch_changed_rows, find_changed_identifiers
from icecdc_core.changes.row_changes import changes_by_row_ids, changes_frame, newer_states
from icecdc_core.changes.row_hash import FAST
from icecdc_core.changes.row_lineage import count_unchanged, unchanged_rows
from icecdc_core.changes.scan_planning import StepScan
from icecdc_core.columns import IS_INSERT, quoted
from icecdc_core.session.row_counts import RowCount
from icecdc_core.session.spark_settings import keeping, many_groups
from icecdc_core.shuffle import shuffle_by_identifiers
from icecdc_core.table.iceberg_table import IcebergTable
from icecdc_core.table.selection import Selection
from icecdc_core.updates import DUPLICATE, UNCHANGED, last_changes, unique_changes

# Read whole in less time than another Spark job takes.
_FEW_ROWS = 100_000
# Writing one document takes as long as reading 300 rows of ten columns, so from here on it pays to read what the older
# rows held if every third update left its row as it was.
_ROWS_READ_FOR_A_DOCUMENT = 100
# A word of eight neighbours is as wide as three and a half rows, see `survivors`.
_INTEGERS_A_ROW = 2


@dataclass
class NetChanges:
    """What is left to do after a range.

    Attributes:
        rows: One change row for each identifier; of a DELETE no more than the identifier need be filled.
        upserts: INSERT rows among them.
        deletes: DELETE rows among them.
        nulls: Rows of which a part of the identifier is null.
        carryovers: Unchanged rows that were dropped.
        cached: Frames that are kept (memory, then disk) until ``close``.
    """

    rows: DataFrame
    upserts: int = 0
    deletes: int = 0
    nulls: int = 0
    carryovers: int = 0
    cached: list[DataFrame] = field(default_factory=list)

    @classmethod
    def kept(cls, rows: DataFrame, identifier_columns: Sequence[str], file_bytes: int) -> NetChanges:
        """Compute these rows now, count and keep them; ``file_bytes`` is the size of the files they are read from."""
        some_null = " OR ".join(f"{quoted(name)} IS NULL" for name in identifier_columns)
        with keeping(rows.sparkSession, file_bytes) as level:
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
        return cls(rows, counts.upserts, counts.deletes, counts.nulls, cached=[rows])

    def close(self) -> None:
        """Let go of what is cached."""
        while self.cached:
            self.cached.pop().unpersist()


def compute_net_changes(
    table: IcebergTable,
    scans: Sequence[StepScan],
    identifier_columns: Sequence[str],
    file_bytes: int,
    selection: Selection | None = None,
    row_hash: str = FAST,
) -> NetChanges:
    """Read the planned files, drop carryovers and merge the changes of each identifier.

    An update to the values that a row had is a carryover too. It is kept where row lineage or delete files tell what
    changed, and writing such documents again takes less than reading what more than 100,000 rows held before.

    Args:
        table: The table the scans were planned on.
        scans: What to read, once or twice.
        identifier_columns: The columns that identify a row.
        file_bytes: Size of the data files in them.
        selection: What to read of the rows; None: all columns of all rows.
        row_hash: ``fast`` or ``keyed``, see `row_hash`.

    Raises:
        PySparkException: Two rows have one identifier, equal or not ("duplicate identifier").
    """
    selection = selection or Selection(tuple(table.column_names()))
    older_rows = _rows_to_look_for(table, scans)
    if older_rows > _FEW_ROWS:
        merged = _by_row_ids(table, scans, identifier_columns, older_rows, file_bytes, selection)
        if merged is not None:
            return merged
    if not any(scan.by_value for scan in scans):
        with_older_values = _needs_older_values(table, scans)
        wanted = selection if with_older_values else replace(selection, delete_columns=tuple(identifier_columns))
        changes = changes_frame(table, scans, wanted)
        return _at_once(changes, identifier_columns, with_older_values, file_bytes)
    changes = changes_frame(table, scans, selection)
    row_count = None if selection.row_filter else _row_count(table, scans)
    neighbours = _lie_close(table, scans, identifier_columns)
    return _by_narrow_rows(changes, identifier_columns, scans, row_count, file_bytes, neighbours, row_hash)


def _rows_to_look_for(table: IcebergTable, scans: Sequence[StepScan]) -> int:
    """Rows of the older states, where row lineage tells every step; 0: it does not, or delete files blur the number."""
    told = [scan for scan in scans if not scan.only_inserts]
    if any(scan.unchanged_until is None for scan in told):
        return 0
    older = table.joined(*(tasks for scan in told for tasks in scan.older))
    return 0 if any(table.delete_counts(older)) else sum(table.row_counts(older))


def _row_count(table: IcebergTable, scans: Sequence[StepScan]) -> int | None:
    """Rows that are read, where the files alone say it."""
    files = table.joined(*(tasks for scan in scans for tasks in (*scan.older, *scan.newer)))
    parts_are_read = any(scan.unchanged_until is not None for scan in scans) or any(table.delete_counts(files))
    return None if parts_are_read else sum(table.row_counts(files))


def _lie_close(table: IcebergTable, scans: Sequence[StepScan], identifier_columns: Sequence[str]) -> bool:
    """Whether identifiers are integers of which most have their neighbours in the same file."""
    newer = table.joined(*(tasks for scan in scans for tasks in scan.newer))
    # What happens to an identifier in several steps is only compared where it is a row of its own.
    if len(identifier_columns) > 1 or len(scans) > 1 or sum(table.row_counts(newer)) <= _FEW_ROWS:
        return False
    commits = {snapshot_id for scan in scans for snapshot_id in scan.step.path or ()}
    spanned, rows = table.spanned(commits, identifier_columns[0])
    return 0 < spanned <= _INTEGERS_A_ROW * rows


def _needs_older_values(table: IcebergTable, scans: Sequence[StepScan]) -> bool:
    """Whether it pays to read what rows held before, where no values are needed to tell which rows are gone."""
    if any(scan.unchanged_until is not None for scan in scans):
        return True
    rows = gone = come = 0
    for scan in scans:
        either = table.joined(scan.remasked.before, scan.remasked.after)
        rows += sum(table.row_counts(table.joined(*scan.older)))
        gone += sum(table.row_counts(scan.before)) + table.deleted_count(table.joined(scan.newly_masked.after, either))
        come += sum(table.row_counts(scan.after)) + table.deleted_count(table.joined(scan.unmasked.before, either))
    # Each update needs a row that is gone and one that came.
    return rows <= _FEW_ROWS or min(gone, come) * _ROWS_READ_FOR_A_DOCUMENT > rows


def _by_row_ids(
    table: IcebergTable,
    scans: Sequence[StepScan],
    identifier_columns: Sequence[str],
    older_rows: int,
    file_bytes: int,
    selection: Selection,
) -> NetChanges | None:
    """Merge changes by row lineage; None where a row came back, which has to be looked for on both sides."""
    unchanged = unchanged_rows(newer_states(table, scans)).persist(StorageLevel.MEMORY_AND_DISK)

    def transformed(with_older_values: bool) -> tuple[RowCount, DataFrame, Callable[[], int]]:
        wanted = selection if with_older_values else replace(selection, delete_columns=tuple(identifier_columns))
        changes, seen = changes_by_row_ids(table, scans, unchanged, wanted)
        return seen, *_transformed(changes, identifier_columns, with_older_values)

    try:
        with ThreadPoolExecutor(1) as pool:
            # Making frames occupies the driver for about as long as the count does the executors.
            making = pool.submit(transformed, with_older_values=False)
            gone = older_rows - count_unchanged(unchanged)
            seen, rows, carryovers = making.result()
        if gone * _ROWS_READ_FOR_A_DOCUMENT > older_rows:
            seen, rows, carryovers = transformed(with_older_values=True)
        try:
            merged = NetChanges.kept(rows, identifier_columns, file_bytes)
        except PySparkException as error:
            # The INSERT of a row that came back is not read here, so its next DELETE looks like a second one.
            if DUPLICATE not in str(error):
                raise
            return None
        if seen.value() != gone:
            merged.close()
            return None
        merged.carryovers = carryovers()
        return merged
    finally:
        unchanged.unpersist()


def _at_once(
    changes: DataFrame, identifier_columns: Sequence[str], has_older_values: bool, file_bytes: int
) -> NetChanges:
    rows, carryovers = _transformed(changes, identifier_columns, has_older_values)
    merged = NetChanges.kept(rows, identifier_columns, file_bytes)
    merged.carryovers = carryovers()
    return merged


def _transformed(
    changes: DataFrame, identifier_columns: Sequence[str], has_older_values: bool
) -> tuple[DataFrame, Callable[[], int]]:
    """What the changes merge into, and what tells their carryovers once that is computed."""
    shuffled = changes.transform(shuffle_by_identifiers, identifier_columns)
    unique = unique_changes(shuffled, identifier_columns, compare=has_older_values)
    if not has_older_values:
        return last_changes(unique, identifier_columns), lambda: 0
    carried = RowCount(unique, F.col(UNCHANGED))
    changed = carried.rows.where(f"NOT {UNCHANGED}").drop(UNCHANGED)
    return last_changes(changed, identifier_columns), carried.value


def _by_narrow_rows(
    changes: DataFrame,
    identifier_columns: Sequence[str],
    scans: Sequence[StepScan],
    row_count: int | None,
    file_bytes: int,
    neighbours: bool,
    row_hash: str,
) -> NetChanges:
    steps = {scan.step.ordinal for scan in scans}
    only_step = steps.pop() if len(steps) == 1 else None
    with many_groups(changes.sparkSession):
        found = find_changed_identifiers(changes, identifier_columns, only_step, row_count, neighbours, row_hash)
    rows = fetch_changed_rows(changes, identifier_columns, found)
    if not found.doubtful:
        return NetChanges(rows, found.upserts, found.deletes, found.nulls, found.carryovers, [found.identifiers])
    try:
        # Computed now, because it may show that identifiers are not unique.
        merged = NetChanges.kept(rows, identifier_columns, file_bytes)
    finally:
        found.close()
    merged.carryovers = found.carryovers
    return merged
