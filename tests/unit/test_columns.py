"""Columns of any name are taken literally, also by the session's own rules for names."""

from __future__ import annotations

from chispa import assert_df_equality

from icecdc_core.carryover import remove_carryovers
from icecdc_core.shuffle import shuffle_by_identifiers
from icecdc_core.updates import merge_updates


def it_takes_odd_names_literally(spark):
    rows = [(1, 1, "a", 1.0), (1, 1, "a", 1.0), (2, 1, "b", 2.0), (2, 2, "c", None)]
    kinds = ["DELETE", "INSERT", "DELETE", "INSERT"]
    schema = "`no. (id)` int, `a+b` int, `[x]` string, ```` double, _change_type string, _change_ordinal int"
    source = spark.createDataFrame([(*row, kind, 0) for row, kind in zip(rows, kinds, strict=True)], schema)
    shuffled = shuffle_by_identifiers(source, ["no. (id)"])
    actual = merge_updates(remove_carryovers(shuffled), ["no. (id)"])
    expected = spark.createDataFrame([(2, 2, "c", None, "INSERT", 0)], source.schema)
    assert_df_equality(actual, expected, ignore_nullable=True)
