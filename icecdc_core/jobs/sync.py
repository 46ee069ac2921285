"""The incremental sync: from the index's position to the table's current snapshot, in one batch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from icecdc_core.commits.positions import Batch, IndexLock, Position
from icecdc_core.commits.preconditions import check_preconditions
from icecdc_core.errors import HistoryGapError, SchemaChangeError, TableReplacedError
from icecdc_core.jobs.batch import write_batch
from icecdc_core.jobs.dry_run import dry_run_sync
from icecdc_core.jobs.export import committed, export_locked, log_entry, require_own_table
from icecdc_core.jobs.pipeline import prepare
from icecdc_core.jobs.plan import must_reexport, next_range, sync_start
from icecdc_core.jobs.run import Run
from icecdc_core.jobs.sync_reports import joined, sync_report, with_export
from icecdc_core.opensearch.bulk_writer import BulkResult
from icecdc_core.opensearch.indexes import (
    create_physical,
    evolve_mapping,
    physical_index,
    publish,
    require_ours,
    require_present,
    unused_epoch,
)
from icecdc_core.reporting.instrumentation import note, observed
from icecdc_core.reporting.reports import RunReport
from icecdc_core.table.lag import lag
from icecdc_core.table.snapshots import sequence_number
from icecdc_core.table.source import Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from icecdc_core.config import SyncConfig


@observed("sync")
def sync_changes(spark: SparkSession, config: SyncConfig) -> RunReport:
    """Bring the index to the table's current snapshot.

    All snapshots since the position are handled in one batch. Without a position the table is exported first,
    unless ``start_from`` says where to start. A batch that an earlier run began and did not commit is
    replayed exactly, then the rest follows.

    Args:
        spark: A session in which the table's catalog is configured, see ``get_spark``.
        config: The job's parameters.

    Returns:
        What was written, and how long each stage took; zeros when there was nothing new.

    Raises:
        HistoryGapError: The position's snapshot has expired and ``on_history_gap`` is ``fail``.
        TableReplacedError: The table was dropped and created again and ``on_history_gap`` is ``fail``.
        SchemaChangeError: The schema or the selection changed and ``on_schema_change`` is ``fail``.
        IdentifierColumnsError: The range has deletes and there are no identifier columns, or one is null.
        DuplicateIdentifierError: Two rows share an identifier, equal or not.
        RejectedDocumentsError: OpenSearch rejected more documents than allowed; the position stays.
        TableLockedError: Another run holds the index.
        IcecdcError: Others of its family, see their names.
    """
    with Run(config) as run:
        with run.stage("check"):
            source = run.source(spark)
            position = run.positions.read()
            require_own_table(position, config)
            _note_lag(source, position)
            if position is None or not position.exists:
                require_ours(run.client, config)
            else:
                require_present(run.client, *position.committed_index)
        if config.dry_run:
            return dry_run_sync(run, source, position or Position(config.index, config.table, source.table_uuid))
        if position is not None and _up_to_date(position, source):
            return sync_report(run, source, position.snapshot_id, position.snapshot_id, strategy="none")
        with run.lock(source) as lock:
            return _sync_locked(run, source, lock)


def _sync_locked(run: Run, source: Source, lock: IndexLock) -> RunReport:
    start = sync_start(lock.position, source, run.config)
    if start.exports:
        report = export_locked(run, source, lock)
        if lock.position.snapshot_id == source.head:
            return report
        # An export that was resumed is of the snapshot it was begun with; what was committed since follows at once.
        source = run.source_again(source)
        if lock.position.snapshot_id == source.head:
            return report
        both = with_export(report, _catch_up(run, source, lock))
        return replace(both, seconds=run.seconds, stage_seconds=run.stage_seconds)
    if start.creates_index:
        _start_without_export(run, source, lock, start.position)
    elif start.position != lock.position:
        lock.write(start.position)
    return _catch_up(run, source, lock)


def _catch_up(run: Run, source: Source, lock: IndexLock) -> RunReport:
    """Take everything from the position to the table's current snapshot, a begun batch first."""
    if must_reexport(lock.position, source, run.config):
        return _reexport(run, source, lock)
    start = lock.position.snapshot_id
    report: RunReport | None = None
    while report is None or lock.position.snapshot_id != source.head:
        try:
            part = _one_batch(run, source, lock)
        except SchemaChangeError:
            if run.config.on_schema_change != "reexport":
                raise
            return _reexport(run, source, lock)
        except (HistoryGapError, TableReplacedError):
            before, source = source, run.source_again(source)
            if must_reexport(lock.position, source, run.config):
                return _reexport(run, source, lock)
            if source.snapshot_ids >= before.snapshot_ids:
                if run.config.on_history_gap != "reexport":
                    raise
                return _reexport(run, source, lock)
            continue  # What expired meanwhile is not needed to get from the position to the table's new snapshot.
        report = part if report is None else joined(report, part)
    return replace(report, from_snapshot_id=start, seconds=run.seconds, stage_seconds=run.stage_seconds)


