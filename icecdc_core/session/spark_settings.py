"""Spark settings for parts of a run: many groups, large shuffles, and rows that are cached."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import SparkSession

from icecdc_core.session.spark import settings_unless_set

# Spark generates a fast hash map for aggregates whose keys are of fixed width or text; further groups go to a general
# one. By default the fast map is for partial aggregates and 2^16 groups only, too few when almost every row has its own
# identifier: with 2^20 groups a task is three times as fast. Beside the pages from Spark's memory manager the map takes
# 8 MB a task, 16 MB for text keys, so this is for narrow rows only.
_SETTINGS = {
    "spark.sql.codegen.aggregate.map.twolevel.partialOnly": "false",
    "spark.sql.codegen.aggregate.fastHashMap.capacityBit": "20",
}

# Data files are several times as dense as rows in memory; a task sorts the rows in parts that fit.
_FILE_BYTES_OF_A_PARTITION = 32 * 1024 * 1024
_MEMORY_OF_FILE_BYTES = 4
_SHARE_OF_MEMORY = 0.5
_ROWS_OF_A_BATCH_ON_DISK = 256


def tuned_for_many_groups(spark: SparkSession) -> AbstractContextManager[None]:
    """Make aggregations with very many groups fast in the block; settings that are set already stay."""
    return settings_unless_set(spark, _SETTINGS)


def shuffle_partitions_for(spark: SparkSession, file_bytes: int) -> AbstractContextManager[None]:
    """Make shuffles in the block start with as many partitions as the rows of such files need.

    Adaptive execution merges small partitions, but never splits one that is too large for a task's memory.
    ``spark.sql.shuffle.partitions`` is the minimum; a setting that is set already stays.
    """
    wanted = -(-file_bytes // _FILE_BYTES_OF_A_PARTITION)
    least = str(spark.conf.get("spark.sql.shuffle.partitions"))
    enough = not least.isdigit() or int(least) >= wanted  # a platform may choose by itself ("auto")
    name = "spark.sql.adaptive.coalescePartitions.initialPartitionNum"
    return settings_unless_set(spark, {} if enough else {name: str(wanted)})


@contextmanager
def storage_level_for(spark: SparkSession, file_bytes: int) -> Iterator[StorageLevel]:
    """Yield the storage level for the rows of such files: memory and disk, or disk alone if they may not fit.

    Spark checks only at every 16th batch of rows, of up to 4 MB a column, whether the memory suffices, and writing to
    disk holds the last hundred batches. Both can fill the heap of a small executor, so rows on disk are cached in small
    batches.
    """
    manager: Any = spark.sparkContext._jsc.sc().getExecutorMemoryStatus()
    entries, rooms = manager.valuesIterator(), []
    while entries.hasNext():
        rooms.append(int(entries.next()._1()))
    # The driver is one of the entries, in local mode the only one.
    room = sum(rooms) * max(1, len(rooms) - 1) / len(rooms)
    if file_bytes * _MEMORY_OF_FILE_BYTES < room * _SHARE_OF_MEMORY:
        yield StorageLevel.MEMORY_AND_DISK
        return
    with settings_unless_set(spark, {"spark.sql.inMemoryColumnarStorage.batchSize": str(_ROWS_OF_A_BATCH_ON_DISK)}):
        yield StorageLevel.DISK_ONLY
