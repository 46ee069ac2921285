"""A batch: its changes and documents, begin, write and commit."""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from math import ceil
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, functions as F

from icecdc_core import errors
from icecdc_core.changes.last_rows import find_last_rows, has_duplicates
from icecdc_core.changes.net_changes import compute_net_changes
from icecdc_core.changes.row_changes import NetChanges, PlannedRange
from icecdc_core.columns import WAS_THERE
from icecdc_core.commits.position import Batch, NestedPosition, Position
from icecdc_core.commits.preconditions import index_identity
from icecdc_core.commits.store import IndexLock
from icecdc_core.config import SyncConfig
from icecdc_core.config.values import MAX_TARGET_BYTES
from icecdc_core.documents.bulk_lines import index_with_suffix, suffix_of, suffix_of_place, to_actions, upsert_version
from icecdc_core.documents.spec import dynamic_settings
from icecdc_core.logs import event, set_fields
from icecdc_core.opensearch import bulk, indexes
from icecdc_core.opensearch.counts import COUNTERS
from icecdc_core.opensearch.index_settings import change_settings
from icecdc_core.reporting.progress import Progress, progress
from icecdc_core.reporting.reports import RunReport
from icecdc_core.runs.dead_letters import store_dead_letters
from icecdc_core.runs.nested import compute_nested_changes
from icecdc_core.runs.plan import BatchPlan, has_other_schema, has_other_spec, is_at_head, lag_of_tables
from icecdc_core.runs.run import Run
from icecdc_core.session.spark import shuffle_partitions_for, unless_broadcast_fails
from icecdc_core.table.schema import require_no_null
from icecdc_core.table.snapshots import committed_at, identity_of
from icecdc_core.table.source import Source
from icecdc_core.table.vectors import FEW_TEXTS, count_new_texts, with_vectors

_LOGGED = (*COUNTERS, "seconds", "run_id", "strategy")
_BYTES_PER_PARTITION = 16 * 1024 * 1024
_ROWS_PER_PARTITION = 50_000  # a small nested table may change many documents


def compute_changes(source: Source, config: SyncConfig, plan: BatchPlan) -> NetChanges:
    """Compute the changes of a batch and check their identifiers, so that bad data stops it before its first write."""
    how = config.row_hash, config.accelerator
    planned = PlannedRange(source.table, plan.scans, source.key_columns, plan.file_bytes, source.selection, *how)

    def computed() -> NetChanges:
        if not plan.steps:
            changes = NetChanges()
        elif source.nest:
            changes = compute_nested_changes(source, config, plan, planned)
        elif plan.looks_up and source.identifier_columns:
            changes = _last_rows(source, config, plan, planned)
        else:
            changes = compute_net_changes(planned, partial(count_documents, source) if config.dry_run else None)
        # Of a batch that is repeated, OpenSearch cannot say what was there before.
        if not (plan.looks_up or plan.is_first_try) and _has_duplicates(changes, source, plan):
            changes.close()
            changes = _last_rows(source, config, plan, planned)
        return changes

    with shuffle_partitions_for(source.table.spark, plan.file_bytes):
        changes = unless_broadcast_fails(source.table.spark, computed)
        if changes.rows is not None:
            try:
                if changes.nulls:
                    require_no_null(changes.rows, planned.identifier_columns, planned.table.name)
                if source.selection.has_places:
                    source.require_places(changes.rows)
            except BaseException:
                changes.close()
                raise
    set_fields(change_strategy=changes.strategy)  # in the log of the stage; reports group some strategies
    if source.embeddings and changes.cached and changes.rows is not None:  # their texts are read first
        rows = changes.rows.persist(StorageLevel.MEMORY_AND_DISK)
        changes = replace(changes, rows=rows, cached=(*changes.cached, rows))
    return changes


