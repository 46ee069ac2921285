"""The full export: a pinned snapshot goes into a new physical index, and the alias moves when it is complete."""

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from opensearchpy.exceptions import RequestError
from pyspark.sql import SparkSession

from icecdc_core import errors
from icecdc_core.commits.position import Batch, NestedPosition, Position
from icecdc_core.commits.preconditions import index_identity, parameter_changes
from icecdc_core.commits.store import IndexLock
from icecdc_core.config import SyncConfig
from icecdc_core.documents.bulk_lines import index_with_suffix, to_actions
from icecdc_core.logs import event
from icecdc_core.opensearch import indexes
from icecdc_core.opensearch.bulk import BulkResult
from icecdc_core.opensearch.index_settings import named_pipelines, require_pipelines
from icecdc_core.reporting.progress import progress
from icecdc_core.reporting.reports import RunReport
from icecdc_core.runs.batch import (
    Tally,
    commit_batch,
    count_documents,
    find_suffixes,
    noted_changes,
    report_fields,
    write_batch,
    written_to,
)
from icecdc_core.runs.nested import at_vector
from icecdc_core.runs.plan import CREATE, EXPORT, heads, nested_positions, require_planned
from icecdc_core.runs.run import Run, require_identity
from icecdc_core.table.iceberg_table import FileTasks
from icecdc_core.table.snapshots import history_gap_error, identity_of, sequence_number
from icecdc_core.table.source import Source, require_row_positions
from icecdc_core.table.vectors import store_vectors, with_vectors

# If snapshots expire faster than an export takes, it would start over for ever.
_ATTEMPTS = 3
# Each group of files reads all nested tables: with groups of so many times their size, a quarter of what it reads.
_TIMES_NESTED = 4
# Parameters that only a row may show to be wrong.
_SEEN_IN_ROWS = ("identifier_columns", "row_filter", "select", "nest")


def export_table(spark: SparkSession, config: SyncConfig) -> RunReport:
    """Build the index from the table's current snapshot and record the position.

    The snapshot is pinned and its files are read in groups. Each group is recorded when its documents are written, so
    an export that dies continues where it was. Readers see the old index until the new one is complete.

    Args:
        spark: A session in which the table's catalog is configured, see ``get_spark``.
        config: The job's parameters.

    Returns:
        What was written, and how long each stage took.

    Raises:
        IcecdcError: One of its family, before anything is written if the parameters or the table are at fault.
    """
    with Run("export", spark, config) as run:
        with run.stage("check"):
            position, source = run.look()
            indexes.require_own_alias(run.client, config)
            require_pipelines(run.client, config)
            require_identity(run.client, config, position, source)
        require_planned(position, source, config, EXPORT if position.exists else CREATE)
        if config.dry_run:
            return run.finish(dry_run_export(run, position, source))
        with run.lock(position, source) as (lock, source):
            return run.finish(export_locked(run, source, lock))


