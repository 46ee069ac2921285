"""How Spark groups rows by very many identifiers: by a hash map made for the query at hand, of a size that helps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

# Spark generates a fast hash map for each aggregate with keys of fixed width or text, and keeps what does not fit in a
# general one. By default it does so for partial aggregates only and for 2^16 groups, which is nothing where almost
# every row has an identifier of its own: with room for 2^20 a task groups three times as fast. Its pages come from
# Spark's memory manager; what is beyond them are 8 MB a task, 16 MB where keys are text. So it is for narrow rows only.
_SETTINGS = {
    "spark.sql.codegen.aggregate.map.twolevel.partialOnly": "false",
    "spark.sql.codegen.aggregate.fastHashMap.capacityBit": "20",
}


@contextmanager
def many_groups(spark: SparkSession) -> Iterator[None]:
    """Let what is computed inside group fast; settings that the session has of its own are kept."""
    ours = {name: value for name, value in _SETTINGS.items() if spark.conf.get(name, None) is None}
    for name, value in ours.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in ours:
            spark.conf.unset(name)
