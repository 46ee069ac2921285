"""What changed between two snapshots: counts, a sample of rows before and after, and where it changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from icecdc_core.changes.scan_planning import plan_scans
from icecdc_core.explore.html import Cell, Part, heading, paragraphs, table
from icecdc_core.explore.rows.changed import (
    DELETED,
    INSERTED,
    UPDATED,
    RowChange,
)
from icecdc_core.explore.rows.differing import (
    PartitionChanges,
    changed_pairs,
    count_by_partition,
    count_pairs,
    sample_pairs,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from icecdc_core.explore.view import View

_MOST_FIELDS = 12


@dataclass(frozen=True, repr=False)
class Differences(Part):
    """What changed between two snapshots, as the documents have it."""

    from_snapshot_id: int | None = None
    to_snapshot_id: int | None = None
    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    carryovers_removed: int = 0
    sample: tuple[RowChange, ...] = ()
    partitions: tuple[PartitionChanges, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """The counts."""
        counts = f"{self.inserts:,} inserts, {self.updates:,} updates, {self.deletes:,} deletes"
        return " ".join([f"{counts}, {self.carryovers_removed:,} carryovers removed.", *self.notes])

    @property
    def changes(self) -> int:
        """How many rows changed."""
        return self.inserts + self.updates + self.deletes

    @property
    def example_id(self) -> str:
        """The id of a document that changed, an updated one if there is one; empty if none changed."""
        ids = {change.kind: change.document_id for change in reversed(self.sample) if change.document_id}
        return ids.get(UPDATED) or ids.get(INSERTED) or ids.get(DELETED) or ""

    def to_dict(self) -> dict[str, Any]:
        """The counts, for the report; no value of a row."""
        names = ("from_snapshot_id", "to_snapshot_id", "inserts", "updates", "deletes", "carryovers_removed")
        return {**{name: getattr(self, name) for name in names}, "sample_rows": len(self.sample)}

    def counts(self) -> pd.DataFrame:
        """The counts as a table."""
        import pandas as pd

        names = ("inserts", "updates", "deletes", "carryovers_removed")
        return pd.DataFrame([{name: getattr(self, name) for name in names}])

    def figure(self) -> Figure:
        """The partitions with the most changes."""
        from icecdc_core.explore.figures import partitions_figure

        return partitions_figure(self.partitions)

    def _repr_html_(self) -> str:
        from icecdc_core.explore.figures import as_html

        if self.to_snapshot_id is None or self.from_snapshot_id == self.to_snapshot_id or not self.changes:
            carried = f" {self.carryovers_removed:,} rewritten rows are the same." if self.carryovers_removed else ""
            compared = self._compared if self.to_snapshot_id is not None else ""
            return paragraphs(" ".join([compared, *self.notes]).strip(), f"No changes.{carried}")
        head = ("inserts", "updates", "deletes", "carryovers removed")
        counts = [f"{each:,}" for each in (self.inserts, self.updates, self.deletes, self.carryovers_removed)]
        text = paragraphs(" ".join([self._compared, *self.notes])) + table(head, [counts]) + self._sample()
        return text + (as_html(self.figure()) if self.partitions else "")

    @property
    def _compared(self) -> str:
        start = "the empty table" if self.from_snapshot_id is None else f"snapshot {self.from_snapshot_id}"
        return f"From {start} to snapshot {self.to_snapshot_id}."

    def _sample(self) -> str:
        fields, left_out = _shown_fields(self.sample)
        rows: list[list[str | Cell]] = [
            [Cell(change.kind, change.kind), change.document_id, *(change.cell(name) for name in fields)]
            for change in self.sample
        ]
        shown = f"{len(self.sample):,} of {self.changes:,} changes, as documents; a changed field has both values"
        more = f"{left_out} more fields are not shown; none of them changed in an update." if left_out else ""
        return heading(shown) + table(("change", "_id", *fields), rows) + paragraphs(more)


def find_differences(view: View) -> Differences:
    """Compare the two snapshots that the parameters name; reads only data files that differ between them."""
    start, end = view.chosen.start, view.chosen.end
    found = Differences(start, end, notes=(view.chosen.note,) if view.chosen.note else ())
    if end is None or start == end:
        return found
    with view.reading() as source:
        scans = plan_scans(source.table, source.metadata, start, end, "net")
        if not scans:
            return found
        with changed_pairs(view, source, scans) as (pairs, partition, raw):
            inserts, updates, deletes = count_pairs(pairs)
            carried = (raw.value() - inserts - deletes - 2 * updates) // 2 if raw else 0
            sample = sample_pairs(source, pairs, view.config.sample_rows, is_cached=raw is not None)
            partitions = count_by_partition(pairs) if partition.column is not None else ()
    notes = (*found.notes, *((partition.note,) if partition.note else ()))
    return replace(
        found,
        inserts=inserts,
        updates=updates,
        deletes=deletes,
        carryovers_removed=carried,
        sample=sample,
        partitions=partitions,
        notes=notes,
    )


def _shown_fields(sample: Sequence[RowChange]) -> tuple[list[str], int]:
    """The fields that a table shows, and the number of others: all that an update changed come first."""
    every = list(dict.fromkeys(name for each in sample for name in {**(each.before or {}), **(each.after or {})}))
    changed = Counter(name for each in sample if each.kind == UPDATED for name in each.changed_fields)
    fields = [name for name in every if name in changed]
    fields += [name for name in every if name not in changed][: max(0, _MOST_FIELDS - len(fields))]
    return fields, len(every) - len(fields)
