"""The incremental sync: from the index's position to the table's current snapshot, in one batch."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from icecdc_core.batch_writing import write_batch
from icecdc_core.errors import HistoryGapError, SchemaChangeError, TableReplacedError
from icecdc_core.export import committed, export_held, log_entry, require_own_table
from icecdc_core.hazards import Refusal, find_refusal
from icecdc_core.indexes import (
    create_physical,
    evolve_mapping,
    publish,
    require_ours,
    require_present,
    unused_epoch,
)
from icecdc_core.lag import lag
from icecdc_core.observation import note, observed
from icecdc_core.pipeline import prepare
from icecdc_core.positions import Batch, HeldTable, Position, physical_index
from icecdc_core.report import RunReport
from icecdc_core.runs import Run
from icecdc_core.sink import SinkResult
from icecdc_core.snapshots import sequence_number, snapshot_as_of
from icecdc_core.source import Source

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
                require_present(run.client, position)
        if config.dry_run:
            return _dry_run(run, source, position)
        if position is not None and _up_to_date(position, source):
            return _report(run, source, position.snapshot_id, position.snapshot_id, strategy="none")
        with run.holding(source) as held:
            return _sync_held(run, source, held)


def _sync_held(run: Run, source: Source, held: HeldTable) -> RunReport:
    position, config = held.position, run.config
    exporting = position.batch is not None and position.batch.kind == "export"
    if exporting or (not position.exists and config.start_point is None):
        report = export_held(run, source, held)
        if held.position.snapshot_id == source.head:
            return report
        # An export that was resumed is of the snapshot it was begun with; what was committed since follows at once.
        source = run.source_again(source)
        if held.position.snapshot_id == source.head:
            return report
        rest = _catch_up(run, source, held)
        ends: dict[str, Any] = {"kind": "export", "strategy": "export", "from_snapshot_id": None}
        joined = replace(_joined(report, rest), **ends)
        return replace(joined, seconds=run.seconds, stage_seconds=run.stage_seconds)
    if not position.exists:
        _start_without_export(run, source, held)
    if position.batch is not None and position.batch.kind == "repair":
        # Its documents equal the position's snapshot whether it ended or not; a validation begins a new one.
        held.write(replace(position, batch=None))
    return _catch_up(run, source, held)


def _catch_up(run: Run, source: Source, held: HeldTable) -> RunReport:
    """Take everything from the position to the table's current snapshot, a begun batch first."""
    refusal = find_refusal(held.position, source)
    if refusal is not None:
        return _refuse(run, source, held, refusal)
    start = held.position.snapshot_id
    report: RunReport | None = None
    while report is None or held.position.snapshot_id != source.head:
        try:
            part = _one_batch(run, source, held)
        except SchemaChangeError as error:
            return _refuse(run, source, held, Refusal("on_schema_change", error))
        except (HistoryGapError, TableReplacedError) as error:
            before, source = source, run.source_again(source)
            refusal = find_refusal(held.position, source)
            if refusal is None and source.snapshot_ids >= before.snapshot_ids:
                refusal = Refusal("on_history_gap", error)
            if refusal is not None:
                return _refuse(run, source, held, refusal)
            continue  # What expired meanwhile is not needed to get from the position to the table's new snapshot.
        report = part if report is None else _joined(report, part)
    return replace(report, from_snapshot_id=start, seconds=run.seconds, stage_seconds=run.stage_seconds)


def _one_batch(run: Run, source: Source, held: HeldTable) -> RunReport:
    """Prepare, begin, write, commit one batch: the begun one if there is one, else all that is new."""
    config, position, begun = run.config, held.position, held.position.batch
    if (
        begun is not None
        and begun.schema == source.schema_json
        and begun.on_duplicate_identifier in ("", config.on_duplicate_identifier)
        and (not begun.failure or begun.to_snapshot_id == source.head)
    ):
        end, epoch, cuts = begun.to_snapshot_id, begun.epoch, []
    else:
        # A batch that failed for what its rows hold is not repeated once the table has moved on, nor is one that
        # wrote documents of another schema or by another policy: the new batch goes over the same snapshots in a step
        # of their own, so whatever the earlier one wrote is written again.
        end, cuts = source.head, [begun.to_snapshot_id] if begun is not None else []
        epoch = held.next_epoch(sequence_number(source.metadata, end) if end is not None else 0)
    with run.stage("plan"):
        prepared = prepare(source, config, position.snapshot_id, end, epoch, cuts)
    try:
        with run.stage("changes"):
            prepared.compute()
        if begun is None or begun.epoch != epoch:
            held.begin(
                Batch(
                    "sync",
                    epoch,
                    position.snapshot_id,
                    end,
                    position.physical_index,
                    source.table_uuid,
                    source.selection,
                    source.schema_json,
                    on_duplicate_identifier=config.on_duplicate_identifier,
                )
            )
        with run.stage("write"), prepared.partitions():
            if position.schema != source.schema_json:
                evolve_mapping(run.client, position.physical_index, source.schema)
            result = write_batch(run, held, prepared.actions) if prepared.actions is not None else SinkResult()
            run.client.indices.refresh(index=position.physical_index)
    finally:
        prepared.close()
    report = replace(
        _report(run, source, position.snapshot_id, end, prepared.strategy, result),
        carryovers_removed=prepared.carryovers_removed,
        snapshots=prepared.snapshots,
        steps=prepared.steps,
        epoch=epoch,
    )
    with run.stage("commit"):
        batch = held.position.batch
        if batch is not None:
            held.commit(committed(held.position, source, batch), log_entry(report))
    return report


