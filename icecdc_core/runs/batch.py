"""Write and commit the begun batch; rejected documents reach the dead letters before the position can pass them."""

from __future__ import annotations

import logging
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from icecdc_core.commits.positions import Batch, IndexLock, Position
from icecdc_core.errors import ConfigError, IcecdcError, RejectedDocumentsError
from icecdc_core.logs import event
from icecdc_core.opensearch.bulk.writer import BulkResult, BulkSettings, require_accepted, write_actions
from icecdc_core.opensearch.indexes import write_alias
from icecdc_core.runs.dead_letters import store_dead_letters

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from icecdc_core.reporting.reports import RunReport
    from icecdc_core.runs.run import Run
    from icecdc_core.table.source import Source

_LOGGED = (
    *("upserts", "deletes", "carryovers_removed", "already_applied", "rejected"),
    *("seconds", "run_id", "strategy"),
)


def write_batch(run: Run, lock: IndexLock, actions: DataFrame | None, rejected_before: int = 0) -> BulkResult:
    """Write the documents of the begun batch.

    Args:
        run: The run.
        lock: The locked index, with the begun batch.
        actions: The bulk lines; None if there is nothing to write.
        rejected_before: Documents of the same batch that were rejected before these.

    Raises:
        RejectedDocumentsError: More were rejected than allowed. The reason is stored with the batch, and the rejected
            documents are in the dead letters.
        ConfigError: The dead letters cannot be written.
        FencedError: Another run took the index over.
        IcecdcError: Others that `write_actions` raises.
    """
    if actions is None:
        return BulkResult()
    batch = begun_batch(lock)
    spark, config = actions.sparkSession, run.config
    settings = BulkSettings.of(config, write_alias(batch.physical_index))
    try:
        result = write_actions(actions, settings)
        store_dead_letters(spark, config, batch, run.run_id, result.dead_letters)
        require_accepted(result, config.max_rejected_documents, rejected_before)
    except RejectedDocumentsError as error:
        try:
            store_dead_letters(spark, config, batch, run.run_id, error.dead_letters)
        except ConfigError as unwritable:
            event(str(unwritable), logging.WARNING)
        try:
            lock.fail(str(error))
        except IcecdcError as unrecorded:
            event(f"the reason of the failed batch was not recorded: {unrecorded}", logging.WARNING)
        raise
    return result


def commit_batch(lock: IndexLock, source: Source, report: RunReport) -> None:
    """Move the position to the end of the begun batch, and append the batch with its counts to the commit log.

    Args:
        lock: The locked index, with the begun batch.
        source: The table that the batch read; the position keeps its selection and schema.
        report: The report on the batch, which has the counts.

    Raises:
        FencedError: Another run acquired the lock in the meantime.
    """
    lock.commit(position_after(lock.position, source, begun_batch(lock)), log_entry(report))


def report_fields(result: BulkResult) -> dict[str, Any]:
    """Return what a report says of written documents, by the names of its fields."""
    return {**asdict(result.counts), "rejected_samples": result.rejected_samples}


def begun_batch(lock: IndexLock) -> Batch:
    """Return the batch that was begun under this lock."""
    batch = lock.position.batch
    assert batch is not None, "a batch is begun before it is written"
    return batch


def position_after(position: Position, source: Source, batch: Batch) -> Position:
    """Return the position that a batch leads to.

    Args:
        position: The position before the batch.
        source: The table that the batch read.
        batch: The batch; its end snapshot and its physical index become those of the position.
    """
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
    """Return what the commit log stores of a report."""
    return {name: getattr(report, name) for name in _LOGGED}
