"""Rows are counted by several conditions in one pass."""

from __future__ import annotations

import pytest

from icecdc_core.changes.net_changes import any_null, count_each

SCHEMA = "id int, `the name` string, size long"
ROWS = [(1, "a", 5), (2, None, 7), (None, None, 1)]


class DescribeCountEach:
    @pytest.mark.parametrize(("rows", "expected"), [(ROWS, (1, 2, 13)), ([], (0, 0, 0))], ids=["three rows", "no row"])
    def it_counts_each_condition_and_a_total(self, spark, rows, expected):
        frame = spark.createDataFrame(rows, SCHEMA)
        actual = count_each(frame, total_of="size", large="id > 1", nulls=any_null(["id", "the name"]))
        assert (actual.large, actual.nulls, actual.total) == expected

    def it_needs_no_total(self, spark):
        actual = count_each(spark.createDataFrame(ROWS, SCHEMA), known="id IS NOT NULL")
        assert actual.asDict() == {"known": 2}
