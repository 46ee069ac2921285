"""From a range of snapshots to bulk actions, computed before anything is written: the way of the data."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from math import ceil
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from icecdc_core.changes.changed_identifiers import delete_rows, find_changed_identifiers
from icecdc_core.changes.net_changes import NetChanges, compute_net_changes
from icecdc_core.changes.row_changes import changes_frame
from icecdc_core.changes.scan_planning import file_bytes, is_insert_only, plan_scans
from icecdc_core.changes.step_scan import StepScan
from icecdc_core.columns import quoted
from icecdc_core.documents.bulk_lines import to_actions
from icecdc_core.jobs.export import current_rows
from icecdc_core.session.spark_settings import partitions_for
from icecdc_core.table.snapshots import plan_steps
from icecdc_core.table.source import Source, require_no_null, require_unique

if TYPE_CHECKING:
    from icecdc_core.config import SyncConfig


_PARTITION_BYTES = 16 * 1024 * 1024


@dataclass
class Prepared:
    """The bulk actions of a batch and what is known about them.

    Attributes:
        strategy: ``insert-only``, ``diff`` or ``none``.
        actions: The actions; None when no file differs.
        upserts: Upserts among them, known after ``compute``.
        deletes: Deletes among them, known after ``compute``.
        carryovers_removed: Unchanged rows of rewritten files that were dropped, known after ``compute``.
        snapshots: Snapshots in the range.
        steps: What was compared: snapshots, files and bytes of each side.
    """

    source: Source
    config: SyncConfig
    scans: list[StepScan]
    epoch: int
    end: int | None
    snapshots: int = 0
    strategy: str = "none"
    actions: DataFrame | None = None
    upserts: int = 0
    deletes: int = 0
    carryovers_removed: int = 0
    steps: list[dict[str, Any]] = field(default_factory=list)
    merged: NetChanges | None = None

    def compute(self) -> None:
        """Compute the actions and check the identifiers, so that bad data stops the batch before its first write.

        What a range with deletes leaves is kept (memory, then disk) between counting and writing: only what really
        changed, see ``compute_net_changes``. An insert-only range leaves as many rows as it has; they are not kept.

        Raises:
            IdentifierColumnsError: There are deletes and no identifier columns; or an identifier is null.
            DuplicateIdentifierError: Two rows share an identifier, equal or not.
        """
        if not self.scans:
            return
        with self.partitions():
            self._compute()

    def partitions(self) -> AbstractContextManager[None]:
        """Let the actions be computed and written with as many partitions as the files are worth."""
        return partitions_for(self.source.table.spark, self._file_bytes)

    @property
    def _file_bytes(self) -> int:
        return sum(step["bytes"] for step in self.steps)

    def _compute(self) -> None:
        source, ids = self.source, self.source.identifier_columns
        if is_insert_only(self.scans) and self.config.on_duplicate_identifier == "fail":
            self.strategy, raw = "insert-only", self._frame()
            if ids:
                require_unique(raw, ids, self.config.table, allow_duplicates=False)
            self.actions = self._packed(to_actions(raw, ids, self.epoch))
            if self.config.dry_run:
                self.upserts = raw.count()
            return
        source.require_identifier_columns("rows were deleted or updated since the position")
        self.strategy = "diff"
        if self.config.on_duplicate_identifier == "last":
            merged = self._last(self._frame(), ids)
        else:
            merged = compute_net_changes(
                source.table, self.scans, ids, self._file_bytes, source.selection, self.config.row_hash
            )
        self.merged = merged
        if merged.nulls:
            require_no_null(merged.rows, ids, self.config.table)
        self.carryovers_removed, self.upserts, self.deletes = merged.carryovers, merged.upserts, merged.deletes
        self.actions = self._packed(to_actions(merged.rows, ids, self.epoch))

    def _packed(self, actions: DataFrame) -> DataFrame:
        """In no more partitions than the files are worth: each costs a task, a Python process's turn and a request."""
        return actions.coalesce(max(1, ceil(self._file_bytes / _PARTITION_BYTES)))

    def close(self) -> None:
        """Let go of what was kept."""
        if self.merged is not None:
            self.merged.close()
        self.source.table.release()

    def _frame(self) -> DataFrame:
        return changes_frame(self.source.table, self.scans, self.source.selection)

    def _last(self, raw: DataFrame, ids: Sequence[str]) -> NetChanges:
        """Where rows may share an identifier, changes alone do not tell which row is left: look it up."""
        found = find_changed_identifiers(raw, ids, row_hash=self.config.row_hash)
        if found.nulls:
            require_no_null(found.identifiers, ids, self.config.table)
        touched = found.identifiers
        pairs = [(quoted(name), f"_icecdc_touched_{position}") for position, name in enumerate(ids)]
        wanted = touched.select(*(F.col(name).alias(alias) for name, alias in pairs))
        same = [F.col(name) == F.col(alias) for name, alias in pairs]
        rows = current_rows(self.source, self.end, "last").join(wanted, same, "left_semi")
        left = rows.select(*(F.col(name).alias(alias) for name, alias in pairs))
        gone = touched.join(left, same, "left_anti")
        try:
            merged = NetChanges.from_rows(rows.unionAll(delete_rows(gone, rows.schema, ids)), ids, self._file_bytes)
        finally:
            found.close()
        merged.carryovers = found.carryovers
        return merged


def prepare(
    source: Source,
    config: SyncConfig,
    start_snapshot_id: int | None,
    end_snapshot_id: int | None,
    epoch: int,
    cuts: Sequence[int | None],
) -> Prepared:
    """Plan a batch; ``cuts`` are snapshots at which the range must be cut into steps.

    Raises:
        HistoryGapError: A snapshot of the range has expired.
    """
    scans: list[StepScan] = []
    snapshots = 0
    ends = [cut for cut in cuts if cut is not None] + ([end_snapshot_id] if end_snapshot_id is not None else [])
    begin = start_snapshot_id
    for end in ends:
        part = plan_scans(source.table, source.metadata, begin, end, config.change_mode)
        scans += [
            replace(scan, step=replace(scan.step, ordinal=len(scans) + number)) for number, scan in enumerate(part)
        ]
        snapshots += sum(len(step.path or ()) for step in plan_steps(source.metadata, begin, end))
        begin = end
    prepared = Prepared(source, config, scans, epoch, end_snapshot_id, snapshots)
    prepared.steps = [_described(source, scan) for scan in scans]
    if not is_insert_only(scans):
        source.require_identifier_columns("rows were deleted or updated since the position")
    return prepared


def _described(source: Source, scan: StepScan) -> dict[str, Any]:
    return {
        "ordinal": scan.step.ordinal,
        "from_snapshot_id": scan.step.from_snapshot_id,
        "to_snapshot_id": scan.step.to_snapshot_id,
        "files_before": sum(len(tasks) for tasks in scan.older),
        "files_after": sum(len(tasks) for tasks in scan.newer),
        "bytes": file_bytes(source.table, [scan]),
    }