def _has_duplicates(changes: NetChanges, source: Source, plan: BatchPlan) -> bool:
    """Whether the table has rows of one identifier among those that a range added."""
    if changes.rows is None or source.nest or not source.identifier_columns:
        return False
    return has_duplicates(changes.rows, source.key_columns, source.identifier_rows(plan.end))


def _last_rows(source: Source, config: SyncConfig, plan: BatchPlan, planned: PlannedRange) -> NetChanges:
    policy = config.on_duplicate_identifier
    if policy == "fail":
        source.require_unique_identifiers(policy, plan.end)
    return find_last_rows(planned, source.current_rows(plan.end, "fail"), policy)


def require_written_once(
    result: bulk.BulkResult, changes: NetChanges, source: Source, config: SyncConfig, plan: BatchPlan
) -> None:
    """Ask the table where no answer of OpenSearch showed whether an added row met a document."""
    if result.unchecked and _has_duplicates(changes, source, plan):
        raise _duplicates_met(config, "rows that were added")


def _duplicates_met(config: SyncConfig, which: str) -> errors.DuplicateIdentifierError:
    return errors.DuplicateIdentifierError(
        f"'{config.index}' had documents of {which}: two rows of '{config.table}' have one identifier, or another "
        "program wrote the documents",
        subject="on_duplicate_identifier",
        value="fail",
        remedy="delete the rows that repeat an identifier, if there are any, then sync again, which looks up the rows "
        "that remain; or set on_duplicate_identifier=last",
    )


def to_documents(source: Source, plan: BatchPlan, changes: NetChanges, epoch: int) -> DataFrame | None:
    """Turn changes into bulk lines, in as few partitions as the files are worth: each costs a task and a request."""
    if changes.rows is None:
        return None
    few = source.embeddings is not None and has_few_texts(source, plan, changes)
    rows = with_vectors(source, changes.rows if plan.is_first_try else changes.rows.drop(WAS_THERE), few)
    actions = to_actions(rows, source.key_columns, epoch, source.physical_index)
    partitions = max(plan.file_bytes / _BYTES_PER_PARTITION, (changes.upserts + changes.deletes) / _ROWS_PER_PARTITION)
    return actions.coalesce(max(1, ceil(partitions)))


def has_few_texts(source: Source, plan: BatchPlan, changes: NetChanges) -> bool:
    return (changes.upserts if changes.is_counted else count_rows(source, plan)) <= FEW_TEXTS


def count_rows(source: Source, plan: BatchPlan) -> int:
    """Return how many rows the files of a batch have, those that delete files remove too; it reads no file."""
    scans = [scan for each in (plan.scans, *plan.nested_scans.values()) for scan in each]
    files = [tasks for scan in scans for tasks in (*scan.read_older, *scan.read_newer)]
    return sum(count for tasks in files for count in source.table.row_counts(tasks))


def count_documents(source: Source, rows: DataFrame) -> int:
    """Count what a dry run would write; to count rows alone, Spark would evaluate no expression of a document."""
    if source.projection is None:
        return rows.count()
    actions = to_actions(rows, source.key_columns, epoch=0)
    return int(actions.agg(F.count("*"), F.sum(F.length("action"))).collect()[0][0])


@dataclass
class Tally:
    """What a plan learns where a dry run counts: bytes, texts without a vector, and a sample, some 16 MiB at most."""

    bytes: int = 0
    new_texts: int = 0
    sample: list[str] = field(default_factory=list)

    def count(self, source: Source, rows: DataFrame, expected: int) -> int:
        by_chance = f"rand() * {max(1, expected)} < 1000 AND octet_length(action) < 16384"
        sampled = F.expr(f"CASE WHEN {by_chance} AND startswith(action, '{{\"index') THEN action END")
        actions = to_actions(rows, source.key_columns, epoch=1).select("action", sampled.alias("sampled"))
        # A writer may have recorded fewer rows than there are.
        sample = F.slice(F.collect_list("sampled"), 1, 1000)
        totals = F.count("*"), F.sum(F.octet_length("action")), sample
        ((count, size, found),) = actions.agg(*totals).collect()
        self.bytes += size or 0
        self.sample += found
        self.new_texts += count_new_texts(source, rows)
        return int(count)


