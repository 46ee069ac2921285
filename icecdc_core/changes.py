"""Raw row changes between two snapshots: the file sets of both sides are compared, only files that differ are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from pyiceberg.table.metadata import TableMetadata
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from icecdc_core.columns import (
    CHANGE_ORDINAL,
    CHANGE_TYPE,
    COMMIT_SNAPSHOT_ID,
    DELETE,
    INSERT,
    ROW_POSITION,
    quoted,
)
from icecdc_core.errors import ConfigError, IdentifierColumnsError
from icecdc_core.lineage import changed_by_deletes, changed_by_lineage, deleted_rows
from icecdc_core.snapshots import (
    SnapshotFiles,
    Step,
    common_ancestor,
    cut_at_replaces,
    head_snapshot_id,
    plan_steps,
    sequence_number,
)
from icecdc_core.staged_scan import FileTasks, IcebergTable

MODES = ("net", "snapshot")


@dataclass(frozen=True)
class MaskedFiles:
    """Data files that both states have, with other delete files: the same files in the same order on both sides.

    Attributes:
        before: As the older state sees them.
        after: As the newer state sees them.
        rows: Rows that their delete files delete in the two states, about.
    """

    before: FileTasks
    after: FileTasks
    rows: int


@dataclass(frozen=True)
class StepScan:
    """A step with the file tasks to read.

    Attributes:
        step: The two states that are compared.
        before: Data files that only the older state has; their rows are DELETE rows.
        after: Data files that only the newer state has; their rows are INSERT rows.
        newly_masked: Data files without delete files in the older state that have some in the newer one.
        unmasked: The other way round, as after a rollback.
        remasked: Data files with other delete files in either state.
        unchanged_until: Sequence number of the newest snapshot that both states descend from, where the files have
            row lineage, so that unchanged rows can be told without their values.
    """

    step: Step
    before: FileTasks
    after: FileTasks
    newly_masked: MaskedFiles
    unmasked: MaskedFiles
    remasked: MaskedFiles
    unchanged_until: int | None = None

    @property
    def masked(self) -> tuple[MaskedFiles, MaskedFiles, MaskedFiles]:
        """Data files that both states have."""
        return self.newly_masked, self.unmasked, self.remasked

    @property
    def older(self) -> list[FileTasks]:
        """Everything read of the older state."""
        return [self.before, *(files.before for files in self.masked)]

    @property
    def newer(self) -> list[FileTasks]:
        """Everything read of the newer state."""
        return [self.after, *(files.after for files in self.masked)]

    @property
    def only_inserts(self) -> bool:
        """Whether no row can have been deleted."""
        return not any(len(tasks) for tasks in self.older)


def read_changes(
    spark: SparkSession,
    table: str,
    start_snapshot_id: int | None = None,
    end_snapshot_id: int | None = None,
    mode: str = "net",
) -> DataFrame:
    """Read the row changes of a table between two snapshots.

    For each step the scans of both snapshots are planned and compared. A data file with the same delete files
    on both sides cannot hold a change and is not opened. The rest is read once per side, with deletes
    applied: rows of the older side are DELETE, rows of the newer side INSERT. This covers append,
    copy-on-write, merge-on-read (position deletes, equality deletes, deletion vectors), rollback and
    branches, and has the semantics that the Iceberg project settled for merge-on-read changelogs: a row
    deleted earlier is not deleted again, and a row added and deleted within one step is not shown.
    ``replace`` snapshots (compaction) change no row and are not read where that is less.

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
        HistoryGapError: A snapshot of the range is no longer in the table's metadata.
    """
    if mode not in MODES:
        raise ConfigError(f"Unknown mode {mode!r}", subject="mode", value=mode, remedy=f"use one of {', '.join(MODES)}")
    iceberg = IcebergTable(spark, table)
    metadata = iceberg.metadata()
    end = end_snapshot_id if end_snapshot_id is not None else head_snapshot_id(metadata)
    scans = [] if end is None else plan_scans(iceberg, metadata, start_snapshot_id, end, mode)
    return changes_frame(iceberg, scans)


def plan_scans(
    table: IcebergTable,
    metadata: TableMetadata,
    start_snapshot_id: int | None,
    end_snapshot_id: int,
    mode: str,
) -> list[StepScan]:
    """Plan which files of which snapshots hold the changes of a range; steps without any are left out."""
    steps = plan_steps(metadata, start_snapshot_id, end_snapshot_id, mode)
    if mode == "net":
        steps = [part for step in steps for part in _cut(table, metadata, step)]
    scans = [_scan(table, metadata, step) for step in steps]
    return [scan for scan in scans if any(len(tasks) for tasks in (*scan.older, *scan.newer))]


def is_insert_only(scans: Sequence[StepScan]) -> bool:
    """Whether no step can delete a row, so that neither shuffle nor identifier columns are needed."""
    return all(scan.only_inserts for scan in scans)


def changes_frame(
    table: IcebergTable,
    scans: Sequence[StepScan],
    columns: Sequence[str] = (),
    row_filter: str = "",
    with_row_position: bool = False,
    kept: list[DataFrame] | None = None,
) -> DataFrame:
    """Read the planned files.

    Args:
        table: The table the scans were planned on.
        scans: What to read.
        columns: The columns to read; empty: all.
        row_filter: A Spark SQL condition; rows that do not meet it are as good as absent, on both sides.
        with_row_position: Add ``_row_position`` before the change columns.
        kept: When given, parts that are small but dear to work out are kept (memory, then disk) for a frame that is
            read more than once, and are added to this list; the caller lets go of them.

    Returns:
        The frame that ``read_changes`` describes.
    """

    def selected(rows: DataFrame) -> DataFrame:
        return _selected(table, rows, columns, row_filter, with_row_position)

    frames = []
    for scan in scans:
        if with_row_position:
            require_positions(table, table.joined(*scan.newer))
        for change_type, rows, small in _sides(table, scan):
            frame = _with_change(selected(rows), change_type, scan.step)
            if small and kept is not None:
                kept.append(frame.persist(StorageLevel.MEMORY_AND_DISK))
            frames.append(frame)
    if not frames:
        frames = [_with_change(selected(table.read(table.nothing())), INSERT, Step(0, None, 0, None))]
    return reduce(DataFrame.unionAll, frames)


def _sides(table: IcebergTable, scan: StepScan) -> Iterator[tuple[str, DataFrame, bool]]:
    """Frames of whole table rows with their change type, and whether a frame is far smaller than what it reads."""
    if scan.unchanged_until is not None:
        older, newer = table.joined(*scan.older), table.joined(*scan.newer)
        row_count = sum(table.row_counts(older)) + sum(table.row_counts(newer))
        gone, come = changed_by_lineage(table.read(older), table.read(newer), scan.unchanged_until, row_count)
        yield DELETE, gone, False
        yield INSERT, come, True
        return
    if not table.shows_positions:
        # Neither lineage nor positions: what both sides have alike is cancelled by value.
        yield from _whole(table, DELETE, table.joined(*scan.older))
        yield from _whole(table, INSERT, table.joined(*scan.newer))
        return
    yield from _whole(table, DELETE, scan.before)
    yield from _whole(table, INSERT, scan.after)
    if len(scan.newly_masked.after):
        yield DELETE, deleted_rows(table.read(scan.newly_masked.after)), False
    if len(scan.unmasked.before):
        yield INSERT, deleted_rows(table.read(scan.unmasked.before)), True
    if len(scan.remasked.before):
        older_rows, newer_rows = table.read(scan.remasked.before), table.read(scan.remasked.after)
        gone, come = changed_by_deletes(older_rows, newer_rows, scan.remasked.rows)
        yield DELETE, gone, False
        yield INSERT, come, True


def _whole(table: IcebergTable, change_type: str, tasks: FileTasks) -> Iterator[tuple[str, DataFrame, bool]]:
    if len(tasks):
        yield change_type, table.read(tasks), False


def table_rows(
    table: IcebergTable,
    tasks: FileTasks,
    columns: Sequence[str] = (),
    row_filter: str = "",
    with_row_position: bool = False,
) -> DataFrame:
    """Read the live rows of these file tasks, selected by columns and condition."""
    return _selected(table, table.read(tasks), columns, row_filter, with_row_position)


def _selected(
    table: IcebergTable, rows: DataFrame, columns: Sequence[str], row_filter: str, with_row_position: bool
) -> DataFrame:
    wanted = list(columns) or table.column_names()
    selected = [F.col(quoted(name)) for name in wanted]
    if row_filter:
        rows = rows.where(F.expr(row_filter))
    return rows.select(*selected, *([_row_position(rows.schema)] if with_row_position else []))


def _row_position(schema: StructType) -> Column:
    if "_row_id" in schema.names:
        return F.col("_row_id").cast("string").alias(ROW_POSITION)
    return F.concat_ws(":", F.col("_file"), F.col("_pos")).alias(ROW_POSITION)


def require_positions(table: IcebergTable, tasks: FileTasks) -> None:
    """Check that every row of these files can be told by where it lies.

    Raises:
        IdentifierColumnsError: Files older than the upgrade to format version 3, which nothing was committed since.
    """
    if len(tasks) and not table.shows_positions and not table.have_row_ids(tasks):
        raise IdentifierColumnsError(
            f"Rows of '{table.name}' have no row id yet, because they were written before it became format version 3 "
            "(or lie in ORC files, whose row ids Spark 4.0 cannot read), and there are no identifier columns",
            subject="identifier_columns",
            value=[],
            remedy="name the columns that identify a row, or commit once to the table (an append or a compaction will "
            "do): that gives every row its id",
        )


def _with_change(rows: DataFrame, change_type: str, step: Step) -> DataFrame:
    return rows.select(
        "*",
        F.lit(change_type).alias(CHANGE_TYPE),
        F.lit(step.ordinal).cast("int").alias(CHANGE_ORDINAL),
        F.lit(step.to_snapshot_id).cast("long").alias(COMMIT_SNAPSHOT_ID),
    )


def _cut(table: IcebergTable, metadata: TableMetadata, step: Step) -> list[Step]:
    operations = {s.snapshot_id: s.summary.operation.value for s in metadata.snapshots if s.summary}
    if not step.path or all(operations.get(snapshot_id) != "replace" for snapshot_id in step.path):
        return [step]
    commits = {snapshot_id: table.commit_files(snapshot_id) for snapshot_id in step.path}
    files = {
        snapshot_id: SnapshotFiles({**c.added, **c.added_deletes}, {**c.removed, **c.removed_deletes})
        for snapshot_id, c in commits.items()
    }
    return cut_at_replaces(metadata, step, files)


def _scan(table: IcebergTable, metadata: TableMetadata, step: Step) -> StepScan:
    """Compare the scans of both ends; only files that some commit between them touched are looked at."""
    nothing = table.nothing()
    if step.path is None:
        before = table.plan(step.from_snapshot_id) if step.from_snapshot_id is not None else nothing
        return _compared(table, metadata, step, before, table.plan(step.to_snapshot_id))
    commits = [table.commit_files(snapshot_id) for snapshot_id in step.path]
    touched = {location for commit in commits for location in (*commit.added, *commit.removed, *commit.referenced)}
    anywhere = any(commit.untargeted_deletes for commit in commits)
    # A path that undoes snapshots begins with the one it starts from; undoing an append removes what it added.
    undoes = step.from_snapshot_id in step.path
    if not touched and not anywhere:
        return _compared(table, metadata, step, nothing, nothing)
    if step.from_snapshot_id is None or (not undoes and all(commit.only_adds for commit in commits)):
        return _compared(table, metadata, step, nothing, table.plan(step.to_snapshot_id, touched))
    before = table.plan(step.from_snapshot_id, touched, deletes=anywhere)
    after = table.plan(step.to_snapshot_id, touched, deletes=anywhere)
    if anywhere:
        # A delete file that names no data file can hit any: what one side knows of it tells where to look on the other.
        seen_before, seen_after = set(table.locations(before)), set(table.locations(after))
        if seen_after - seen_before - touched:
            before = table.plan(step.from_snapshot_id, touched | seen_before | seen_after)
        if seen_before - seen_after - touched:
            after = table.plan(step.to_snapshot_id, touched | seen_before | seen_after)
    return _compared(table, metadata, step, before, after)


def _compared(
    table: IcebergTable, metadata: TableMetadata, step: Step, before: FileTasks, after: FileTasks
) -> StepScan:
    """Sort the files of both sides by what can differ in them; those that are the same on both are left out."""
    names_before, names_after = table.locations(before), table.locations(after)
    # A file may have been added twice; then it stands for its rows twice, and only their values can be compared.
    repeated = {at for names in (names_before, names_after) for at, times in Counter(names).items() if times > 1}
    place_before = {at: position for position, at in enumerate(names_before) if at not in repeated}
    place_after = {at: position for position, at in enumerate(names_after) if at not in repeated}
    both = [(position, place_after[at]) for at, position in place_before.items() if at in place_after]
    deletes_before, deletes_after = table.delete_counts(before), table.delete_counts(after)
    suspects = [(a, b) for a, b in both if deletes_before[a] or deletes_after[b]]
    alike = [(a, b) for a, b in suspects if deletes_before[a] == deletes_after[b]]
    digests = zip(
        alike,
        table.delete_digests(table.select(before, [a for a, _ in alike])),
        table.delete_digests(table.select(after, [b for _, b in alike])),
        strict=True,
    )
    same = {pair for pair, was, now in digests if was == now}
    newly_masked: list[tuple[int, int]] = []
    unmasked: list[tuple[int, int]] = []
    remasked: list[tuple[int, int]] = []
    for a, b in suspects:
        if (a, b) not in same:
            kind = newly_masked if not deletes_before[a] else unmasked if not deletes_after[b] else remasked
            kind.append((a, b))
    masked = [_masked(table, before, after, pairs) for pairs in (newly_masked, unmasked, remasked)]
    scan = StepScan(
        step,
        table.select(before, [position for position, at in enumerate(names_before) if at not in place_after]),
        table.select(after, [position for position, at in enumerate(names_after) if at not in place_before]),
        newly_masked=masked[0],
        unmasked=masked[1],
        remasked=masked[2],
    )
    return scan if repeated else replace(scan, unchanged_until=_unchanged_until(table, metadata, scan))


def _masked(table: IcebergTable, before: FileTasks, after: FileTasks, pairs: Sequence[tuple[int, int]]) -> MaskedFiles:
    older, newer = table.select(before, [a for a, _ in pairs]), table.select(after, [b for _, b in pairs])
    return MaskedFiles(older, newer, table.deleted_count(older) + table.deleted_count(newer))


def _unchanged_until(table: IcebergTable, metadata: TableMetadata, scan: StepScan) -> int | None:
    rewritten = len(scan.before) and len(scan.after)
    if not rewritten and not any(len(files.before) for files in scan.masked):
        return None
    if not all(table.have_row_ids(tasks) for tasks in (*scan.older, *scan.newer)):
        return None
    ancestor = common_ancestor(metadata, scan.step.from_snapshot_id, scan.step.to_snapshot_id)
    return None if ancestor is None else sequence_number(metadata, ancestor)
