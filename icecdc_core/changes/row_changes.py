"""The changes of a range: how files that differ are read, and what a strategy for net changes gets and returns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame, SparkSession, functions as F

from icecdc_core.changes.places import at_each_place, with_old_places
from icecdc_core.changes.row_lineage import changed_by_lineage
from icecdc_core.changes.scan_planning import StepScan, is_insert_only, plan_scans
from icecdc_core.changes.steps import Step
from icecdc_core.columns import (
    CHANGE_ORDINAL,
    CHANGE_TYPE,
    COMMIT_SNAPSHOT_ID,
    DELETE,
    INSERT,
    IS_DELETE,
    IS_INSERT,
    OLD_PLACES,
)
from icecdc_core.errors import ConfigError
from icecdc_core.session.jvm import unpersist
from icecdc_core.session.spark import cached_and_counted, can_broadcast, storage_level_for
from icecdc_core.shuffle import shuffle_by_identifiers
from icecdc_core.table.iceberg_table import FileTasks, IcebergTable
from icecdc_core.table.schema import any_null
from icecdc_core.table.snapshots import head_snapshot_id
from icecdc_core.table.source import Selection, require_row_positions
from icecdc_core.updates import net_rows

# Up to here positions of deleted rows are sent to every task, each with the path of its file.
_BROADCAST_POSITIONS, _POSITION_BYTES = 300_000, 256

_POSITION = ["_file", "_pos"]
# Bit 1: deleted in the older state; bit 2: in the newer one.
_DELETED_IN, _OLDER, _NEWER = "_icecdc_deleted_in", 1, 2


def changed_by_deletes(older: DataFrame, newer: DataFrame, delete_count: int) -> tuple[DataFrame, DataFrame]:
    """Return the rows that are deleted in one state only, of data files that both states have."""
    # Selected as plain columns, because metadata columns get lost in a join.
    columns = ("*", *_POSITION, "_deleted")
    deleted_older, deleted_newer = (rows.select(*columns).where("_deleted") for rows in (older, newer))
    positions = (
        deleted_older.select(*_POSITION, F.lit(_OLDER).alias(_DELETED_IN))
        .unionAll(deleted_newer.select(*_POSITION, F.lit(_NEWER).alias(_DELETED_IN)))
        .groupBy(*_POSITION)
        .agg(F.bit_or(_DELETED_IN).alias(_DELETED_IN))
    )

    are_few = delete_count <= _BROADCAST_POSITIONS
    are_few = are_few and can_broadcast(older.sparkSession, delete_count * _POSITION_BYTES)

    def deleted_only_in(state: int, rows: DataFrame) -> DataFrame:
        wanted: DataFrame = positions.where(F.col(_DELETED_IN) == F.lit(state)).drop(_DELETED_IN)
        # Nearly always empty for one of the states; once Spark sees that, it does not read that state's rows.
        wanted = F.broadcast(wanted) if are_few else wanted
        return rows.join(wanted, _POSITION, "left_semi")

    return deleted_only_in(_NEWER, deleted_newer), deleted_only_in(_OLDER, deleted_older)


def read_changes(
    spark: SparkSession,
    table: str,
    start_snapshot_id: int | None = None,
    end_snapshot_id: int | None = None,
    mode: str = "net",
) -> DataFrame:
    """Read the row changes of a table between two snapshots.

    For each step the scans of both snapshots are planned and compared. A data file with the same delete files on both
    sides cannot hold a change and is not opened. The rest is read once per side, with deletes applied: rows of the
    older side are DELETE, rows of the newer side INSERT. This covers append, copy-on-write, merge-on-read (position
    deletes, equality deletes, deletion vectors), rollback and branches: a row deleted earlier is not deleted again, and
    a row added and deleted within one step is not shown. Compactions (``replace``) are not read if that saves bytes.

    Args:
        spark: A session in which the table's catalog is configured.
        table: ``catalog.namespace.table``.
        start_snapshot_id: Exclusive start; None is before the first snapshot.
        end_snapshot_id: Inclusive end; None is the current snapshot.
        mode: ``net`` (the two ends are compared) or ``snapshot`` (one step per snapshot that is not a
            ``replace``).

    Returns:
        The table's columns, then ``_change_type`` (``INSERT`` or ``DELETE``), ``_change_ordinal`` (int,
        oldest step first, from 0) and ``_commit_snapshot_id`` (long). Raw: unchanged rows of rewritten files
        ("carryover") are there as a DELETE and an INSERT; ``remove_carryovers`` drops them.

    Raises:
        ConfigError: The mode is unknown.
        TableNotFoundError: There is no such table.
        UnsupportedTypeError: A column cannot be read, or has a name that change columns need.
        HistoryGapError: A snapshot of the range is no longer in the table's metadata, or the catalog hides it.
    """
    if mode not in ("net", "snapshot"):
        raise ConfigError(f"Unknown mode {mode!r}", subject="mode", value=mode, remedy="use one of net, snapshot")
    iceberg = IcebergTable(spark, table)
    metadata = iceberg.metadata(needs_history=start_snapshot_id is not None or mode == "snapshot")
    end = end_snapshot_id if end_snapshot_id is not None else head_snapshot_id(metadata)
    scans = [] if end is None else plan_scans(iceberg, metadata, start_snapshot_id, end, mode)
    return changes_frame(iceberg, scans, Selection(tuple(iceberg.column_names())))


@dataclass(frozen=True)
class PlannedRange:
    table: IcebergTable
    scans: Sequence[StepScan]
    identifier_columns: Sequence[str]
    file_bytes: int
    selection: Selection
    row_hash: str = "fast"
    accelerator: str = ""

    def changes(self) -> DataFrame:
        return changes_frame(self.table, self.scans, self.selection)

    def sides(self) -> tuple[DataFrame, DataFrame]:
        """Return the rows that ``side_counts`` counts, of a single step."""
        (scan,) = self.scans
        parts = (self.table.read(self.table.union(*files)) for files in (scan.read_older, scan.read_newer))
        older, newer = map(self.selection.select, parts)
        return older, newer

    @property
    def only_step(self) -> int | None:
        steps = {scan.step.ordinal for scan in self.scans}
        return steps.pop() if len(steps) == 1 else None

    def side_counts(self) -> tuple[int, int] | None:
        """Return the rows of the older and of the newer states; None if the files alone do not show them."""
        if self.selection.row_filter or any(scan.unchanged_until is not None for scan in self.scans):
            return None
        older = self._row_count(tasks for scan in self.scans for tasks in scan.read_older)
        newer = self._row_count(tasks for scan in self.scans for tasks in scan.read_newer)
        return None if older is None or newer is None else (older, newer)

    def older_row_count(self) -> int | None:
        """Return the rows of the older states; None if row lineage does not cover every step or deletes hide it."""
        changing = [scan for scan in self.scans if not is_insert_only([scan])]
        # Rows that come back show only where both sides are compared.
        undoes = any(scan.step.from_snapshot_id in (scan.step.path or ()) for scan in changing)
        if undoes or any(scan.unchanged_until is None for scan in changing):
            return None
        return self._row_count(tasks for scan in changing for tasks in scan.read_older)

    def _row_count(self, parts: Iterable[FileTasks]) -> int | None:
        """Return the rows of files; None if deletes hide some."""
        files = self.table.union(*parts)
        return None if any(self.table.delete_digests(files)) else sum(self.table.row_counts(files))


NONE, INSERT_ONLY = "none", "insert-only"


@dataclass(frozen=True)
class NetChanges:
    rows: DataFrame | None = None
    strategy: str = NONE
    upserts: int = 0
    deletes: int = 0
    nulls: int = 0
    carryovers_removed: int = 0
    cached: tuple[DataFrame, ...] = ()

    @property
    def is_counted(self) -> bool:
        return self.strategy != INSERT_ONLY

    @classmethod
    def from_rows(
        cls, rows: DataFrame, planned: PlannedRange, strategy: str, carryovers_removed: int = 0
    ) -> NetChanges:
        """Compute, count and cache these rows; one row for each place where they have places."""
        if OLD_PLACES in rows.columns:
            rows = at_each_place(rows)
        with storage_level_for(rows.sparkSession, planned.file_bytes) as level:
            nulls = any_null(planned.identifier_columns)
            rows, counts = cached_and_counted(rows, level, upserts=IS_INSERT, deletes=IS_DELETE, nulls=nulls)
        return cls(rows, strategy, counts.upserts, counts.deletes, counts.nulls, carryovers_removed, (rows,))

    def close(self) -> None:
        for frame in self.cached:
            unpersist(frame)


def merge_changes(changes: DataFrame, identifier_columns: Sequence[str]) -> DataFrame:
    """Return one change row for each identifier, of changes among which are no carryovers."""
    shuffled = changes.transform(shuffle_by_identifiers, identifier_columns)
    return shuffled.transform(with_old_places, identifier_columns).transform(net_rows, identifier_columns)


def changes_frame(table: IcebergTable, scans: Sequence[StepScan], selection: Selection) -> DataFrame:
    frames = []
    for scan in scans:
        if selection.with_row_position:
            require_row_positions(table, table.union(*scan.read_newer))
        for change_type, rows in changes_of_step(table, scan):
            select = selection.select if change_type == INSERT else selection.select_deleted
            frames.append(select(rows, *change_columns(change_type, scan.step)))
    if not frames:
        frames = [selection.select(table.read(table.union()), *change_columns(INSERT, Step(0, None, 0, None)))]
    return reduce(DataFrame.unionAll, frames)


def changes_of_step(table: IcebergTable, scan: StepScan) -> Iterator[tuple[str, DataFrame]]:
    older, newer, until = scan.read_older, scan.read_newer, scan.unchanged_until
    if until is not None:
        before, in_both = table.union(*older), table.union(*newer.shared)
        row_count = max(sum(table.row_counts(tasks)) for tasks in (before, newer.own, in_both))
        rows_in_both = table.read(in_both) if len(in_both) else None
        removed, added = changed_by_lineage(table.read(before), table.read(newer.own), rows_in_both, until, row_count)
        yield DELETE, removed
        yield from ((INSERT, rows) for rows in added)
        return
    # With neither row lineage nor flags of deleted rows, rows that both states have cancel by value.
    is_marked = table.marks_deletes
    before, after = (older.own, newer.own) if is_marked else (table.union(*older), table.union(*newer))
    if len(before):
        yield DELETE, table.read(before)
    if len(after):
        yield INSERT, table.read(after)
    if not is_marked:
        return
    if len(newer.deletes_added):
        yield DELETE, table.read(newer.deletes_added, with_deleted=True).where("_deleted")
    if len(older.deletes_removed):
        yield INSERT, table.read(older.deletes_removed, with_deleted=True).where("_deleted")
    if len(older.deletes_changed):
        before, after = older.deletes_changed, newer.deletes_changed
        delete_count = table.deleted_count(before) + table.deleted_count(after)
        marked = table.read(before, with_deleted=True), table.read(after, with_deleted=True)
        removed, restored = changed_by_deletes(*marked, delete_count)
        yield DELETE, removed
        yield INSERT, restored


def change_columns(change_type: str, step: Step, prefix: str = "") -> list[str]:
    """The change columns; with a prefix beside all columns of a table, which may have one of these names."""
    return [
        f"'{change_type}' AS {prefix}{CHANGE_TYPE}",
        f"{step.ordinal} AS {prefix}{CHANGE_ORDINAL}",
        f"{step.to_snapshot_id}L AS {prefix}{COMMIT_SNAPSHOT_ID}",
    ]
