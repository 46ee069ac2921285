"""The incremental sync: from the index's position to the table's current snapshot."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession

from icecdc_core import errors
from icecdc_core.changes.row_changes import INSERT_ONLY, NONE, NetChanges
from icecdc_core.commits.position import Batch, Position
from icecdc_core.commits.preconditions import parameter_changes
from icecdc_core.commits.store import IndexLock
from icecdc_core.config import SyncConfig
from icecdc_core.jobs.export import dry_run_export, export_locked
from icecdc_core.opensearch.index_settings import require_pipelines
from icecdc_core.opensearch.indexes import require_own_alias
from icecdc_core.reporting.reports import RunReport
from icecdc_core.runs.batch import (
    Tally,
    commit_batch,
    compute_changes,
    count_rows,
    create_empty_index,
    find_suffixes,
    follow_spec,
    has_few_texts,
    noted_changes,
    position_at,
    prepared_index,
    report_fields,
    require_written_once,
    to_documents,
    with_indexes,
    with_times,
    write_batch,
    written_to,
)
from icecdc_core.runs.dead_letters import supersede_dead_letters
from icecdc_core.runs.plan import (
    EXPORT,
    BatchPlan,
    has_other_spec,
    heads,
    is_at_head,
    is_up_to_date,
    lag_of_tables,
    needs_reexport,
    nested_positions,
    plan_batch,
    require_planned,
    start_position,
)
from icecdc_core.runs.run import Run, require_identity, require_no_documents, require_readable_index
from icecdc_core.session.job_session import require_accelerator
from icecdc_core.table.snapshots import identity_of, sequence_number
from icecdc_core.table.source import Source
from icecdc_core.table.vectors import store_vectors


def sync_changes(spark: SparkSession, config: SyncConfig) -> RunReport:
    """Bring the index to the table's current snapshot.

    All snapshots since the position are one batch. Without a position the table is exported first, unless
    ``start_from`` says where to start. A batch that an earlier run began and did not commit is replayed exactly
    before the rest.

    Args:
        spark: A session in which the table's catalog is configured, see ``get_spark``.
        config: The job's parameters.

    Returns:
        What was written, and how long each stage took; zeros if there was nothing new.

    Raises:
        HistoryGapError, TableReplacedError: The changes cannot be read, and ``on_history_gap`` is ``fail``.
        SchemaChangeError: The schema or the selection changed, and ``on_schema_change`` is ``fail``.
        RejectedDocumentsError: OpenSearch rejected more documents than allowed; the position stays.
        TableLockedError: Another run has locked the index.
        IcecdcError: Any other error of the package.
    """
    with Run("sync", spark, config) as run:
        with run.stage("check"):
            position, source = checked_look(run)
            require_pipelines(run.client, config)
        require_planned(position, source, config)  # before the lock is written, and again in case it waited
        if config.audit_seconds:
            source.require_identifier_columns("an audit chooses parts by their values", "set audit_seconds to 0, or ")
        if config.dry_run:
            return run.finish(dry_run_sync(run, position, source))
        if is_up_to_date(position, source):
            run.positions.confirm(position, with_times(position, source))
            return run.finish(nothing_to_do(run, source))
        with run.lock(position, source) as (lock, source):
            if is_up_to_date(lock.position, source):
                return run.finish(nothing_to_do(run, source))
            require_planned(lock.position, source, config)
            start = start_position(lock.position, source, config)
            if start is None:
                report = export_locked(run, source, lock)
                # A resumed export is of the snapshot it began with; what was committed since follows at once.
                if not is_at_head(lock.position, source):
                    source = run.look_again(lock)
                if not is_at_head(lock.position, source):
                    report = replace(report.then(_catch_up(run, source, lock)), kind="export", strategy="export")
                return run.finish(report)
            if not start.exists:
                with run.stage("create index"):
                    create_empty_index(run, source, lock, start)
            elif start != lock.position:
                lock.write(start)
            return run.finish(_catch_up(run, source, lock))


def checked_look(run: Run) -> tuple[Position, Source]:
    """Look at position and table, and check the index; again if another run moves the position meanwhile."""
    require_accelerator(run.spark, run.config.accelerator)
    position, source = run.look()
    while True:
        snapshots, seconds = lag_of_tables(position, source)  # an index that does not exist lacks every snapshot
        run.note(lag_snapshots=snapshots, lag_seconds=seconds)
        if position.exists:
            run.note(lag_read_at=run.seconds)
        try:
            if not position.exists or position.begun_export:
                # A begun export makes the index whole. Readers may see that of an export which it took over from.
                require_own_alias(run.client, run.config)
                require_identity(run.client, run.config, position, source)
                start_position(position, source, run.config)  # a wrong start_from needs no lock
                require_no_documents(run.client, run.config, position)
            elif run.config.dry_run or not position.begun_rollback:  # it is finished under the lock
                require_readable_index(run.client, position)
            return position, source
        except (errors.IndexConflictError, errors.IndexNotFoundError):
            before = position
            position, source = run.look()
            if position == before:
                raise


def _catch_up(run: Run, source: Source, lock: IndexLock) -> RunReport:
    """Sync batch after batch until the index equals the table's current snapshot; a begun batch comes first."""
    config, report = run.config, None
    notes: list[str] = []
    if needs_reexport(lock.position, source, config):
        return _reexport(run, source, lock)
    if has_other_spec(lock.position, source):
        changes = parameter_changes(lock.position, source)
        with run.stage("follow spec"):
            followed = follow_spec(run, source, lock)
        if not followed:
            return _reexport(run, source, lock)
        notes = noted_changes(changes)
    while report is None or not is_at_head(lock.position, source):
        try:
            part = _sync_batch(run, source, lock)
        except errors.DuplicateIdentifierError as error:
            if lock.position.batch:  # the next run looks up the rows that remain, and does not repeat the batch
                lock.record(failure=str(error)[:2000], met_duplicates=True)
            raise
        except errors.SchemaChangeError:
            if config.on_schema_change != "reexport":
                raise
            return _reexport(run, source, lock, report)
        except (errors.HistoryGapError, errors.TableReplacedError):
            known, source = source.snapshot_ids, run.look_again(lock)
            is_as_known = source.snapshot_ids >= known
            if needs_reexport(lock.position, source, config) or (is_as_known and config.on_history_gap == "reexport"):
                return _reexport(run, source, lock, report)
            if is_as_known:
                raise
            # Else the position reaches the new current snapshot without the snapshots that expired.
        else:
            report = replace(part, notes=notes) if report is None else report.then(part)
    return report


