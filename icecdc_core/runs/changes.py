"""The changes of a batch: one row for each identifier that they change, and its bulk line."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from icecdc_core.changes.net_changes import (
    INSERT_ONLY,
    NetChanges,
    PlannedRange,
    compute_inserts,
    compute_last_rows,
    compute_net_changes,
)
from icecdc_core.changes.scan_planning import is_insert_only
from icecdc_core.documents.bulk_lines import to_actions
from icecdc_core.logs import set_fields
from icecdc_core.session.spark import shuffle_partitions_for
from icecdc_core.table.schema import require_no_null
from icecdc_core.table.source import Source

if TYPE_CHECKING:
    from icecdc_core.config import SyncConfig
    from icecdc_core.runs.plan import BatchPlan


_BYTES_PER_PARTITION = 16 * 1024 * 1024


def compute_changes(source: Source, config: SyncConfig, plan: BatchPlan) -> NetChanges:
    """Compute the changes of a batch and check their identifiers, so that bad data stops it before its first write.

    Changes of a range with deletes are cached (memory, then disk) until they are closed, because they are counted and
    then written. An insert-only range has as many rows as its files and is not cached.
    """
    changes = _changes_of_files(source, config, plan) if plan.scans else NetChanges()
    set_fields(change_strategy=changes.strategy)  # in the log of the stage; reports group some strategies
    return changes


def to_documents(source: Source, plan: BatchPlan, changes: NetChanges, epoch: int) -> DataFrame | None:
    """Turn changes into bulk lines, in as few partitions as the files are worth: each costs a task and a request."""
    if changes.rows is None:
        return None
    actions = to_actions(changes.rows, source.key_columns, epoch)
    return actions.coalesce(max(1, ceil(plan.file_bytes / _BYTES_PER_PARTITION)))


def count_documents(source: Source, plan: BatchPlan, changes: NetChanges) -> int:
    """Return how many documents a batch writes and deletes, at most; it reads no file."""
    if changes.strategy != INSERT_ONLY:
        return changes.upserts + changes.deletes
    return sum(count for scan in plan.scans for tasks in scan.read_newer for count in source.table.row_counts(tasks))


def _changes_of_files(source: Source, config: SyncConfig, plan: BatchPlan) -> NetChanges:
    planned = PlannedRange(
        source.table, plan.scans, source.key_columns, plan.file_bytes, source.selection, config.row_hash
    )
    with shuffle_partitions_for(source.table.spark, plan.file_bytes):
        if is_insert_only(plan.scans) and config.on_duplicate_identifier == "fail":
            return compute_inserts(planned, count=config.dry_run)
        source.require_identifier_columns("rows were deleted or updated since the position")
        if config.on_duplicate_identifier == "last":
            changes = compute_last_rows(planned, source.current_rows(plan.end, "last"))
        else:
            changes = compute_net_changes(planned)
        if changes.nulls and changes.rows is not None:
            try:
                require_no_null(changes.rows, planned.identifier_columns, planned.table.name)
            except BaseException:
                changes.close()
                raise
        return changes
