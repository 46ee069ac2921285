"""The full export: a pinned snapshot goes into a new physical index, and the alias moves when it is complete."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from icecdc_core.columns import CHANGE_ORDINAL, CHANGE_TYPE, COMMIT_SNAPSHOT_ID, INSERT
from icecdc_core.commits.positions import Batch, IndexLock, Position
from icecdc_core.commits.preconditions import check_preconditions
from icecdc_core.documents.bulk_lines import to_actions
from icecdc_core.errors import HistoryGapError, IndexNotFoundError, TableReplacedError
from icecdc_core.jobs.batch import write_batch
from icecdc_core.jobs.file_groups import FileGroups, file_groups
from icecdc_core.jobs.resume import resumed_groups
from icecdc_core.jobs.run import Run
from icecdc_core.logs import event
from icecdc_core.opensearch.bulk_writer import BulkResult
from icecdc_core.opensearch.indexes import (
    create_physical,
    drop_leftovers,
    drop_unread,
    physical_index,
    publish,
    require_ours,
    require_present,
    require_same_index,
    require_table,
    unused_epoch,
)
from icecdc_core.reporting.instrumentation import observed
from icecdc_core.reporting.reports import RunReport, progress
from icecdc_core.table.snapshots import sequence_number
from icecdc_core.table.source import Source, require_unique
from icecdc_core.updates import merge_updates

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from icecdc_core.config import SyncConfig
    from icecdc_core.table.iceberg_table import FileTasks

# Snapshots that are kept for less time than an export takes would make it start over for ever.
_TRIES = 3


@observed("export")
def export_table(spark: SparkSession, config: SyncConfig) -> RunReport:
    """Build the index from the table's current snapshot and record the position.

    The snapshot is pinned, its files are read in groups, and each group is recorded when its documents are
    in, so an export that dies goes on where it was. Readers see the old index until the new one is complete.

    Args:
        spark: A session in which the table's catalog is configured, see ``get_spark``.
        config: The job's parameters.

    Returns:
        What was written, and how long each stage took.

    Raises:
        IcecdcError: One of its family, before anything is written when the parameters or the table are at
            fault.
    """
    with Run(config) as run:
        with run.stage("check"):
            source = run.source(spark)
            require_ours(run.client, config)
            position = run.positions.read()
            require_own_table(position, config)
        if config.dry_run:
            return dry_run_export(run, source, position.batch if position else None)
        with run.lock(source) as lock:
            return export_locked(run, source, lock)


def export_locked(run: Run, source: Source, lock: IndexLock) -> RunReport:
    """Export while this run already holds the table; a begun export goes on if what it stands on is proven.

    One whose snapshot expires while it is read starts over with the table's current one, if ``on_history_gap`` is
    ``reexport``.
    """
    for _ in range(_TRIES - 1):
        try:
            return _export(run, source, lock)
        except (HistoryGapError, TableReplacedError) as error:
            if run.config.on_history_gap != "reexport":
                raise
            event(f"what is exported is gone: {error.message}", logging.WARNING)
            source = run.source_again(source)
    return _export(run, source, lock)


def _export(run: Run, source: Source, lock: IndexLock) -> RunReport:
    config, notes = run.config, []
    begun = lock.position.batch if lock.position.batch and lock.position.batch.kind == "export" else None
    groups: FileGroups | None = None
    if begun is not None:
        with run.stage("plan"):
            groups, reason = resumed_groups(run, source, begun)
        if groups is None:
            notes = [f"the export that was begun before starts over: {reason}"]
            event(notes[0], logging.WARNING, epoch=begun.epoch)
    if groups is None:
        groups = _begin(run, source, lock)
        if begun is not None:
            with run.stage("create index"):
                drop_unread(run.client, config, begun.physical_index)
    batch = lock.position.batch
    assert batch is not None
    snapshot_id = batch.to_snapshot_id
    result = _write_groups(run, source, lock, batch, groups.tasks)
    with run.stage("publish"):
        require_same_index(run.client, config, batch.physical_index, batch.index_uuid)
        publish(run.client, config, batch.physical_index)
    report = RunReport(
        kind="export",
        table=config.table,
        index=config.index,
        from_snapshot_id=None,
        to_snapshot_id=snapshot_id,
        strategy="export",
        upserts=result.upserts,
        deletes=result.deletes,
        already_applied=result.already_applied,
        rejected=batch.rejected + result.rejected,
        rejected_samples=result.rejected_samples,
        requests=result.requests,
        retries=result.retries,
        bytes=result.bytes,
        snapshots=1 if snapshot_id is not None else 0,
        stage_seconds=run.stage_seconds,
        seconds=run.seconds,
        run_id=run.run_id,
        epoch=batch.epoch,
        notes=notes,
    )
    with run.stage("commit"):
        lock.commit(committed(lock.position, source, batch), log_entry(report))
        drop_leftovers(run.client, config, {batch.physical_index})
    return replace(report, seconds=run.seconds, stage_seconds=run.stage_seconds)


def require_own_table(position: Position | None, config: SyncConfig) -> None:
    """Check that the index's position is this table's.

    Raises:
        IndexConflictError: The index is kept equal to another table.
    """
    if position is not None:
        require_table(config, position.table)


def settled_position(run: Run, source: Source, needs_history: bool = True) -> Position:
    """Return the position of an index that is there, for jobs that build none themselves.

    Args:
        run: The run.
        source: The table.
        needs_history: Whether the table must still have what the position stands on.

    Raises:
        IndexNotFoundError: The index has no position, or is gone.
        IndexConflictError: The index is kept equal to another table.
        TableReplacedError, HistoryGapError, SchemaChangeError: The position does not fit the table any more.
    """
    position = run.positions.read()
    require_own_table(position, run.config)
    if position is None or not position.exists:
        raise IndexNotFoundError(
            f"The index '{run.config.index}' has no position: nothing was exported or synced to it",
            subject="index",
            value=run.config.index,
            remedy="run the export first; check `index` and `positions_index`",
        )
    require_present(run.client, *position.committed_index)
    refusal = check_preconditions(position, source) if needs_history else None
    if refusal is not None:
        raise refusal.error
    return position


def committed(position: Position, source: Source, batch: Batch) -> Position:
    """Return the position after a batch."""
    return replace(
        position,
        table=source.table.name,
        table_uuid=source.table_uuid,
        snapshot_id=batch.to_snapshot_id,
        physical_index=batch.physical_index,
        selection=source.stored_selection,
        schema=source.schema_json,
    )


def log_entry(report: RunReport) -> dict[str, Any]:
    """Return what the commit log keeps of a report."""
    counts = (
        "upserts",
        "deletes",
        "carryovers_removed",
        "already_applied",
        "rejected",
        "seconds",
        "run_id",
        "strategy",
    )
    return {name: getattr(report, name) for name in counts}


def as_inserts(rows: DataFrame) -> DataFrame:
    """Give table rows the change columns of an insert, the shape that ``to_actions`` takes."""
    return rows.select(
        "*",
        F.lit(INSERT).alias(CHANGE_TYPE),
        F.lit(0).cast("int").alias(CHANGE_ORDINAL),
        F.lit(0).cast("long").alias(COMMIT_SNAPSHOT_ID),
    )


def current_rows(source: Source, snapshot_id: int | None, on_duplicate: str) -> DataFrame:
    """Return the selected rows of a snapshot; with ``last``, one row of each identifier."""
    tasks = source.table.plan(snapshot_id) if snapshot_id is not None else source.table.nothing()
    return _rows_to_write(source, tasks, on_duplicate)


def _rows_to_write(source: Source, tasks: FileTasks, on_duplicate: str) -> DataFrame:
    rows = as_inserts(source.rows(tasks))
    if source.identifier_columns and on_duplicate == "last":
        return merge_updates(rows, source.identifier_columns, on_duplicate="last")
    return rows


def _begin(run: Run, source: Source, lock: IndexLock) -> FileGroups:
    """Begin an export of the table's current snapshot: batch and physical index are recorded before any document."""
    config, snapshot_id = run.config, source.head
    with run.stage("plan"):
        groups = file_groups(source, snapshot_id, config.export_group_bytes, config.on_duplicate_identifier)
    if source.identifier_columns and groups.tasks:
        with run.stage("check identifiers"):
            _check_identifiers(source, snapshot_id, config)
    number = sequence_number(source.metadata, snapshot_id) if snapshot_id is not None else 0
    with run.stage("create index"):
        epoch = unused_epoch(run.client, config.index, lock.next_epoch(number, new_index=True))
        batch = Batch(
            "export",
            epoch,
            None,
            snapshot_id,
            physical_index(config.index, epoch),
            source.table_uuid,
            source.stored_selection,
            source.schema_json,
            group_bytes=config.export_group_bytes,
            groups_digest=groups.digest,
            on_duplicate_identifier=config.on_duplicate_identifier,
        )
        lock.begin(batch)
        lock.record_index(*create_physical(run.client, config, batch.physical_index, source.schema, run.run_id))
    return groups


