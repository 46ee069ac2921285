"""What changed between two snapshots: counts, and a sample of rows before and after."""

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, NamedTuple

import pandas as pd
from pyspark.sql import Column, DataFrame, functions as F
from pyspark.sql.types import StructType

from icecdc_core.carryover import remove_carryovers
from icecdc_core.changes.row_changes import changes_frame
from icecdc_core.changes.scan_planning import is_insert_only, plan_scans
from icecdc_core.columns import CHANGE_ORDINAL, CHANGE_TYPE, COMMIT_SNAPSHOT_ID, DELETE, is_document_column, quoted
from icecdc_core.documents.bulk_lines import document_id, scalar_text
from icecdc_core.explore.view import Part, View
from icecdc_core.session.jvm import persisted
from icecdc_core.session.spark import RowCount
from icecdc_core.shuffle import shuffle_by_identifiers

Document = Mapping[str, Any]

INSERTED, UPDATED, DELETED = "insert", "update", "delete"
BEFORE, AFTER, KIND, ROWS = (f"_icecdc_{name}" for name in ("before", "after", "shown_kind", "rows"))
_MOST_FIELDS = 12
_LONGEST_VALUE = 120


class RowChange(NamedTuple):
    kind: str
    document_id: str
    before: Document | None
    after: Document | None
    snapshot_id: int = 0

    def text(self, name: str) -> str:
        values = [side.get(name) for side in (self.before, self.after) if side is not None]
        return " → ".join(map(value_text, values if values[0] != values[-1] else values[:1]))


def value_text(value: Any) -> str:
    if value is None:
        return "null"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"


def complete_id(schema: StructType, key_columns: Sequence[str]) -> Column:
    """Return the id of a row's document; null, and no error, if one of its identifier columns is null."""
    complete = F.lit(True)
    for name in key_columns:
        complete &= F.col(quoted(name)).isNotNull()
    return F.when(complete, document_id(schema, key_columns))


def row_changes(changes: DataFrame, key_columns: Sequence[str], only_inserts: bool = False) -> DataFrame:
    """Return for each snapshot and identifier its document before and after, the kind, and how many rows there are."""
    keys = [F.col(COMMIT_SNAPSHOT_ID), *(F.col(quoted(name)) for name in key_columns)]
    row = F.struct(*(quoted(name) for name in changes.columns if is_document_column(name)))
    is_delete = F.col(CHANGE_TYPE) == DELETE
    sides = (F.when(is_delete, row).alias(BEFORE), F.when(~is_delete, row).alias(AFTER))
    found = (changes if only_inserts else remove_carryovers(changes)).select(*keys, *sides, F.lit(1).alias(ROWS))
    if key_columns and not only_inserts:
        first = [F.first(side, ignorenulls=True).alias(side) for side in (BEFORE, AFTER)]
        found = found.groupBy(*keys).agg(*first, F.sum(ROWS).alias(ROWS))
    return found.withColumn(
        KIND, F.when(F.col(BEFORE).isNull(), INSERTED).when(F.col(AFTER).isNull(), DELETED).otherwise(UPDATED)
    )


def collect_changes(found: DataFrame, key_columns: Sequence[str]) -> list[RowChange]:
    identifier = F.coalesce(complete_id(found.schema, key_columns), F.lit("")) if key_columns else F.lit("")
    documents = [scalar_text(F.col(side), found.schema[side].dataType) for side in (BEFORE, AFTER)]
    rows = found.select(KIND, identifier, *documents, COMMIT_SNAPSHOT_ID).collect()
    return [
        RowChange(kind, key, before and json.loads(before), after and json.loads(after), snapshot_id)
        for kind, key, before, after, snapshot_id in rows
    ]


def shown_fields(sample: Sequence[RowChange]) -> list[str]:
    """The fields that a table shows: all that an update changed, then some others."""
    sides = [(each.before or {}, each.after or {}) for each in sample]
    every = dict.fromkeys(name for before, after in sides for name in {**before, **after})
    changed = {name for name in every for b, a in sides if b and a and b.get(name) != a.get(name)}
    return sorted(every, key=lambda name: name not in changed)[: max(_MOST_FIELDS, len(changed))]


def find_differences(view: View) -> Part:
    """Compare the two snapshots that the parameters name; reads only data files that differ between them."""
    start, end, note = view.chosen
    counts, carried, sample = ({}, 0, []) if end is None or start == end else _compare(view, start, end)
    inserts, updates, deletes = (counts.get(kind, 0) for kind in (INSERTED, UPDATED, DELETED))
    nested = "Rows of nested tables are as they are now, on both sides." if view.source.nested else ""
    shown: list[str | pd.DataFrame] = [f"{note} {nested}".strip()]
    if end is not None:
        shown.insert(0, f"From {'the empty table' if start is None else f'snapshot {start}'} to snapshot {end}.")
    if not counts:
        shown.append(f"No changes. {carried:,} rewritten rows are the same.")
    else:
        changed = f"{inserts:,} inserts, {updates:,} updates, {deletes:,} deletes"
        fields = shown_fields(sample)
        rows = [[each.kind, each.document_id, *map(each.text, fields)] for each in sample]
        shown += [
            f"{changed}. {carried:,} carryovers, which are rewritten rows that stayed the same.",
            f"{len(sample):,} of {inserts + updates + deletes:,} changes, as documents:",
            pd.DataFrame(rows, columns=["change", "_id", *fields]),
        ]
    report = {
        "from_snapshot_id": start,
        "to_snapshot_id": end,
        "inserts": inserts,
        "updates": updates,
        "deletes": deletes,
        "carryovers_removed": carried,
    }
    return Part(report, shown, next((each.document_id for each in sample if each.document_id), ""))


def _compare(view: View, start: int | None, end: int) -> tuple[dict[str, int], int, list[RowChange]]:
    """Return how many changes there are of each kind, how many carryovers, and a sample of the changes."""
    with view.reading() as source:
        scans = plan_scans(source.table, source.metadata, start, end, "net")
        if not scans:
            return {}, 0, []
        only_inserts, keys = is_insert_only(scans), source.key_columns
        # Rows that a compaction between two steps left as they were cancel only if all are of one step.
        one_step = {CHANGE_ORDINAL: F.lit(0), COMMIT_SNAPSHOT_ID: F.lit(end)}
        selection = replace(source.selection, with_row_position=False)
        raw = RowCount(changes_frame(source.table, scans, selection).withColumns(one_step))
        rows = shuffle_by_identifiers(raw.rows, keys) if keys and not only_inserts else raw.rows
        changed = row_changes(rows, keys, only_inserts)
        # A file that is only added can be as large as the table, so its rows are not kept.
        with nullcontext() if only_inserts else persisted(changed):
            kinds = changed.groupBy(KIND).agg(F.count("*"), F.sum(ROWS)).collect()
            if not only_inserts:
                changed = changed.orderBy(F.desc(KIND), *(F.col(quoted(name)) for name in keys))  # updates first
            sample = collect_changes(changed.limit(view.config.sample_rows), keys)
            carried = (raw.value() - sum(row[2] for row in kinds)) // 2
    return {row[0]: row[1] for row in kinds}, carried, sample