def _refuse(run: Run, source: Source, held: HeldTable, refusal: Refusal) -> RunReport:
    """The changes cannot be taken: export anew where the policy says so, else raise."""
    policy = getattr(run.config, refusal.policy)
    if policy != "reexport":
        raise refusal.error
    held.write(replace(held.position, batch=None))
    return replace(export_held(run, source, held), strategy="reexport")


def _start_without_export(run: Run, source: Source, held: HeldTable) -> None:
    """Create an empty index whose position is where ``start_from`` says."""
    config, point = run.config, run.config.start_point
    with run.stage("create index"):
        snapshot_id: int | None = None
        if point == "latest":
            snapshot_id = source.head
        elif isinstance(point, datetime):
            snapshot_id = snapshot_as_of(source.metadata, int(point.timestamp() * 1000), config.branch)
        elif isinstance(point, int):
            snapshot_id = point
        epoch = unused_epoch(run.client, config.index, held.next_epoch(0, new_index=True))
        physical = physical_index(config.index, epoch)
        start = replace(held.position, snapshot_id=snapshot_id, epoch=epoch)
        refusal = find_refusal(replace(start, selection=source.selection, schema=""), source)
        if refusal is not None:
            raise refusal.error
        create_physical(run.client, config, physical, source.schema, run.run_id, loading=False)
        publish(run.client, config, physical)
        batch = Batch(
            "sync", epoch, None, snapshot_id, physical, source.table_uuid, source.selection, source.schema_json
        )
        held.write(committed(start, source, batch))


def _note_lag(source: Source, position: Position | None) -> None:
    snapshots, seconds = lag(source.metadata, position.snapshot_id if position else None, source.head)
    note(lag_snapshots=snapshots, lag_seconds=seconds)


def _up_to_date(position: Position, source: Source) -> bool:
    """Whether there is nothing to do, not even to take the table."""
    return (
        position.exists
        and position.batch is None
        and position.snapshot_id == source.head
        and find_refusal(position, source) is None
        and position.schema == source.schema_json
    )


def _dry_run(run: Run, source: Source, position: Position | None) -> RunReport:
    from icecdc_core.export import dry_run_export

    if position is None or not position.exists:
        return dry_run_export(run, source)
    refusal = find_refusal(position, source)
    if refusal is not None:
        if getattr(run.config, refusal.policy) != "reexport":
            raise refusal.error
        return dry_run_export(run, source)
    with run.stage("changes"):
        prepared = prepare(source, run.config, position.snapshot_id, source.head, position.epoch + 1, [])
        try:
            prepared.compute()
        finally:
            prepared.close()
    return replace(
        _report(run, source, position.snapshot_id, source.head, prepared.strategy),
        upserts=prepared.upserts,
        deletes=prepared.deletes,
        carryovers_removed=prepared.carryovers_removed,
        snapshots=prepared.snapshots,
        steps=prepared.steps,
        dry_run=True,
    )


def _report(
    run: Run,
    source: Source,
    start: int | None,
    end: int | None,
    strategy: str,
    result: SinkResult | None = None,
) -> RunReport:
    counts = result or SinkResult()
    return RunReport(
        kind="sync",
        table=source.table.name,
        index=run.config.index,
        from_snapshot_id=start,
        to_snapshot_id=end,
        strategy=strategy,
        upserts=counts.upserts,
        deletes=counts.deletes,
        already_applied=counts.already_applied,
        rejected=counts.rejected,
        rejected_samples=counts.rejected_samples,
        requests=counts.requests,
        retries=counts.retries,
        bytes=counts.bytes,
        run_id=run.run_id,
        seconds=run.seconds,
        stage_seconds=run.stage_seconds,
    )


def _joined(first: RunReport, second: RunReport) -> RunReport:
    """Add a replayed batch and the batch after it up into one report."""
    sums = (
        "upserts",
        "deletes",
        "carryovers_removed",
        "already_applied",
        "rejected",
        "snapshots",
        "requests",
        "retries",
        "bytes",
    )
    return replace(
        second,
        **{name: getattr(first, name) + getattr(second, name) for name in sums},
        steps=[*first.steps, *second.steps],
        notes=[*first.notes, *second.notes],
        rejected_samples=[*first.rejected_samples, *second.rejected_samples],
    )