def _one_batch(run: Run, source: Source, lock: IndexLock) -> RunReport:
    """Prepare, begin, write, commit one batch: the begun one if there is one, else all that is new."""
    config, position = run.config, lock.position
    chosen = next_range(position, source, config)
    end, begun = chosen.end, chosen.replayed
    number = sequence_number(source.metadata, end) if end is not None else 0
    epoch = lock.next_epoch(number) if begun is None else begun.epoch
    with run.stage("plan"):
        prepared = prepare(source, config, position.snapshot_id, end, epoch, chosen.cuts)
    try:
        with run.stage("changes"):
            prepared.compute()
        if begun is None:
            lock.begin(
                Batch(
                    "sync",
                    epoch,
                    position.snapshot_id,
                    end,
                    position.physical_index,
                    source.table_uuid,
                    source.stored_selection,
                    source.schema_json,
                    on_duplicate_identifier=config.on_duplicate_identifier,
                )
            )
        with run.stage("write"), prepared.partitions():
            if position.schema != source.schema_json:
                evolve_mapping(run.client, position.physical_index, source.schema)
            result = write_batch(run, lock, prepared.actions) if prepared.actions is not None else BulkResult()
            run.client.indices.refresh(index=position.physical_index)
    finally:
        prepared.close()
    report = replace(
        sync_report(run, source, position.snapshot_id, end, prepared.strategy, result),
        carryovers_removed=prepared.carryovers_removed,
        snapshots=prepared.snapshots,
        steps=prepared.steps,
        epoch=epoch,
    )
    with run.stage("commit"):
        batch = lock.position.batch
        if batch is not None:
            lock.commit(committed(lock.position, source, batch), log_entry(report))
    return report


def _reexport(run: Run, source: Source, lock: IndexLock) -> RunReport:
    lock.write(replace(lock.position, batch=None))
    return replace(export_locked(run, source, lock), strategy="reexport")


def _start_without_export(run: Run, source: Source, lock: IndexLock, start: Position) -> None:
    """Create an empty index whose position is where ``start_from`` says."""
    config = run.config
    with run.stage("create index"):
        epoch = unused_epoch(run.client, config.index, lock.next_epoch(0, new_index=True))
        physical = physical_index(config.index, epoch)
        create_physical(run.client, config, physical, source.schema, run.run_id, loading=False)
        publish(run.client, config, physical)
        batch = Batch(
            "sync",
            epoch,
            None,
            start.snapshot_id,
            physical,
            source.table_uuid,
            source.stored_selection,
            source.schema_json,
        )
        lock.write(committed(replace(start, epoch=epoch), source, batch))


def _note_lag(source: Source, position: Position | None) -> None:
    snapshots, seconds = lag(source.metadata, position.snapshot_id if position else None, source.head)
    note(lag_snapshots=snapshots, lag_seconds=seconds)


def _up_to_date(position: Position, source: Source) -> bool:
    """Whether there is nothing to do, not even to take the table."""
    return (
        position.exists
        and position.batch is None
        and position.snapshot_id == source.head
        and check_preconditions(position, source) is None
        and position.schema == source.schema_json
    )