def _sync_batch(run: Run, source: Source, lock: IndexLock) -> RunReport:
    position = lock.position
    source = written_to(source, position.physical_index)
    with _next_batch(run, source, position) as (plan, changes):
        epoch = plan.replayed.epoch if plan.replayed else lock.next_epoch(sequence_number(source.metadata, plan.end))
        if source.embeddings and changes.rows is not None:
            with run.stage("embed"):
                few = has_few_texts(source, plan, changes)
                store_vectors(source, changes.rows, run.config.embed_timeout_seconds, few)
        with run.stage("documents"):
            documents = to_documents(source, plan, changes, epoch)
        if not plan.replayed:
            batch = Batch(
                kind="sync",
                epoch=epoch,
                from_snapshot_id=position.snapshot_id,
                to_snapshot_id=plan.end,
                identity=identity_of(source.metadata, plan.end),
                physical_index=position.physical_index,
                table_uuid=source.metadata.table_uuid,
                selection=source.stored_selection,
                schema=source.schema_json,
                on_duplicate_identifier=run.config.on_duplicate_identifier,
                cuts=list(plan.cuts),
                nested=dict(plan.nested),
                nested_cuts=list(plan.nested_cuts),
                indexes=with_indexes(position, plan.suffixes),
            )
            lock.begin(batch)
        failed = position.batch.epoch if position.batch and position.batch.failure else None
        if failed not in (None, epoch):
            supersede_dead_letters(run.spark, run.config, failed)  # this batch has its changes, too
        with run.stage("write"), prepared_index(run, lock, source, plan, changes) as bar:
            written = write_batch(run, lock, documents)
            bar.complete(written.counts.operations)
            require_written_once(written, changes, source, run.config, plan)
    source.release()
    report = replace(_batch_report(run, position, plan, changes, **report_fields(written)), epoch=epoch)
    if position.is_partial:  # it lacks the documents of rows that are older than it
        report = replace(report, drifted=0, drifted_ids=[])
    with run.stage("commit"):
        commit_batch(run, lock, source, report)
        if failed == epoch and not report.rejected:
            supersede_dead_letters(run.spark, run.config, failed)
    return report