def written_to(source: Source, physical: str) -> Source:
    """Return a source whose documents are written to indexes with suffixes, if it has an `index_column`."""
    return replace(source, physical_index=physical) if source.index_column else source


def find_suffixes(config: SyncConfig, rows: DataFrame | None, known: Collection[str] = ()) -> list[str]:
    """Return the suffixes of the indexes that rows belong to; with known indexes there may not be too many."""
    if rows is None or not config.index_column:
        return []
    found = [row[0] for row in rows.select(suffix_of_place()).distinct().limit(config.max_indexes + 1).collect()]
    known = {*map(suffix_of, known)}
    every = {*found, *known}
    if len(every) > config.max_indexes:
        raise errors.ConfigError(
            f"The values of '{config.index_column}' make more than {config.max_indexes} indexes, for example for "
            f"{', '.join(sorted(every)[:5])}",
            subject="max_indexes",
            value=config.max_indexes,
            remedy="choose a column with fewer values, or raise max_indexes; an export drops indexes without rows",
        )
    longest = max({*found} - known, key=len, default="")
    if len(f"{config.index}-{longest}".encode()) > MAX_TARGET_BYTES:
        raise errors.ConfigError(
            f"The value '{longest}' of '{config.index_column}' makes the name of an index too long",
            subject="index_column",
            value=config.index_column,
            remedy=f"choose shorter values or a shorter index: together they may have {MAX_TARGET_BYTES - 1} bytes",
        )
    return sorted(found)


def with_indexes(position: Position, suffixes: Sequence[str]) -> dict[str, str]:
    named = (index_with_suffix(position.physical_index, suffix) for suffix in suffixes)
    return {**dict.fromkeys(named, ""), **position.every_index}


@contextmanager
def prepared_index(
    run: Run, lock: IndexLock, source: Source, plan: BatchPlan, changes: NetChanges
) -> Iterator[Progress]:
    """Prepare the index for the begun batch, which the block writes; afterwards searches find its documents."""
    config, physical = run.config, lock.position.physical_index
    prepare_indexes(run, lock, source)
    count = changes.upserts + changes.deletes if changes.is_counted else count_rows(source, plan)
    with (
        shuffle_partitions_for(run.spark, plan.file_bytes),
        progress(count, f"Syncing {config.table}") as bar,
        bar.watching(partial(indexes.count_operations, run.client, indexes.with_suffixes(config, physical))),
    ):
        yield bar
    run.client.indices.refresh(index=indexes.with_suffixes(config, physical))


def prepare_indexes(run: Run, lock: IndexLock, source: Source) -> None:
    """Map new columns and create missing indexes with suffixes for the begun batch; readers see them at once."""
    batch = lock.batch
    if has_other_schema(lock.position, source):  # of a repair, too: the rows may have columns that no sync mapped yet
        indexes.evolve_mapping(run.client, run.config, batch.physical_index, source.schema)
    if missing := [name for name, uuid in batch.indexes.items() if not uuid]:
        identity = index_identity(batch.selection)
        created = indexes.create_suffixed(run.client, run.config, missing, source.schema, run.run_id, False, identity)
        indexes.show_suffixed(run.client, run.config, batch.physical_index, created)
        lock.record(indexes={**batch.indexes, **created})


