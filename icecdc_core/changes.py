"""Raw row changes between two snapshots: the file sets of both sides are compared, only files that differ are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyiceberg.table.metadata import TableMetadata
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
from icecdc_core.errors import ConfigError
from icecdc_core.snapshots import SnapshotFiles, Step, cut_at_replaces, head_snapshot_id, plan_steps
from icecdc_core.staged_scan import FileTasks, IcebergTable

MODES = ("net", "snapshot")


@dataclass(frozen=True)
class StepScan:
    """A step with the file tasks to read: ``before`` gives its DELETE rows, ``after`` its INSERT rows."""

    step: Step
    before: FileTasks
    after: FileTasks


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
    scans = [_scan(table, step) for step in steps]
    return [scan for scan in scans if len(scan.before) or len(scan.after)]


def is_insert_only(scans: Sequence[StepScan]) -> bool:
    """Whether no step can delete a row, so that neither shuffle nor identifier columns are needed."""
    return not any(len(scan.before) for scan in scans)


def changes_frame(
    table: IcebergTable,
    scans: Sequence[StepScan],
    columns: Sequence[str] = (),
    row_filter: str = "",
    with_row_position: bool = False,
) -> DataFrame:
    """Read the planned files.

    Args:
        table: The table the scans were planned on.
        scans: What to read.
        columns: The columns to read; empty: all.
        row_filter: A Spark SQL condition; rows that do not meet it are as good as absent, on both sides.
        with_row_position: Add ``_row_position`` before the change columns.

    Returns:
        The frame that ``read_changes`` describes.
    """
    sides = [
        (scan.step, change_type, tasks)
        for scan in scans
        for change_type, tasks in ((DELETE, scan.before), (INSERT, scan.after))
        if len(tasks)
    ]
    if not sides:
        sides = [(Step(0, None, 0, None), INSERT, table.nothing())]
    frames = [
        _with_change(table_rows(table, tasks, columns, row_filter, with_row_position), change_type, step)
        for step, change_type, tasks in sides
    ]
    return reduce(DataFrame.unionAll, frames)


def table_rows(
    table: IcebergTable,
    tasks: FileTasks,
    columns: Sequence[str] = (),
    row_filter: str = "",
    with_row_position: bool = False,
) -> DataFrame:
    """Read the live rows of these file tasks, selected by columns and condition."""
    rows = table.read(tasks)
    wanted = list(columns) or table.column_names()
    selected = [F.col(quoted(name)) for name in wanted]
    if row_filter:
        rows = rows.where(F.expr(row_filter))
    return rows.select(*selected, *([_row_position(rows.schema)] if with_row_position else []))


def _row_position(schema: StructType) -> Column:
    if "_row_id" in schema.names:
        return F.col("_row_id").cast("string").alias(ROW_POSITION)
    return F.concat_ws(":", F.col("_file"), F.col("_pos")).alias(ROW_POSITION)


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
    files = {snapshot_id: SnapshotFiles(c.added, c.removed) for snapshot_id, c in commits.items()}
    return cut_at_replaces(metadata, step, files)


def _scan(table: IcebergTable, step: Step) -> StepScan:
    """Compare the scans of both ends; only files that some commit between them touched are looked at."""
    if step.path is None:
        before = table.plan(step.from_snapshot_id) if step.from_snapshot_id is not None else table.nothing()
        return _differing(table, step, before, table.plan(step.to_snapshot_id))
    commits = [table.commit_files(snapshot_id) for snapshot_id in step.path]
    touched = {location for commit in commits for location in (*commit.added, *commit.removed, *commit.referenced)}
    anywhere = any(commit.untargeted_deletes for commit in commits)
    # A path that undoes snapshots begins with the one it starts from; undoing an append removes what it added.
    undoes = step.from_snapshot_id in step.path
    only_added = not undoes and not any(commit.removed or commit.deletes for commit in commits)
    if not touched and not anywhere:
        return StepScan(step, table.nothing(), table.nothing())
    if step.from_snapshot_id is None or only_added:
        return StepScan(step, table.nothing(), table.plan(step.to_snapshot_id, touched))
    return _differing(
        table,
        step,
        table.plan(step.from_snapshot_id, touched, deletes=anywhere),
        table.plan(step.to_snapshot_id, touched, deletes=anywhere),
    )


def _differing(table: IcebergTable, step: Step, before: FileTasks, after: FileTasks) -> StepScan:
    keys_before, keys_after = table.keys(before), table.keys(after)
    same = set(keys_before) & set(keys_after)
    return StepScan(
        step,
        table.select(before, [i for i, key in enumerate(keys_before) if key not in same]),
        table.select(after, [i for i, key in enumerate(keys_after) if key not in same]),
    )
