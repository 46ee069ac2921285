"""The rows that differ between two snapshots: paired by identifier, counted, and a sample of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from icecdc_core.carryover import remove_carryovers
from icecdc_core.changes.row_changes import changes_frame
from icecdc_core.changes.scan_planning import file_bytes, is_insert_only
from icecdc_core.changes.step_scan import StepScan
from icecdc_core.columns import CHANGE_ORDINAL, unused_name
from icecdc_core.explore.rows.changed import (
    AFTER,
    BEFORE,
    DELETED,
    DELETES,
    ID,
    INSERTED,
    INSERTS,
    KIND,
    PARTITION,
    UPDATED,
    RowChange,
    document_json_columns,
    kind_of_pair,
    pair_rows,
    parse_document,
)
from icecdc_core.explore.rows.document_ids import complete_id
from icecdc_core.explore.rows.partitions import PartitionText, partition_text
from icecdc_core.session.row_counts import RowCount
from icecdc_core.session.spark_settings import storage_level_for
from icecdc_core.shuffle import shuffle_by_identifiers
from icecdc_core.table.source import Source

if TYPE_CHECKING:
    from icecdc_core.explore.view import View

_MOST_PARTITIONS = 100
_KINDS = (UPDATED, INSERTED, DELETED)


@dataclass(frozen=True)
class PartitionChanges:
    """The changes of one partition; a row that moved counts where it is now."""

    partition: str
    inserts: int
    updates: int
    deletes: int


@contextmanager
def changed_pairs(
    view: View, source: Source, scans: Sequence[StepScan]
) -> Iterator[tuple[DataFrame, PartitionText, RowCount | None]]:
    """Yield the pairs of before and after, their partition, and the rows that were read (None: only inserts)."""
    selection = replace(source.selection, with_row_position=False)
    # Rows that a compaction between two steps left as they were cancel only if all are of one step.
    changes = changes_frame(source.table, scans, selection).withColumn(CHANGE_ORDINAL, F.lit(0))
    partition = partition_text(source, view.config.catalog, changes)
    if is_insert_only(scans):
        # A file that is only added can be as large as the table, so its rows are counted and not kept.
        yield pair_rows(changes, source.key_columns, partition.column, only_inserts=True), partition, None
        return
    raw = RowCount(changes)
    rows = raw.rows.transform(shuffle_by_identifiers, source.key_columns) if source.key_columns else raw.rows
    with storage_level_for(view.spark, file_bytes(source.table, scans)) as level:
        pairs = pair_rows(remove_carryovers(rows), source.key_columns, partition.column).persist(level)
        try:
            yield pairs, partition, raw
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


def count_by_partition(pairs: DataFrame) -> tuple[PartitionChanges, ...]:
    """Return the changes of the partitions with the most of them."""
    both = F.least(INSERTS, DELETES)
    counts = pairs.groupBy(PARTITION).agg(
        F.sum(F.col(INSERTS) - both).alias("inserts"),
        F.sum(both).alias("updates"),
        F.sum(F.col(DELETES) - both).alias("deletes"),
    )
    most = counts.orderBy(F.desc(F.col("inserts") + F.col("updates") + F.col("deletes")), PARTITION)
    return tuple(PartitionChanges(*row) for row in most.limit(_MOST_PARTITIONS).collect())


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
