"""What Spark is told for the work at hand: room for very many groups, for a shuffle and for what is kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import SparkSession

from icecdc_core.session.spark import unless_set

# Spark generates a fast hash map for each aggregate with keys of fixed width or text, and keeps what does not fit in a
# general one. By default it does so for partial aggregates only and for 2^16 groups, which is nothing where almost
# every row has an identifier of its own: with room for 2^20 a task groups three times as fast. Its pages come from
# Spark's memory manager; what is beyond them are 8 MB a task, 16 MB where keys are text. So it is for narrow rows only.
_SETTINGS = {
    "spark.sql.codegen.aggregate.map.twolevel.partialOnly": "false",
    "spark.sql.codegen.aggregate.fastHashMap.capacityBit": "20",
}

# Data files are packed several times as tightly as rows in memory; a task sorts these in parts that fit.
_FILE_BYTES_OF_A_PARTITION = 32 * 1024 * 1024
_MEMORY_OF_FILE_BYTES = 4
_SHARE_OF_MEMORY = 0.5
_ROWS_OF_A_BATCH_ON_DISK = 256


def many_groups(spark: SparkSession) -> AbstractContextManager[None]:
    """Let what is computed inside group fast; settings that the session has of its own are kept."""
    return unless_set(spark, _SETTINGS)


def partitions_for(spark: SparkSession, file_bytes: int) -> AbstractContextManager[None]:
    """Let shuffles inside begin with as many partitions as the rows of such files need.

    Adaptive execution joins partitions that turn out small, but never cuts one that is too large for a task's memory.
    ``spark.sql.shuffle.partitions`` is the least, and a setting of the session's own is kept.

    Args:
        spark: The session.
        file_bytes: Size of the data files whose rows are shuffled.
    """
    wanted = -(-file_bytes // _FILE_BYTES_OF_A_PARTITION)
    least = str(spark.conf.get("spark.sql.shuffle.partitions"))
    enough = not least.isdigit() or int(least) >= wanted  # a platform may choose by itself ("auto")
    name = "spark.sql.adaptive.coalescePartitions.initialPartitionNum"
    return unless_set(spark, {} if enough else {name: str(wanted)})


@contextmanager
def keeping(spark: SparkSession, file_bytes: int) -> Iterator[StorageLevel]:
    """Yield where whole rows of such files are kept: in memory, then on disk; what may not fit goes to disk at once.

    Spark looks only at every 16th batch of rows, of up to 4 MB a column, whether there is still room for what a task
    keeps in memory; and what writes to disk holds on to the last hundred batches. In a small executor either fills the
    heap, so what goes to disk is kept in small batches.

    Args:
        spark: The session.
        file_bytes: Size of the data files whose rows are kept; they are to be computed inside.
    """
    manager: Any = spark.sparkContext._jsc.sc().getExecutorMemoryStatus()
    entries, rooms = manager.valuesIterator(), []
    while entries.hasNext():
        rooms.append(int(entries.next()._1()))
    # The driver is one of them, and the only one in local mode.
    room = sum(rooms) * max(1, len(rooms) - 1) / len(rooms)
    if file_bytes * _MEMORY_OF_FILE_BYTES < room * _SHARE_OF_MEMORY:
        yield StorageLevel.MEMORY_AND_DISK
        return
    with unless_set(spark, {"spark.sql.inMemoryColumnarStorage.batchSize": str(_ROWS_OF_A_BATCH_ON_DISK)}):
        yield StorageLevel.DISK_ONLY