def export_locked(run: Run, source: Source, lock: IndexLock) -> RunReport:
    """Export under a lock: a begun export goes on if it is proven unchanged; one whose snapshot expires starts over."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return _export(run, source, lock)
        except (errors.HistoryGapError, errors.TableReplacedError) as error:
            if run.config.on_history_gap != "reexport":
                raise
            event(f"the exported snapshot is gone: {error.message}", logging.WARNING)
            source = run.look_again(lock)
    return _export(run, source, lock)


def _export(run: Run, source: Source, lock: IndexLock) -> RunReport:
    config = run.config
    seen = run.confirm_readers_indexes(lock)
    groups, notes = _resume(run, source, lock.position.batch)
    resumed = groups is not None
    if groups is None:
        changes = parameter_changes(lock.position, source)
        groups = _begin(run, source, lock)
        notes += noted_changes(changes)  # they are logged, too, once they apply
    batch, total = lock.batch, BulkResult()
    source = written_to(at_vector(source, batch.to_snapshot_id, batch.nested_snapshots), batch.physical_index)
    if resumed:
        _store_vectors(run, source, groups[batch.groups_done :])
    with run.stage("plan"):
        rows = [sum(source.table.row_counts(tasks)) for tasks in groups]
    done = sum(rows[: batch.groups_done])
    operations = partial(indexes.count_operations, run.client, indexes.with_suffixes(config, batch.physical_index))
    try:
        with run.stage("write"), progress(sum(rows), f"Exporting {config.table}", done) as bar:
            for number, tasks in enumerate(groups[batch.groups_done :], batch.groups_done + 1):
                inserts = with_vectors(source, source.rows_as_inserts(tasks, config.on_duplicate_identifier))
                actions = to_actions(inserts, source.key_columns, batch.epoch, source.physical_index)
                with bar.watching(operations):
                    written = write_batch(run, lock, actions, batch.rejected + total.counts.rejected)
                total += written
                source.release()
                lock.record(
                    groups_done=number,
                    operations=batch.operations + total.counts.operations,
                    rejected=batch.rejected + total.counts.rejected,
                )
                bar.update(written.counts.operations)
            bar.complete(done + total.counts.operations)
        if not lock.position.exists:
            with run.stage("check identifiers"):
                _require_a_document_of_each_row(run, source, lock.batch)
    except (
        errors.ConfigError,
        errors.DuplicateIdentifierError,
        errors.IdentifierColumnsError,
        errors.SeveralMatchesError,
    ) as error:
        if not lock.position.exists and error.subject in _SEEN_IN_ROWS:
            # Nobody reads this index, and there is no earlier one: as if the export had never begun.
            with run.stage("check identifiers"):
                indexes.drop_unless_read(run.client, config, batch.physical_index)
                lock.write(replace(lock.position, batch=None))
                if isinstance(error, errors.IdentifierColumnsError):  # of a task; this one names the row
                    source.require_unique_identifiers(config.on_duplicate_identifier, batch.to_snapshot_id)
        elif error.subject in _SEEN_IN_ROWS:  # the pinned snapshot stays wrong, so no export can go on with it
            lock.record(failure=str(error)[:2000])
        raise
    with run.stage("publish"):
        indexes.require_same_index(run.client, config, batch.uuids)
        indexes.publish_index(run.client, config, batch.physical_index, seen, batch.indexes)
    report = replace(
        run.report("export", None, batch.to_snapshot_id, "export", **report_fields(total)),
        rejected=batch.rejected + total.counts.rejected,
        snapshots=int(batch.to_snapshot_id is not None),
        nested_snapshots=batch.nested_snapshots,
        epoch=batch.epoch,
        notes=notes,
    )
    with run.stage("commit"):
        commit_batch(run, lock, source, report)
    return report


def _require_a_document_of_each_row(run: Run, source: Source, batch: Batch) -> None:
    """Check that no two rows share an identifier: then a new index has a document of each row that was written."""
    # A count proves nothing if a refused document hides another one, or a pipeline sends two of one id to two shards.
    indexes.require_same_index(run.client, run.config, batch.uuids)
    names = indexes.with_suffixes(run.config, batch.physical_index)
    run.client.indices.refresh(index=names)
    is_other = run.client.count(index=names)["count"] != batch.operations
    if batch.rejected or is_other or named_pipelines(run.config):
        source.require_unique_identifiers(batch.on_duplicate_identifier, batch.to_snapshot_id)


def _resume(run: Run, source: Source, begun: Batch | None) -> tuple[list[FileTasks] | None, list[str]]:
    """Return the groups of a begun export that can continue; else None, and a note if there was one that cannot."""
    if begun is None or begun.kind != "export":
        return None, []
    with run.stage("plan"):
        reason = changed_since(begun, source, run.config)
        if not reason:
            groups, digest = file_groups(source, begun.to_snapshot_id, begun.group_bytes, begun.on_duplicate_identifier)
            if digest != begun.groups_digest:
                reason = "its files are grouped differently"
            elif not indexes.is_intact(run.client, begun.uuids):
                reason = "its index was deleted or created again"
            elif indexes.definition_digest(run.client, run.config, source.schema) != begun.index_digest:
                reason = "the settings or the mapping of a new index changed"
            else:
                return groups, []
    note = f"the begun export starts over: {reason}"
    event(note, logging.WARNING, epoch=begun.epoch)
    return None, [note]


def _begin(run: Run, source: Source, lock: IndexLock) -> list[FileTasks]:
    """Begin an export of the table's current snapshot: batch and physical index are recorded before any document."""
    config, snapshot_id, earlier = run.config, source.head, lock.position.batch
    require_identity(run.client, config, lock.position, source)
    with run.stage("plan"):
        nested = [sum(each.table.sizes(each.files(each.head))) for each in source.nested.values()]
        group_bytes = max(config.export_group_bytes, _TIMES_NESTED * sum(nested))
        groups, digest = file_groups(source, snapshot_id, group_bytes, config.on_duplicate_identifier)
    # The first export sees them in the end, unless rows of one identifier may be documents in several shards.
    suffixes: list[str] = []
    if groups and (source.selection.has_places or (source.identifier_columns and lock.position.exists)):
        with run.stage("check identifiers"):
            source.require_unique_identifiers(config.on_duplicate_identifier, source.head)
            suffixes = find_suffixes(config, source.placed_rows(source.head))
            source.release()
    _store_vectors(run, source, groups)
    number = sequence_number(source.metadata, snapshot_id)
    with run.stage("create index"):
        indexes.check_mapping(run.client, config, source.schema)
        epoch = indexes.unused_epoch(run.client, config.index, lock.next_epoch(number, new_index=True))
        physical = indexes.physical_index(config.index, epoch)
        batch = Batch(
            kind="export",
            epoch=epoch,
            from_snapshot_id=None,
            to_snapshot_id=snapshot_id,
            identity=identity_of(source.metadata, snapshot_id),
            physical_index=physical,
            table_uuid=source.metadata.table_uuid,
            selection=source.stored_selection,
            schema=source.schema_json,
            group_bytes=group_bytes,
            groups_digest=digest,
            on_duplicate_identifier=config.on_duplicate_identifier,
            nested=nested_positions(source, heads(source)),
            indexes={index_with_suffix(physical, suffix): "" for suffix in suffixes},
            over=earlier.over if earlier is not None and earlier.kind == "export" else earlier,
        )
        lock.begin(batch)
        try:
            definition = source.schema, run.run_id, True, index_identity(batch.selection)
            created = indexes.create_physical(run.client, config, physical, *definition)
            suffixed = indexes.create_suffixed(run.client, config, batch.indexes, *definition)
        except (errors.ConfigError, RequestError):
            # Nothing was written, so the next run goes on from where the index is.
            indexes.drop_unless_read(run.client, config, physical)
            lock.write(replace(lock.position, batch=earlier))
            raise
        digest = indexes.definition_digest(run.client, config, source.schema)
        lock.record(index_uuid=created, index_digest=digest, indexes=suffixed)
        if earlier is not None and earlier.kind == "export":
            indexes.drop_unless_read(run.client, config, earlier.physical_index)
    return groups


