"""Upserts and deletes: merge the last record of each identifier into the table.

docs/kafka.md ("Upserts and deletes") says which record is the last. A delete without an ordering value is newer than
everything before it, so the result does not depend on how the records are cut into batches, but for one case: an
upsert after the delete with a lower ordering value than a record before it is dropped in the batch of the delete, and
makes the row again in a later batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from icecdc_core.columns import quoted
from icecdc_core.ingest.inference import find_spellings
from icecdc_core.ingest.rows import read_values
from icecdc_core.session.jvm import create_java_helper, java_class

IDENTIFIER, ORDER = "_icecdc_id_", "_icecdc_order"
"""Columns that `last_row_of_each` compares: one for each identifier column, numbered, and the ordering value."""

CLEARED = "_icecdc_cleared"
"""Column that `last_row_of_each` adds: whether a delete of the identifier has no ordering value."""

_SOURCE, _RANK, _CHANGE = "_icecdc_source_", "_icecdc_rank", "_icecdc_change"


def delete_old_identifiers(
    rows: DataFrame, identifiers: Sequence[str], schema: StructType, any_case: bool
) -> DataFrame:
    """Add a delete of the old row to each update that gave its row another identifier.

    It has the offset and the ordering value of the update. A `before` without the identifiers says nothing.

    Example:
        offset 1: update, id 1 before and 2 now -> offset 1: delete of id 1; offset 1: id 2
    """
    kinds, own = StructType([column for column in schema if column.name in identifiers]), []
    spellings = find_spellings(rows.select(F.col("before").alias("payload")), kinds) if any_case else None
    old = read_values(F.col("before"), kinds, spellings)
    now, then = [], []
    for number, column in enumerate(identifiers):
        own.append(f"{IDENTIFIER}{number}")
        now.append(F.col(own[-1]))
        then.append(old.getField(column) if column in kinds.names else now[-1])
    known, other = F.lit(True), F.lit(False)
    for mine, theirs in zip(now, then, strict=True):
        known, other = known & theirs.isNotNull(), other | ~mine.eqNullSafe(theirs)
    delete = F.struct(*(value.alias(name) for value, name in zip(then, own, strict=True)), F.lit("delete").alias("op"))
    changes = F.array_compact(F.array(F.struct(*own, "op"), F.when(known & other, delete)))
    replaced = {name: F.col(_CHANGE).getField(name) for name in (*own, "op")}
    return rows.withColumn(_CHANGE, F.explode(changes)).withColumns(replaced).drop(_CHANGE, "before")


def last_row_of_each(rows: DataFrame) -> DataFrame:
    """Keep the last row of each identifier, as docs/kafka.md ("Upserts and deletes") defines it."""
    own = [F.col(name) for name in rows.columns if name.startswith(IDENTIFIER)]
    of_identifier, of_partition = Window.partitionBy(*own), Window.partitionBy(*own, "topic", "partition")
    unordered = F.coalesce(F.col("op") == "delete", F.lit(False)) & F.col(ORDER).isNull()
    before = Window.unboundedPreceding, Window.currentRow
    highest = F.greatest(
        F.max(ORDER).over(of_partition.orderBy("offset").rowsBetween(*before)),
        F.max(ORDER).over(of_identifier.orderBy("timestamp").rangeBetween(*before)),
    )
    ordered = rows.repartition(*own).withColumns(
        {CLEARED: F.bool_or(unordered).over(of_identifier), ORDER: F.when(unordered, highest).otherwise(F.col(ORDER))}
    )
    newest = F.desc_nulls_last(ORDER)
    in_partition = of_partition.orderBy(newest, F.desc("offset"))
    over_all = of_identifier.orderBy(newest, F.desc("timestamp"), F.desc("partition"), F.desc("offset"))
    first = ordered.withColumn(_RANK, F.row_number().over(in_partition)).where(F.col(_RANK) == 1)
    last = first.withColumn(_RANK, F.row_number().over(over_all)).where(F.col(_RANK) == 1)
    return last.drop(_RANK)


def merge_rows(
    last: DataFrame,
    name: str,
    columns: dict[str, Column],
    identifiers: Sequence[str],
    ordering: str,
    properties: dict[str, str],
) -> None:
    alias = {column: f"{_SOURCE}{number}" for number, column in enumerate(columns)}
    deleted = F.coalesce(F.col("op") == "delete", F.lit(False))
    values = [value.alias(alias[column]) for column, value in columns.items()]
    flags = {"deleted": deleted, "order": F.col(ORDER), "cleared": F.col(CLEARED)}
    source = last.select(*values, *(value.alias(f"{_SOURCE}{key}") for key, value in flags.items()))
    same: Column = F.lit(True)
    for column in identifiers:
        same = same & (F.col(quoted(column)) == F.col(alias[column]))
    deleted, cleared, newer = F.col(f"{_SOURCE}deleted"), F.col(f"{_SOURCE}cleared"), F.lit(True)
    if ordering:
        theirs, ours = F.col(quoted(ordering)), F.col(f"{_SOURCE}order")
        newer = theirs.isNull() | F.coalesce(ours >= theirs, F.lit(False))
    assignments = {quoted(column): F.col(name) for column, name in alias.items()}
    writer: Any = source.mergeInto(name, same)
    # A delete without ordering value removes the row, also if an older record follows the delete.
    writer = writer.whenMatched(F.when(newer, deleted).otherwise(cleared)).delete()
    writer = writer.whenMatched(newer & ~deleted).update(assignments)
    writer = writer.whenNotMatched(~deleted).insert(assignments)
    spark = last.sparkSession
    java_properties = java_class(spark, "java.util.HashMap")()
    for key, text in properties.items():
        java_properties.put(key, text)
    create_java_helper(spark, "MergeCommit").merge(writer._jwriter, java_properties)