def write_batch(run: Run, lock: IndexLock, actions: DataFrame | None, rejected_before: int = 0) -> bulk.BulkResult:
    if actions is None:
        return bulk.BulkResult()
    batch = lock.batch
    spark, config = actions.sparkSession, run.config
    # A repair goes above whatever versions it meets.
    highest = bulk.ANY_VERSION if batch.kind == "repair" else upsert_version(batch.epoch)
    # An answer shows whether a document was in one shard of one index; places have several.
    searched = indexes.with_suffixes(config, batch.physical_index) if config.routing or config.index_column else ""
    writer = bulk.BulkWriter.of(config, indexes.write_alias(batch.physical_index), highest, searched)
    with bulk.write_actions(actions, writer) as (result, dead_letters):
        try:
            bulk.require_accepted(result, config.max_rejected_documents, rejected_before)
        except errors.RejectedDocumentsError as error:
            _record_failure(lock, error)
            try:
                few = dead_letters.limit(bulk.FAILED_DEAD_LETTERS)
                store_dead_letters(spark, config, batch, run.run_id, result, few)
            except errors.ConfigError as unwritable:
                event(str(unwritable), logging.WARNING)
            raise
        store_dead_letters(spark, config, batch, run.run_id, result, dead_letters)
    if result.largest > lock.largest:
        lock.record(largest=result.largest)
    if result.duplicates:
        some = ", ".join(result.duplicate_ids[:5])
        raise _duplicates_met(config, f"{result.duplicates:,} rows that were added, for example {some}")
    return result


def _record_failure(lock: IndexLock, error: errors.RejectedDocumentsError) -> None:
    """Record why the begun batch fails, which matters more than a problem with recording it."""
    try:
        lock.record(failure=str(error)[:2000])
    except errors.IcecdcError as unrecorded:
        are_newer = {letter["status"] for letter in error.dead_letters} == {409}
        if isinstance(unrecorded, errors.FencedError) and are_newer:
            raise  # the newer versions are those of the run that has the lock now
        event(f"the reason of the failed batch was not recorded: {unrecorded}", logging.WARNING)


def commit_batch(run: Run, lock: IndexLock, source: Source, report: RunReport) -> None:
    """Move the position to the end of the begun batch, log it, and drop what killed runs left of earlier indexes."""
    batch = lock.batch
    before = replace(lock.position, is_partial=False, drifted=0) if batch.kind == "export" else lock.position
    position = replace(
        before,
        physical_index=batch.physical_index,
        index_uuid=batch.index_uuid or before.index_uuid,
        indexes=batch.indexes,
        is_unique=batch.on_duplicate_identifier != "last",
        drifted=before.drifted + report.drifted,
        **_kept_index(run.config, lock.position, batch),
    )
    position = position_at(position, source, batch.to_snapshot_id, batch.nested)
    waited = None if batch.kind == "export" else lag_of_tables(before, source)[1]
    lock.commit(replace(with_times(position, source), lag_seconds=waited), log_entry(report))
    kept = position.earlier.uuids if position.earlier else ()
    indexes.drop_leftovers(run.client, run.config, batch.physical_index, kept, batch.epoch)


def _kept_index(config: SyncConfig, position: Position, batch: Batch) -> dict[str, Any]:
    """What a commit keeps for a rollback: that of an export the index before it, another one what is not too old."""
    now = datetime.now(UTC)
    if batch.kind == "export":
        kept = replace(position, batch=batch.over, earlier=None) if config.keep_index and position.exists else None
        return {"earlier": kept, "earlier_until": (now + timedelta(seconds=config.keep_index)).isoformat()}
    return {} if now.isoformat() < position.earlier_until else {"earlier": None}


def report_fields(result: bulk.BulkResult) -> dict[str, Any]:
    found = {"rejected_samples": result.rejected_samples, "drifted_ids": list(result.drifted_ids)}
    return {**asdict(result.counts), **found}


def position_at(
    position: Position, source: Source, snapshot_id: int | None, nested: Mapping[str, NestedPosition]
) -> Position:
    """Return the position once its index has the documents of a snapshot, and of one of each nested table."""
    return replace(
        position,
        table=source.table.name,
        table_uuid=source.metadata.table_uuid,
        snapshot_id=snapshot_id,
        identity=identity_of(source.metadata, snapshot_id),
        selection=source.stored_selection,
        schema=source.schema_json,
        unfinished_specs=[],
        nested=dict(nested),
    )


