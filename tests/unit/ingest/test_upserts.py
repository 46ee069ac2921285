"""Which record of a key is the last one, and what a merge of it leaves in the table."""

from itertools import product

import pytest
from pyspark.sql import functions as F

from icecdc_core.ingest.upserts import IDENTIFIER, ORDER, last_row_of_each, merge_rows

SCHEMA = f"{IDENTIFIER}0 long, topic string, partition int, offset long, timestamp timestamp, op string, {ORDER} long"


def record(partition, offset, second, op=None, order=None):
    return (partition, offset, second, op, order)


# Records of an identifier, and the one that is the last.
LAST = [
    # One partition: the offset decides, whatever the clocks said.
    ([record(0, 1, 9), record(0, 2, 5)], (0, 2)),
    # Several: each one's last, and of those the youngest.
    ([record(0, 1, 9), record(0, 2, 5), record(1, 8, 7)], (1, 8)),
    ([record(0, 1, 3), record(1, 1, 3)], (1, 1)),
    # An ordering column beats both; without a value a record is the oldest.
    ([record(0, 1, 1, order=5), record(0, 2, 2, order=4), record(1, 3, 3)], (0, 1)),
    ([record(0, 1, 1, order=5), record(0, 2, 2, order=5)], (0, 2)),
    # A delete without ordering value is newer than all before it, in its partition and by the timestamp in others.
    ([record(0, 1, 1, order=9), record(0, 2, 2, order=5), record(0, 3, 3, "delete")], (0, 3)),
    ([record(0, 1, 1, order=5), record(0, 2, 2, "delete"), record(1, 9, 9, order=4)], (0, 2)),
    ([record(0, 1, 1, order=5), record(0, 2, 2, "delete"), record(1, 9, 9, order=6)], (1, 9)),
    ([record(0, 1, 1, order=5), record(0, 2, 2, "delete"), record(1, 9, 0, order=6)], (0, 2)),
    # What comes after it is newer, unless its ordering value is lower than one from before the delete.
    ([record(0, 1, 1, "delete"), record(0, 2, 2, order=5)], (0, 2)),
    ([record(0, 1, 1, "delete"), record(1, 7, 2, order=5)], (1, 7)),
    ([record(0, 1, 1, order=9), record(0, 2, 2, "delete"), record(0, 3, 3, order=5)], (0, 2)),
    ([record(0, 2, 2, "delete")], (0, 2)),
    # Without an ordering column it is like any other record.
    ([record(0, 2, 2, "delete", 0), record(0, 3, 3, None, 0)], (0, 3)),
    ([record(0, 2, 2, None, 0), record(0, 3, 3, "delete", 0)], (0, 3)),
]


def it_keeps_the_last_of_each_key(spark):
    rows = [(number, "t", *each) for number, (records, _) in enumerate(LAST) for each in records]
    source = spark.createDataFrame(rows, SCHEMA.replace("timestamp timestamp", "timestamp long"))
    found = last_row_of_each(source.withColumn("timestamp", F.timestamp_seconds("timestamp"))).collect()
    assert sorted((row[0], row.partition, row.offset) for row in found) == [
        (number, *last) for number, (_, last) in enumerate(LAST)
    ]


EVENTS = [("upsert", None), ("upsert", 1), ("upsert", 2), ("upsert", 3), ("delete", None), ("delete", 2)]
"""What a record is and its ordering value."""


def histories(longest):
    """Every history, with every way to cut it into batches: one number for each record, that of its batch."""
    for length in range(1, longest + 1):
        for history, ends in product(product(EVENTS, repeat=length), product([False, True], repeat=length - 1)):
            yield history, [sum(ends[:place]) for place in range(length)]


def row_after(history, batches):
    """Which record is the row in the end. The highest ordering value is forgotten with a row that a batch deleted."""
    row, highest, last_batch = None, 0, 0
    for place, ((op, order), batch) in enumerate(zip(history, batches, strict=True)):
        if batch != last_batch and row is None:
            highest = 0
        last_batch = batch
        if op == "delete" and order is None:
            row = None
        elif (order or 0) >= highest:
            row, highest = place if op == "upsert" else None, order or 0
    return row


def has_late_upsert_after_delete(history):
    """Whether an upsert follows a delete although its ordering value is lower than one from before."""
    seen = [order or 0 for _, order in history]
    deletes = [place for place, (op, _) in enumerate(history) if op == "delete"]
    return any(
        op == "upsert" and any(place > delete for delete in deletes) and seen[place] < max(seen[:place], default=0)
        for place, (op, _) in enumerate(history)
    )


@pytest.mark.parametrize("longest", [pytest.param(4, marks=pytest.mark.long), 3])
def it_makes_the_same_table_of_a_history_however_it_is_cut_into_batches(spark, sql, name, longest):
    # Each in one partition and in two.
    every = list(enumerate((*case, partitions) for case in histories(longest) for partitions in (1, 2)))
    for _, (history, batches, _) in every:
        if not has_late_upsert_after_delete(history):
            assert row_after(history, batches) == row_after(history, [0] * len(history))
    sql("CREATE TABLE {t} (id BIGINT, place INT, ts BIGINT) USING iceberg")
    records = [
        (number, "t", place % partitions, place, place, op, order, order, place, batches[place])
        for number, (history, batches, partitions) in every
        for place, (op, order) in enumerate(history)
    ]
    schema = SCHEMA.replace("timestamp timestamp", "timestamp long") + ", ts long, place int, batch int"
    rows = spark.createDataFrame(records, schema).withColumn("timestamp", F.timestamp_seconds("timestamp")).cache()
    columns = {"id": F.col(f"{IDENTIFIER}0"), "place": F.col("place"), "ts": F.col("ts")}
    for batch in range(longest):
        merge_rows(last_row_of_each(rows.where(F.col("batch") == batch)), f"lake.ns.{name}", columns, ["id"], "ts", {})
    found = {row.id: row.place for row in sql("SELECT * FROM {t}").collect()}
    rows.unpersist()
    expected = {number: row_after(*case[:2]) for number, case in every}
    assert found == {number: row for number, row in expected.items() if row is not None}