@contextmanager
def _next_batch(run: Run, source: Source, position: Position) -> Iterator[tuple[BatchPlan, NetChanges]]:
    with run.stage("plan", lambda: f"reading {lag_of_tables(position, source)[0]:,} snapshots"):
        plan = plan_batch(source, run.config, position)
    with ExitStack() as opened:
        with run.stage("changes", lambda: f"comparing {count_rows(source, plan):,} rows"):
            changes = compute_changes(source, run.config, plan)  # shuffle, carryovers, updates: changes/net_changes.py
            opened.callback(changes.close)
            suffixes = find_suffixes(run.config, changes.rows, position.every_index)
        yield replace(plan, suffixes=suffixes), changes


def _batch_report(run: Run, position: Position, plan: BatchPlan, changes: NetChanges, **found: Any) -> RunReport:
    found |= {"carryovers_removed": changes.carryovers_removed, "snapshots": plan.snapshots, "steps": plan.steps}
    found["nested_snapshots"] = {name: at.snapshot_id for name, at in plan.nested.items()}
    strategy = changes.strategy if changes.strategy in (NONE, INSERT_ONLY) else "diff"
    return run.report("sync", position.snapshot_id, plan.end, strategy, **found)


def _reexport(run: Run, source: Source, lock: IndexLock, earlier: RunReport | None = None) -> RunReport:
    require_planned(lock.position, source, run.config, EXPORT)
    # A begun batch is forgotten only when the export begins: what it wrote is in the index until then.
    report = replace(export_locked(run, source, lock), strategy="reexport")
    return report if earlier is None else earlier.then(report)


def nothing_to_do(run: Run, source: Source) -> RunReport:
    return run.report("sync", source.head, source.head, "none", nested_snapshots=heads(source))


def dry_run_sync(run: Run, stored: Position, source: Source, tally: Tally | None = None) -> RunReport:
    """Count what a sync from the stored position would do, by the decisions of the sync itself; nothing is written."""
    export, report = None, None
    position = start_position(stored, source, run.config)
    if position is None:
        export = dry_run_export(run, stored, source, tally)
        nested = nested_positions(source, export.nested_snapshots)
        position = replace(position_at(stored, source, export.to_snapshot_id, nested), batch=None)
        if is_at_head(position, source):
            return export
    elif not position.exists:
        position = position_at(position, source, position.snapshot_id, position.nested)
    if needs_reexport(position, source, run.config):
        return replace(dry_run_export(run, position, source, tally), strategy="reexport")
    notes = noted_changes(parameter_changes(position, source))
    position = replace(position, selection=source.stored_selection)  # a sync follows a changed spec first
    while report is None or not is_at_head(position, source):
        try:
            with _next_batch(run, source, position) as (plan, changes):
                found = {"upserts": changes.upserts, "deletes": changes.deletes, "dry_run": True}
                if tally and changes.rows is not None:
                    with run.stage("count"):
                        tally.count(source, changes.rows, changes.upserts)
        except errors.HistoryGapError:
            if run.config.on_history_gap != "reexport":
                raise
            return replace(dry_run_export(run, position, source, tally), strategy="reexport")
        finally:
            source.release()
        part = _batch_report(run, position, plan, changes, **found)
        report = replace(part, notes=notes) if report is None else report.then(part)
        position = replace(position, snapshot_id=plan.end, nested=dict(plan.nested), batch=None)
    if export is not None:
        report = replace(export.then(report), kind="export", strategy="export", from_snapshot_id=None)
    return report