def with_times(position: Position, source: Source) -> Position:
    """Return the position with when its snapshots were committed, and when they were last known to be the newest."""
    named = [(source, position.snapshot_id)]
    named += [(source.nested[name], each) for name, each in position.nested_snapshots.items()]
    times = [committed_at(each.metadata.by_id[at]) for each, at in named if at in each.metadata.by_id]
    current_at = source.read_at if is_at_head(position, source) else position.current_at
    return replace(position, committed_at=max(times).isoformat() if times else None, current_at=current_at)


def log_entry(report: RunReport) -> dict[str, Any]:
    return {name: getattr(report, name) for name in _LOGGED}


def _changed_settings(position: Position, source: Source) -> dict[str, Any]:
    changes = [dynamic_settings(each, source.spec) for each in (position.selection, *position.unfinished_specs)]
    return {name: value for each in changes for name, value in each.items()}


@contextmanager
def trial_in_place(run: Run, source: Source, position: Position) -> Iterator[str]:
    """Let an empty copy of the index take a changed spec and new columns, as ``follow_spec`` lets the index."""
    with indexes.trial_index(run.client, run.config, source.schema, like=position.physical_index) as trial:
        change_settings(run.client, run.config, trial, _changed_settings(position, source))
        if has_other_spec(position, source) or has_other_schema(position, source):
            indexes.evolve_mapping(run.client, run.config, trial, source.schema)
        yield trial


def follow_spec(run: Run, source: Source, lock: IndexLock) -> bool:
    """Put a changed spec in place, where that leaves every indexed document right."""
    physical = indexes.with_suffixes(run.config, lock.position.physical_index)
    was, unfinished = lock.position.selection, lock.position.unfinished_specs
    changed = _changed_settings(lock.position, source)
    # Recorded before the first write: a run that dies halfway leaves parts of this spec, and the next one must know.
    lock.write(
        replace(
            lock.position, unfinished_specs=[*(each for each in unfinished if each != source.spec), dict(source.spec)]
        )
    )
    are_changed = False
    try:
        # First: a new field may need a limit that was raised.
        change_settings(run.client, run.config, physical, changed)
        are_changed = True
        indexes.evolve_mapping(run.client, run.config, lock.position.physical_index, source.schema)
    except (errors.ConfigError, errors.SchemaChangeError) as error:
        # OpenSearch refuses a request as a whole, and would refuse to reset the settings that it refused to set.
        if are_changed:
            change_settings(run.client, run.config, physical, dynamic_settings(source.spec, was))
        lock.write(replace(lock.position, unfinished_specs=unfinished))
        if isinstance(error, errors.ConfigError) or run.config.on_schema_change != "reexport":
            raise
        return False
    lock.write(replace(lock.position, selection=source.stored_selection, unfinished_specs=[]))
    return True


def noted_changes(changes: Sequence[str]) -> list[str]:
    """Log how the parameters of the index changed, and return the note for the report."""
    if not changes:
        return []
    note = f"the parameters of the index changed: {'; '.join(changes)}"
    event(note)
    return [note]


def create_empty_index(run: Run, source: Source, lock: IndexLock, start: Position) -> None:
    """Create an empty index, which readers see at once, and record its position."""
    config = run.config
    seen = run.confirm_readers_indexes(lock)
    epoch = indexes.unused_epoch(run.client, config.index, lock.next_epoch(0, new_index=True))
    physical = indexes.physical_index(config.index, epoch)
    identity = index_identity(source.stored_selection)
    indexes.check_mapping(run.client, config, source.schema)
    uuid = indexes.create_physical(run.client, config, physical, source.schema, run.run_id, False, identity)
    indexes.publish_index(run.client, config, physical, seen)
    start = replace(start, epoch=epoch, physical_index=physical, index_uuid=uuid)
    lock.write(position_at(start, source, start.snapshot_id, start.nested))
