"""Upserts and deletes: the last record of each identifier, merged into the table.

Which is the last: by the ordering column, if there is one. Else, in one partition of a topic, by the offset; between
partitions by the timestamp. The table's row keeps its place against a record that the ordering column shows to be
older. A delete that does not tell the ordering column, such as a tombstone, is taken to be newer than what came before
it in its partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from icecdc_core.columns import quoted
from icecdc_core.jvm import iceberg_class, java_class

IDENTIFIER, ORDER = "_icecdc_id_", "_icecdc_order"
"""Columns that `last_of_each` looks at: one for each identifier column, numbered, and what tells which is newer."""

_SOURCE, _UNKNOWN, _RANK = "_icecdc_source_", "_icecdc_unknown", "_icecdc_rank"


def last_of_each(rows: DataFrame) -> DataFrame:
    """Keep the last row of each identifier.

    Args:
        rows: `topic`, `partition`, `offset`, `timestamp`, `op`, the columns `IDENTIFIER` 0, 1, ... and `ORDER` (the
            same throughout where nothing but Kafka tells the order), and any others.

    Returns:
        The same columns, one row for each identifier.

    Example:
        offset 1: id 7, a; offset 2: id 7, b; offset 3: id 8, c -> id 7, b; id 8, c
    """
    own = [F.col(name) for name in rows.columns if name.startswith(IDENTIFIER)]
    of_partition = Window.partitionBy(*own, "topic", "partition")
    so_far = of_partition.orderBy("offset").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    deleted = F.coalesce(F.col("op") == "delete", F.lit(False))
    told = F.coalesce(F.col(ORDER), F.when(deleted, F.last(ORDER, ignorenulls=True).over(so_far)))
    known = rows.repartition(*own).withColumn(ORDER, told)
    known = known.withColumn(_UNKNOWN, F.when(F.col(ORDER).isNull() & deleted, 1).otherwise(0))
    newest = [F.desc(_UNKNOWN), F.desc_nulls_last(ORDER)]
    in_partition = of_partition.orderBy(*newest, F.desc("offset"))
    over_all = Window.partitionBy(*own).orderBy(*newest, F.desc("timestamp"), F.desc("partition"), F.desc("offset"))
    first = known.withColumn(_RANK, F.row_number().over(in_partition)).where(F.col(_RANK) == 1)
    last = first.withColumn(_RANK, F.row_number().over(over_all)).where(F.col(_RANK) == 1)
    return last.drop(_UNKNOWN, _RANK)


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
        ordering: The column that tells which row is newer; "": the given rows are.
        marked: Properties for the snapshot.
    """
    alias = {column: f"{_SOURCE}{number}" for number, column in enumerate(columns)}
    deleted = F.coalesce(F.col("op") == "delete", F.lit(False))
    taken = [value.alias(alias[column]) for column, value in columns.items()]
    source = last.select(*taken, deleted.alias(f"{_SOURCE}deleted"), F.col(ORDER).alias(f"{_SOURCE}order"))
    same: Column = F.lit(True)
    for column in identifiers:
        same = same & (F.col(quoted(column)) == F.col(alias[column]))
    deleted, newer = F.col(f"{_SOURCE}deleted"), F.lit(True)
    if ordering:
        theirs, ours = F.col(quoted(ordering)), F.col(f"{_SOURCE}order")
        newer = theirs.isNull() | F.coalesce(ours >= theirs, deleted)
    values = {quoted(column): F.col(name) for column, name in alias.items()}
    writer = source.mergeInto(name, same)
    writer = writer.whenMatched(newer & deleted).delete().whenMatched(newer & ~deleted).update(values)
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
