"""Offset arithmetic: the next offset, the records of a batch that a table lacks, removed records."""

import pytest

from icecdc_core.ingest import offsets

A = {"t": {0: 5, 1: 7}}


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ({}, {}, {}),
        ({}, A, A),
        ({"t": {0: 9}}, A, {"t": {0: 9, 1: 7}}),
        ({"s": {0: 1}}, {"t": {0: 2}}, {"s": {0: 1}, "t": {0: 2}}),
    ],
)
def it_takes_the_furthest_of_each_partition(first, second, expected):
    assert offsets.furthest(first, second) == expected


def it_lowers_only_partitions_that_the_limit_has():
    assert offsets.at_most(A, {"t": {0: 2}, "s": {0: 0}}) == {"t": {0: 2, 1: 7}}


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (A, A, True),
        (A, {}, True),
        ({}, A, False),
        ({"t": {0: 5, 1: 6}}, A, False),
        ({"t": {0: 5}}, {"t": {0: 5, 1: 0}}, True),
    ],
)
def it_says_whether_everything_is_covered(one, other, expected):
    assert offsets.covers(one, other) is expected


def it_is_the_same_text_for_the_same_offsets():
    actual = offsets.to_json({"t": {10: 1, 2: 3}, "a": {0: 0}})
    assert actual == '{"a":{"0":0},"t":{"2":3,"10":1}}'
    assert offsets.from_json(actual) == {"t": {10: 1, 2: 3}, "a": {0: 0}}


def it_counts_what_is_between_and_finds_partitions_whose_next_record_was_removed():
    assert (offsets.count({"t": {0: 2}}, A), offsets.removed(A, {"t": {0: 6, 1: 7}})) == (10, [("t", 0, 5, 6)])


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ({"t": {0: 5, 1: 7}}, {"t": {0: 9, 1: 9}}),
        # A topic that is no longer read; a partition without records in the batch.
        ({"s": {0: 0}}, {"s": {0: 9}}),
        ({"t": {0: 2, 1: 7}}, {"t": {0: 2, 1: 9}}),
    ],
)
def it_needs_no_condition_if_the_batch_has_no_record_that_was_read(start, end):
    assert offsets.unread(A, start, end) is None


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ({"t": {0: 0, 1: 0}, "s": {0: 0}}, [("s", 0, 0), ("t", 0, 5)]),
        # A partition and a topic that appeared while the stream was running.
        ({"t": {0: 4}, "s": {0: 0}}, [("s", 0, 0), ("t", 0, 5)]),
        ({"s": {0: 0}}, [("s", 0, 0), ("t", 0, 5)]),
    ],
)
def it_leaves_out_records_that_were_read(spark, start, expected):
    records = spark.createDataFrame(
        [("t", 0, 4), ("t", 0, 5), ("t", 1, 6), ("s", 0, 0)], "topic string, partition int, offset long"
    )
    condition = offsets.unread(A, start, {"t": {0: 6, 1: 7}, "s": {0: 1}})
    assert sorted(tuple(row) for row in records.where(condition).collect()) == expected