def _write_groups(run: Run, source: Source, lock: IndexLock, batch: Batch, groups: list[FileTasks]) -> BulkResult:
    config, total = run.config, BulkResult()
    with run.stage("write"), progress(len(groups), f"exporting {config.table}") as bar:
        bar.update(min(batch.groups_done, len(groups)))
        for number, tasks in enumerate(groups[batch.groups_done :], batch.groups_done + 1):
            rows = _rows_to_write(source, tasks, config.on_duplicate_identifier)
            actions = to_actions(rows, source.identifier_columns, batch.epoch)
            total += write_batch(run, lock, actions, batch.rejected + total.rejected)
            source.table.release()
            lock.progress(number, batch.rejected + total.rejected)
            bar.update(1)
    return total


def _check_identifiers(source: Source, snapshot_id: int | None, config: SyncConfig) -> None:
    tasks = source.table.plan(snapshot_id) if snapshot_id is not None else source.table.nothing()
    allowed = config.on_duplicate_identifier == "last"
    require_unique(source.rows(tasks), source.identifier_columns, config.table, allowed)
    source.table.release()


def dry_run_export(run: Run, source: Source, begun: Batch | None = None) -> RunReport:
    """Check and count what an export would write, and write nothing; a begun one goes on if it can."""
    config, snapshot_id = run.config, source.head
    groups: FileGroups | None = None
    if begun is not None and begun.kind == "export":
        with run.stage("plan"):
            groups, _ = resumed_groups(run, source, begun, may_write=False)
    if begun is not None and groups is not None:
        snapshot_id, tasks = begun.to_snapshot_id, source.table.joined(*groups.tasks[begun.groups_done :])
        rows = _rows_to_write(source, tasks, config.on_duplicate_identifier)
    else:
        with run.stage("check identifiers"):
            if source.identifier_columns:
                _check_identifiers(source, snapshot_id, config)
        rows = current_rows(source, snapshot_id, config.on_duplicate_identifier)
    with run.stage("count"):
        count = rows.count()
    return RunReport(
        kind="export",
        table=run.config.table,
        index=run.config.index,
        to_snapshot_id=snapshot_id,
        strategy="export",
        upserts=count,
        snapshots=1 if snapshot_id is not None else 0,
        dry_run=True,
        run_id=run.run_id,
        seconds=run.seconds,
        stage_seconds=run.stage_seconds,
    )