def _store_vectors(run: Run, source: Source, groups: Sequence[FileTasks]) -> None:
    """Store the vectors of all documents before the first one is written; each group is a commit, so none is lost."""
    if source.embeddings is None:
        return
    with run.stage("check"):  # a model may take hours
        indexes.check_mapping(run.client, run.config, source.schema)
    for tasks in groups:
        with run.stage("embed"):
            rows = source.rows_as_inserts(tasks, run.config.on_duplicate_identifier)
            store_vectors(source, rows, run.config.embed_timeout_seconds)
            source.release()


def dry_run_export(run: Run, position: Position, source: Source, tally: Tally | None = None) -> RunReport:
    """Check and count what an export would write, and write nothing; a begun export continues if it can."""
    require_identity(run.client, run.config, position, source)
    config, snapshot_id, nested, begun = run.config, source.head, heads(source), position.batch
    groups, notes = _resume(run, source, begun)
    if begun is not None and groups is not None:
        snapshot_id, files = begun.to_snapshot_id, source.table.union(*groups[begun.groups_done :])
        nested = begun.nested_snapshots
        source = at_vector(source, snapshot_id, nested)
    else:
        notes += noted_changes(parameter_changes(position, source))
        with run.stage("check"):
            indexes.check_mapping(run.client, config, source.schema)
        with run.stage("check identifiers"):
            source.require_unique_identifiers(config.on_duplicate_identifier, source.head)
            find_suffixes(config, source.placed_rows(source.head))
            source.release()
        files = source.files(snapshot_id)
    with run.stage("count"):
        rows = source.rows_as_inserts(files, config.on_duplicate_identifier)
        expected = sum(source.table.row_counts(files))
        count = tally.count(source, rows, expected) if tally else count_documents(source, rows)
    found = {"upserts": count, "snapshots": int(snapshot_id is not None), "notes": notes, "nested_snapshots": nested}
    return run.report("export", None, snapshot_id, "export", **found, dry_run=True)


def file_groups(
    source: Source, snapshot_id: int | None, group_bytes: int, on_duplicate: str
) -> tuple[list[FileTasks], str]:
    """Divide a snapshot's files into groups, each written and recorded as a whole; with a digest of the grouping."""
    locations: list[str] = []
    groups: list[list[int]] = []
    if snapshot_id is not None:
        tasks = source.table.plan(snapshot_id)
        if not source.identifier_columns:
            require_row_positions(source.table, tasks)
        locations, sizes = source.table.locations(tasks), source.table.sizes(tasks)
        filled = group_bytes
        for position in sorted(range(len(sizes)), key=lambda p: locations[p]):
            if not groups or (filled >= group_bytes and on_duplicate != "last"):
                groups.append([])
                filled = 0
            groups[-1].append(position)
            filled += sizes[position]
    names = json.dumps([[locations[position] for position in group] for group in groups])
    selected = [source.table.select(tasks, group) for group in groups]
    return selected, hashlib.sha256(names.encode()).hexdigest()


def changed_since(begun: Batch, source: Source, config: SyncConfig) -> str:
    """Return what changed in the table or the parameters since an export began; empty: nothing."""
    now = {"": source, **source.nested}
    then = {
        "": NestedPosition(begun.table_uuid, begun.to_snapshot_id, begun.schema, begun.identity),
        **{name: at for name, at in begun.nested.items() if name in now},
    }
    expired = (
        at.snapshot_id is not None and history_gap_error(now[name].metadata, at.snapshot_id, at.identity) is not None
        for name, at in then.items()
    )
    changes = {
        "its rows were refused when it ran last": bool(begun.failure),
        "the table was created again": any(at.table_uuid != now[name].metadata.table_uuid for name, at in then.items()),
        "the selection changed": begun.selection != source.stored_selection,
        "the table's schema changed": any(at.schema != now[name].schema_json for name, at in then.items()),
        "its snapshot expired": any(expired),
        "it did not record its index": not begun.index_uuid,
        "on_duplicate_identifier changed": begun.on_duplicate_identifier != config.on_duplicate_identifier,
        "max_rejected_documents is now below what was rejected": begun.rejected > config.max_rejected_documents,
    }
    return next((reason for reason, true in changes.items() if true), "")
