"""Which record of a key is the last one, and what a merge of it leaves in the table."""

from itertools import product
from types import SimpleNamespace

import pytest
from pyspark.sql import functions as F

from icecdc_core.ingest.deleted_keys import apply_deleted_keys, write_deleted_keys
from icecdc_core.ingest.upserts import IDENTIFIER, ORDER, last_row_of_each, merge_rows

SCHEMA = f"{IDENTIFIER}0 long, topic string, partition int, offset long, timestamp timestamp, op string, {ORDER} long"


def record(partition, offset, second, op=None, order=None):
    return (partition, offset, second, op, order)


# Records of an identifier whose clocks disagree with their offsets, and the one that is the last.
LAST = [
    # One partition: the offset decides. Several: each one's last, and of those the youngest.
    ([record(0, 1, 9), record(0, 2, 5)], (0, 2)),
    ([record(0, 1, 9), record(0, 2, 5), record(1, 8, 7)], (1, 8)),
    ([record(0, 1, 3), record(1, 1, 3)], (1, 1)),
    # An ordering column beats both; without a value a record is the oldest.
    ([record(0, 1, 1, order=5), record(0, 2, 2, order=4), record(1, 3, 3)], (0, 1)),
    # A delete without ordering value is newer than all before it, in its partition and by the timestamp in others.
    ([record(0, 1, 1, order=5), record(0, 2, 2, "delete"), record(1, 9, 9, order=6)], (1, 9)),
    ([record(0, 1, 1, order=5), record(0, 2, 2, "delete"), record(1, 9, 0, order=6)], (0, 2)),
]


def it_keeps_the_last_of_each_key(spark):
    rows = [(number, "t", *each) for number, (records, _) in enumerate(LAST) for each in records]
    source = spark.createDataFrame(rows, SCHEMA.replace("timestamp timestamp", "timestamp long"))
    found = last_row_of_each(source.withColumn("timestamp", F.timestamp_seconds("timestamp"))).collect()
    assert sorted((row[0], row.partition, row.offset) for row in found) == [
        (number, *last) for number, (_, last) in enumerate(LAST)
    ]


EVENTS = [("upsert", 1), ("upsert", 2), ("upsert", 3), ("delete", None), ("delete", 2)]
"""What a record is and its ordering value."""


def histories(longest):
    """Every history, with every way to cut it into batches: one number for each record, that of its batch."""
    for length in range(1, longest + 1):
        for history, ends in product(product(EVENTS, repeat=length), product([False, True], repeat=length - 1)):
            yield history, [sum(ends[:place]) for place in range(length)]


def row_after(history):
    """Which record is the row in the end."""
    row, highest = None, 0
    for place, (op, order) in enumerate(history):
        if op == "delete" and order is None:
            row = None
        elif order >= highest:
            row, highest = place if op == "upsert" else None, order
    return row


@pytest.mark.parametrize("longest", [pytest.param(4, marks=pytest.mark.long), 3])
def it_makes_the_same_table_of_a_history_however_it_is_cut_into_batches(spark, sql, name, longest):
    # Each in one partition and in two.
    every = list(enumerate((*case, partitions) for case in histories(longest) for partitions in (1, 2)))
    sql("CREATE TABLE {t} (id BIGINT, place INT, ts BIGINT) USING iceberg")
    records = [
        (number, "t", place % partitions, place, place, op, order, order, place, batches[place])
        for number, (history, batches, partitions) in every
        for place, (op, order) in enumerate(history)
    ]
    schema = SCHEMA.replace("timestamp timestamp", "timestamp long") + ", ts long, place int, batch int"
    rows = spark.createDataFrame(records, schema).withColumn("timestamp", F.timestamp_seconds("timestamp")).cache()
    columns = {"id": F.col(f"{IDENTIFIER}0"), "place": F.col("place"), "ts": F.col("ts")}
    table, config = (
        f"lake.ns.{name}",
        SimpleNamespace(job="j", ordering_column="ts", quoted_deletes=f"lake.ns.{name}_d"),
    )
    for batch in range(longest):
        last = last_row_of_each(rows.where(F.col("batch") == batch)).localCheckpoint()
        last, deleted = apply_deleted_keys(last, table, ["id"], config)
        if deleted is not None:
            write_deleted_keys(deleted, config)
        merge_rows(last, table, columns, ["id"], "ts", {})
    found = {row.id: row.place for row in sql("SELECT * FROM {t}").collect()}
    rows.unpersist()
    expected = {number: row_after(history) for number, (history, _, _) in every}
    assert found == {number: row for number, row in expected.items() if row is not None}
