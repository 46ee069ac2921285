"""The last change of each identifier, and an error if two rows have one identifier."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from icecdc_core.changes.net_changes import merge_unique_changes
from icecdc_core.shuffle import shuffle_by_identifiers
from tests.across_steps import ACROSS_STEPS, across_steps

SCHEMA = "id int, v double, m map<string,int>, _change_type string, _change_ordinal int, _commit_snapshot_id long"


def changes_of(spark, *rows):
    """Shuffled changes, given as (id, v, D or I, step)."""
    types = {"D": "DELETE", "I": "INSERT"}
    made = [(key, value, {"k": 1, "l": 2}, types[side], step, step) for key, value, side, step in rows]
    return spark.createDataFrame(made, SCHEMA).repartition(3).transform(shuffle_by_identifiers, ["id"])


class DescribeMergeUniqueChanges:
    """The changes of one row alternate between DELETE and INSERT, over all steps."""

    @pytest.mark.parametrize(
        "rows",
        [
            "I1 I1", "I1 I2", "D1 D1", "D1 D2", "D1 D1 I1", "D1 I1 I1", "D1 D2 I1", "D1 I1 I2", "D1 D1 I1 I1",
            "D1 D2 I1 I2",
        ],
    )  # fmt: skip
    def it_refuses_two_rows_of_one_side_equal_or_not(self, spark, rows):
        given = [(7, float(row[1]), row[0], 1) for row in rows.split()]
        changes = changes_of(spark, (7, 9.0, "D", 0), (8, 1.0, "I", 1), *given)
        with pytest.raises(PySparkException, match=r'duplicate identifier.*\{"id":"7"\}'):
            merge_unique_changes(changes, ["id"]).count()

    @pytest.mark.parametrize("steps", ACROSS_STEPS["two rows"])
    def it_refuses_a_second_row_in_a_later_step(self, spark, steps):
        changes = changes_of(spark, (8, 1.0, "I", 1), *across_steps(7, steps))
        with pytest.raises(PySparkException, match=r'duplicate identifier.*\{"id":"7"\}'):
            merge_unique_changes(changes, ["id"]).count()

    def it_keeps_the_last_change_of_a_row_that_comes_and_goes(self, spark):
        histories = dict(enumerate(ACROSS_STEPS["one row"]))
        changes = changes_of(spark, *(row for id, steps in histories.items() for row in across_steps(id, steps)))
        actual = {
            row.id: (row._change_type[0], row._change_ordinal)
            for row in merge_unique_changes(changes, ["id"]).collect()
        }
        assert actual == {id: (steps[-1], steps.count(" ")) for id, steps in histories.items()}

    def it_keeps_the_values_of_the_row(self, spark):
        changes = changes_of(
            spark, (1, 1.0, "D", 0), (1, -0.0, "I", 0), (2, 2.0, "D", 0), (1, -0.0, "D", 3), (1, 3.0, "I", 3)
        )
        kept = merge_unique_changes(changes, ["id"])
        assert (kept.columns, sorted((row.id, row.v, row.m["l"]) for row in kept.collect())) == (
            changes.columns,
            [(1, 3.0, 2), (2, 2.0, 2)],
        )

    def it_leaves_identifiers_without_a_value_to_those_who_refuse_them(self, spark):
        changes = changes_of(spark, (None, 1.0, "I", 0), (None, 2.0, "I", 0))
        assert merge_unique_changes(changes, ["id"]).count() == 1

    def it_sorts_once_and_moves_nothing(self, spark):
        kept = merge_unique_changes(changes_of(spark, (1, 1.0, "I", 0)), ["id"])
        text = kept._jdf.queryExecution().executedPlan().toString()
        text = text.split("Exchange hashpartitioning(id")[0]
        assert (text.count("Sort ["), text.count("Exchange")) == (1, 0), text
