"""Upserts and deletes: the last record of each identifier, merged into the table.

Which is the last: the one with the highest ordering value, if there is an ordering column. Else, and between equal
values, in one partition of a topic the one with the highest offset, between partitions the one with the latest
timestamp. The table's row stays when its ordering value is higher than the record's.

A delete without an ordering value, such as a tombstone, is newer than everything before it: the records of its
identifier in the batch, and the table's row. So how records are cut into batches does not change the result, unless an
upsert follows a delete although its ordering value is lower than one before the delete. In the batch of the delete it
loses. In a later batch it makes the row again, because a deleted row leaves no ordering value.

    ts=10, ts=5, delete     -> no row
    ts=10, delete, ts=15    -> the row of ts=15
    ts=10, delete, ts=5     -> no row in one batch; the row of ts=5 if a batch ends after the delete
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from icecdc_core.columns import quoted
from icecdc_core.session.jvm import iceberg_class, java_class

IDENTIFIER, ORDER = "_icecdc_id_", "_icecdc_order"
"""Columns that `last_of_each` looks at: one for each identifier column, numbered, and the ordering value."""

CLEARED = "_icecdc_cleared"
"""Column that `last_of_each` adds: whether a delete without ordering value is among the records of the identifier."""

_SOURCE, _RANK = "_icecdc_source_", "_icecdc_rank"


def last_of_each(rows: DataFrame) -> DataFrame:
    """Keep the last row of each identifier.

    Args:
        rows: `topic`, `partition`, `offset`, `timestamp`, `op`, the columns `IDENTIFIER` 0, 1, ... and `ORDER` (the
            same throughout where only Kafka orders the records), and any others.

    Returns:
        The same columns and `CLEARED`, one row for each identifier.

    Example:
        offset 1: id 7, a; offset 2: id 7, b; offset 3: id 8, c -> id 7, b; id 8, c
    """
    own = [F.col(name) for name in rows.columns if name.startswith(IDENTIFIER)]
    of_identifier, of_partition = Window.partitionBy(*own), Window.partitionBy(*own, "topic", "partition")
    unordered = F.coalesce(F.col("op") == "delete", F.lit(False)) & F.col(ORDER).isNull()
    before = Window.unboundedPreceding, Window.currentRow
    highest = F.greatest(
        F.max(ORDER).over(of_partition.orderBy("offset").rowsBetween(*before)),
        F.max(ORDER).over(of_identifier.orderBy("timestamp").rangeBetween(*before)),
    )
    known = rows.repartition(*own).withColumns(
        {CLEARED: F.bool_or(unordered).over(of_identifier), ORDER: F.when(unordered, highest).otherwise(F.col(ORDER))}
    )
    newest = F.desc_nulls_last(ORDER)
    in_partition = of_partition.orderBy(newest, F.desc("offset"))
    over_all = of_identifier.orderBy(newest, F.desc("timestamp"), F.desc("partition"), F.desc("offset"))
    first = known.withColumn(_RANK, F.row_number().over(in_partition)).where(F.col(_RANK) == 1)
    last = first.withColumn(_RANK, F.row_number().over(over_all)).where(F.col(_RANK) == 1)
    return last.drop(_RANK)


def merge(
    last: DataFrame,
    name: str,
    columns: dict[str, Column],
    identifiers: Sequence[str],
    ordering: str,
    marked: dict[str, str],
) -> None:
    """Merge rows into a table, in one commit.

    Args:
        last: What `last_of_each` returned.
        name: The table, every part quoted.
        columns: The table's columns, each as it comes from `last`.
        identifiers: The columns that identify a row.
        ordering: The ordering column; "": the given rows are newer than the table's.
        marked: Properties for the snapshot.
    """
    alias = {column: f"{_SOURCE}{number}" for number, column in enumerate(columns)}
    deleted = F.coalesce(F.col("op") == "delete", F.lit(False))
    taken = [value.alias(alias[column]) for column, value in columns.items()]
    facts = {"deleted": deleted, "order": F.col(ORDER), "cleared": F.col(CLEARED)}
    source = last.select(*taken, *(value.alias(f"{_SOURCE}{key}") for key, value in facts.items()))
    same: Column = F.lit(True)
    for column in identifiers:
        same = same & (F.col(quoted(column)) == F.col(alias[column]))
    deleted, cleared, newer = F.col(f"{_SOURCE}deleted"), F.col(f"{_SOURCE}cleared"), F.lit(True)
    if ordering:
        theirs, ours = F.col(quoted(ordering)), F.col(f"{_SOURCE}order")
        newer = theirs.isNull() | F.coalesce(ours >= theirs, F.lit(False))
    values = {quoted(column): F.col(name) for column, name in alias.items()}
    writer = source.mergeInto(name, same)
    # The row that a delete without ordering value removes does not come back because what follows the delete is older.
    writer = writer.whenMatched(F.when(newer, deleted).otherwise(cleared)).delete()
    writer = writer.whenMatched(newer & ~deleted).update(values)
    writer = writer.whenNotMatched(~deleted).insert(values)
    _committed_with(last.sparkSession, marked, writer)


def _committed_with(spark: SparkSession, properties: dict[str, str], writer: Any) -> None:
    """Run the merge with properties for its snapshot: a merge takes no options, but Iceberg asks the thread."""
    gateway: Any = spark.sparkContext._gateway
    handed = java_class(spark, "java.util.HashMap")()
    for key, value in properties.items():
        handed.put(key, value)
    loader = java_class(spark, "java.lang.Thread").currentThread().getContextClassLoader()

    def named(name: str) -> Any:
        return java_class(spark, "java.lang.Class").forName(name, True, loader)

    nothing = gateway.new_array(java_class(spark, "java.lang.Class"), 0)
    method = named("org.apache.spark.sql.MergeIntoWriter").getMethod("merge", nothing)
    lookup = java_class(spark, "java.lang.invoke.MethodHandles").publicLookup()
    handle = lookup.unreflect(method).bindTo(writer._jwriter)
    proxies = java_class(spark, "java.lang.invoke.MethodHandleProxies")
    run = proxies.asInterfaceInstance(named("java.util.concurrent.Callable"), handle)
    iceberg_class(spark, "spark.CommitMetadata").withCommitProperties(handed, run, named("java.lang.RuntimeException"))
