"""Change rows as pairs of before and after, and their values as documents have them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from icecdc_core.columns import CHANGE_TYPE, DELETE, INSERT, JSON_OPTIONS, is_document_column, quoted
from icecdc_core.documents.values import json_ready
from icecdc_core.explore.html import Cell, value_text

INSERTED, UPDATED, DELETED = "insert", "update", "delete"
BEFORE, AFTER, ID, KIND, PARTITION = (f"_icecdc_{name}" for name in ("before", "after", "shown_id", "shown_kind", "at"))
INSERTS, DELETES = "_icecdc_inserts", "_icecdc_deletes"

Document = Mapping[str, Any]


@dataclass(frozen=True)
class RowChange:
    """A row before and after."""

    document_id: str
    before: Document | None
    after: Document | None

    @property
    def kind(self) -> str:
        """``insert``, ``update`` or ``delete``."""
        if self.before is None:
            return INSERTED
        return DELETED if self.after is None else UPDATED

    @property
    def changed_fields(self) -> list[str]:
        """The fields whose values differ, in the order of the document."""
        before, after = self.before or {}, self.after or {}
        return [name for name in {**before, **after} if before.get(name) != after.get(name)]

    def cell(self, name: str) -> Cell:
        """What a table shows of one field: its value, or both if they differ."""
        if self.before is None or self.after is None:
            values = self.after if self.before is None else self.before
            return Cell(value_text((values or {}).get(name)), self.kind)
        before, after = value_text(self.before.get(name)), value_text(self.after.get(name))
        return Cell(after, UPDATED, before) if name in self.changed_fields else Cell(after)


def pair_rows(
    changes: DataFrame, key_columns: Sequence[str], partition: Column | None, only_inserts: bool = False
) -> DataFrame:
    """Return one row for each identifier: its rows before and after, how many there are, and their partition."""
    keys = [F.col(quoted(name)) for name in key_columns]
    fields = [quoted(name) for name in changes.columns if is_document_column(name)]
    row, is_delete = F.struct(*fields), F.col(CHANGE_TYPE) == DELETE
    at = F.lit("") if partition is None else partition
    sides = changes.select(
        *keys,
        F.when(is_delete, row).alias(BEFORE),
        F.when(~is_delete, row).alias(AFTER),
        F.when(is_delete, 0).otherwise(1).alias(INSERTS),
        F.when(is_delete, 1).otherwise(0).alias(DELETES),
        at.alias(PARTITION),
    )
    if only_inserts or not key_columns:
        return sides
    # The partition of the newer row, if there is one.
    last = F.max(F.struct(INSERTS, PARTITION)).getField(PARTITION)
    return sides.groupBy(*keys).agg(
        F.first(BEFORE, ignorenulls=True).alias(BEFORE),
        F.first(AFTER, ignorenulls=True).alias(AFTER),
        F.sum(INSERTS).alias(INSERTS),
        F.sum(DELETES).alias(DELETES),
        last.alias(PARTITION),
    )


def kind_of_pair() -> Column:
    """The kind of a pair of ``pair_rows``."""
    kind = F.when(F.col(INSERTS) == 0, DELETED).when(F.col(DELETES) == 0, INSERTED)
    return kind.otherwise(UPDATED).alias(KIND)


def document_json_columns(pairs: DataFrame) -> list[Column]:
    """The rows before and after of a pair, each as the JSON of its document."""
    return [
        F.to_json(json_ready(F.col(side), pairs.schema[side].dataType, JSON_OPTIONS), JSON_OPTIONS).alias(side)
        for side in (BEFORE, AFTER)
    ]


def parse_document(text: str | None) -> Document | None:
    """The document of a JSON text; None for None."""
    return None if text is None else dict(json.loads(text))


def net_pairs(changes: Sequence[tuple[str, Document]]) -> Iterator[tuple[Document | None, Document | None]]:
    """Yield before and after of the rows that one step really changed; equal rows of both sides cancel."""
    before = [row for kind, row in changes if kind == DELETE]
    after = [row for kind, row in changes if kind == INSERT]
    for row in [*before]:
        if row in after:
            before.remove(row)
            after.remove(row)
    for position in range(max(len(before), len(after))):
        yield (
            before[position] if position < len(before) else None,
            after[position] if position < len(after) else None,
        )
