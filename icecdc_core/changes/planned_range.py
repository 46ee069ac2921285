"""A range of snapshots with the files to read for its changes, and how their rows are selected and compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from icecdc_core.changes.row_changes import changes_frame
from icecdc_core.changes.row_hash import FAST
from icecdc_core.changes.scan_planning import file_bytes
from icecdc_core.changes.step_scan import StepScan
from icecdc_core.table.iceberg_table import IcebergTable
from icecdc_core.table.selection import Selection


@dataclass(frozen=True)
class PlannedRange:
    """What is read of a table to find the changes of a range."""

    table: IcebergTable
    scans: Sequence[StepScan]
    identifier_columns: Sequence[str]
    file_bytes: int
    selection: Selection
    row_hash: str = FAST

    @classmethod
    def of_whole_rows(
        cls, table: IcebergTable, scans: Sequence[StepScan], identifier_columns: Sequence[str], row_hash: str = FAST
    ) -> PlannedRange:
        """Read all columns of all rows."""
        whole = Selection(tuple(table.column_names()))
        return cls(table, scans, identifier_columns, file_bytes(table, scans), whole, row_hash)

    def with_bare_deletes(self) -> PlannedRange:
        """Return the range with DELETE rows that have their identifiers only; nothing else is read of them."""
        return replace(self, selection=replace(self.selection, delete_columns=tuple(self.identifier_columns)))

    def changes(self) -> DataFrame:
        """Read the raw changes, see ``changes_frame``."""
        return changes_frame(self.table, self.scans, self.selection)

    @property
    def needs_values(self) -> bool:
        """Whether only a comparison of values shows what changed."""
        return any(scan.by_value for scan in self.scans)

    @property
    def only_step(self) -> int | None:
        """The ordinal of all changes; None if there are several steps."""
        steps = {scan.step.ordinal for scan in self.scans}
        return steps.pop() if len(steps) == 1 else None

    def change_count(self) -> int | None:
        """Return the number of raw changes; None if the files alone do not show it."""
        if self.selection.row_filter or any(scan.unchanged_until is not None for scan in self.scans):
            return None
        files = self.table.union(*(tasks for scan in self.scans for tasks in (*scan.read_older, *scan.read_newer)))
        return None if any(self.table.delete_counts(files)) else sum(self.table.row_counts(files))

    def older_row_count(self) -> int | None:
        """Return the rows of the older states; None if row lineage does not cover every step or deletes hide it."""
        changing = [scan for scan in self.scans if not scan.only_inserts]
        if any(scan.unchanged_until is None for scan in changing):
            return None
        older = self.table.union(*(tasks for scan in changing for tasks in scan.read_older))
        return None if any(self.table.delete_counts(older)) else sum(self.table.row_counts(older))
