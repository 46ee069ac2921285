"""Which record of a key is the last one."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F

from icecdc_core.ingest.merging import IDENTIFIER, ORDER, last_of_each

SCHEMA = f"{IDENTIFIER}0 long, topic string, partition int, offset long, timestamp timestamp, op string, {ORDER} long"


def record(number, partition, offset, second, op=None, order=None):
    return (number, "t", partition, offset, second, op, order)


def last(spark, *records):
    schema = SCHEMA.replace("timestamp timestamp", "timestamp long")
    rows = spark.createDataFrame(list(records), schema).withColumn("timestamp", F.timestamp_seconds("timestamp"))
    return sorted((row[0], row.partition, row.offset) for row in last_of_each(rows).collect())


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        # One partition: the offset decides, whatever the clocks said.
        ([record(1, 0, 1, 9), record(1, 0, 2, 5)], [(1, 0, 2)]),
        # Several: each one's last, and of those the youngest.
        ([record(1, 0, 1, 9), record(1, 0, 2, 5), record(1, 1, 8, 7)], [(1, 1, 8)]),
        ([record(1, 0, 1, 3), record(1, 1, 1, 3)], [(1, 1, 1)]),
        # An ordering column beats both; without a value a record is the oldest.
        ([record(1, 0, 1, 1, order=5), record(1, 0, 2, 2, order=4), record(1, 1, 3, 3)], [(1, 0, 1)]),
        ([record(1, 0, 1, 1, order=5), record(1, 0, 2, 2, order=5)], [(1, 0, 2)]),
        # A delete that tells no order comes right after what was before it in its partition.
        ([record(1, 0, 1, 1, order=5), record(1, 0, 2, 2, "delete"), record(1, 1, 9, 9, order=4)], [(1, 0, 2)]),
        ([record(1, 0, 1, 1, order=5), record(1, 0, 2, 2, "delete"), record(1, 1, 9, 0, order=6)], [(1, 1, 9)]),
        ([record(1, 0, 2, 2, "delete"), record(2, 0, 3, 3)], [(1, 0, 2), (2, 0, 3)]),
        # Without an ordering column it is like any other record.
        ([record(1, 0, 2, 2, "delete", 0), record(1, 0, 3, 3, None, 0)], [(1, 0, 3)]),
        ([record(1, 0, 2, 2, None, 0), record(1, 0, 3, 3, "delete", 0)], [(1, 0, 3)]),
    ],
)
def it_keeps_the_last_of_each_key(spark, records, expected):
    assert last(spark, *records) == expected
