"""What changed between two snapshots: counts, and a sample of rows before and after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from icecdc_core.carryover import remove_carryovers
from icecdc_core.changes.row_changes import changes_frame
from icecdc_core.changes.scan_planning import StepScan, file_bytes, is_insert_only, plan_scans
from icecdc_core.columns import CHANGE_ORDINAL, unused_name
from icecdc_core.explore.figures import Part, heading, paragraphs, table
from icecdc_core.explore.rows import (
    AFTER,
    BEFORE,
    DELETED,
    DELETES,
    ID,
    INSERTED,
    INSERTS,
    KIND,
    UPDATED,
    RowChange,
    complete_id,
    document_json_columns,
    kind_of_pair,
    pair_rows,
    parse_document,
)
from icecdc_core.reporting.figures import Cell
from icecdc_core.session.spark import RowCount, storage_level_for
from icecdc_core.shuffle import shuffle_by_identifiers
from icecdc_core.table.source import Source

if TYPE_CHECKING:
    import pandas as pd

    from icecdc_core.explore.view import View


_KINDS = (UPDATED, INSERTED, DELETED)


@contextmanager
def changed_pairs(view: View, source: Source, scans: Sequence[StepScan]) -> Iterator[tuple[DataFrame, RowCount | None]]:
    """Yield the pairs of before and after, and the rows that were read (None: only inserts)."""
    selection = replace(source.selection, with_row_position=False)
    # Rows that a compaction between two steps left as they were cancel only if all are of one step.
    changes = changes_frame(source.table, scans, selection).withColumn(CHANGE_ORDINAL, F.lit(0))
    if is_insert_only(scans):
        # A file that is only added can be as large as the table, so its rows are counted and not kept.
        yield pair_rows(changes, source.key_columns, only_inserts=True), None
        return
    raw = RowCount(changes)
    rows = raw.rows.transform(shuffle_by_identifiers, source.key_columns) if source.key_columns else raw.rows
    with storage_level_for(source.table.spark, file_bytes(source.table, scans)) as level:
        pairs = pair_rows(remove_carryovers(rows), source.key_columns).persist(level)
        try:
            yield pairs, raw
        finally:
            pairs.unpersist()


def count_pairs(pairs: DataFrame) -> tuple[int, int, int]:
    """Return how many rows were inserted, updated and deleted."""
    both = F.least(INSERTS, DELETES)
    row = pairs.agg(
        F.coalesce(F.sum(F.col(INSERTS) - both), F.lit(0)).alias("inserts"),
        F.coalesce(F.sum(both), F.lit(0)).alias("updates"),
        F.coalesce(F.sum(F.col(DELETES) - both), F.lit(0)).alias("deletes"),
    ).collect()[0]
    return row.inserts, row.updates, row.deletes


def sample_pairs(source: Source, pairs: DataFrame, most: int, is_cached: bool) -> tuple[RowChange, ...]:
    """Return some of the changes, of each kind if there is room."""
    identifier = F.lit("")
    if source.key_columns:
        identifier = F.coalesce(complete_id(pairs.schema, source.key_columns), identifier)
    named = pairs.select(identifier.alias(ID), kind_of_pair(), BEFORE, AFTER)
    if is_cached:
        number = unused_name("_number", named.columns)
        of_kind = Window.partitionBy(KIND).orderBy(F.length(ID), ID)
        named = named.withColumn(number, F.row_number().over(of_kind)).where(F.col(number) <= most)
    else:
        named = named.limit(most)
    rows = named.select(ID, KIND, *document_json_columns(named)).collect()
    changes = sorted(
        (RowChange(row[ID], parse_document(row[BEFORE]), parse_document(row[AFTER])) for row in rows), key=_order
    )
    by_kind = [[each for each in changes if each.kind == kind] for kind in _KINDS]
    fair = [each for each in chain.from_iterable(zip_longest(*by_kind)) if each is not None][:most]
    return tuple(sorted(fair, key=lambda each: (_KINDS.index(each.kind), _order(each))))


def _order(change: RowChange) -> tuple[int, str]:
    # Numbers in the order of numbers.
    return len(change.document_id), change.document_id


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

    def _repr_html_(self) -> str:
        if self.to_snapshot_id is None or self.from_snapshot_id == self.to_snapshot_id or not self.changes:
            carried = f" {self.carryovers_removed:,} rewritten rows are the same." if self.carryovers_removed else ""
            compared = self._compared if self.to_snapshot_id is not None else ""
            return paragraphs(" ".join([compared, *self.notes]).strip(), f"No changes.{carried}")
        head = ("inserts", "updates", "deletes", "carryovers removed")
        counts = [f"{each:,}" for each in (self.inserts, self.updates, self.deletes, self.carryovers_removed)]
        return paragraphs(" ".join([self._compared, *self.notes])) + table(head, [counts]) + self._sample()

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
        with changed_pairs(view, source, scans) as (pairs, raw):
            inserts, updates, deletes = count_pairs(pairs)
            carried = (raw.value() - inserts - deletes - 2 * updates) // 2 if raw else 0
            sample = sample_pairs(source, pairs, view.config.sample_rows, is_cached=raw is not None)
    return replace(
        found,
        inserts=inserts,
        updates=updates,
        deletes=deletes,
        carryovers_removed=carried,
        sample=sample,
    )


def _shown_fields(sample: Sequence[RowChange]) -> tuple[list[str], int]:
    """The fields that a table shows, and the number of others: all that an update changed come first."""
    every = list(dict.fromkeys(name for each in sample for name in {**(each.before or {}), **(each.after or {})}))
    changed = Counter(name for each in sample if each.kind == UPDATED for name in each.changed_fields)
    fields = [name for name in every if name in changed]
    fields += [name for name in every if name not in changed][: max(0, _MOST_FIELDS - len(fields))]
    return fields, len(every) - len(fields)
