"""What a step did to an identifier, from the number of its rows and their hashes."""

from __future__ import annotations

from icecdc_core.changes.narrow_rows import (
    DECIDING_STEP,
    DELETED,
    IS_DELETED,
    IS_DUPLICATE,
    IS_UPSERTED,
    KIND,
    ROWS,
    UPSERTED,
    drop_narrow_carryovers,
    merge_narrow_updates,
    narrow_rows,
)
from icecdc_core.shuffle import shuffle_by_identifiers

SCHEMA = "id string, name string, _change_type string, _change_ordinal int, _commit_snapshot_id long"


def kinds(spark, groups, with_step):
    """What changed, by identifier and step: kind, whether there are two rows, and how many rows were compared.

    A group is a step with its rows: ``-a`` is a DELETE row with the name a, ``+b`` an INSERT row with the name b.
    """
    rows = [
        (identity, row[1:], "INSERT" if row[0] == "+" else "DELETE", step, 100 + step)
        for identity, steps in groups.items()
        for step, text in enumerate(steps)
        for row in text.split()
    ]
    narrow = narrow_rows(spark.createDataFrame(rows, SCHEMA), ["id"], "fast", with_step)
    found = drop_narrow_carryovers(shuffle_by_identifiers(narrow, ["id"]), ["id"], with_step).collect()
    return {
        (row["id"], *([row["_change_ordinal"]] if with_step else [])): (row[KIND], row[IS_DUPLICATE], row[ROWS])
        for row in found
    }


class DescribeDropNarrowCarryovers:
    def it_shows_by_two_numbers_what_a_step_did(self, spark):
        groups = {
            "an insert": ["+a"],
            "a delete": ["-a"],
            "an update": ["-a +b"],
            "a carryover": ["-a +a"],
            "two inserts": ["+a +b"],
            "two deletes": ["-a -b"],
            "a carryover and an insert": ["-a +a +b"],
        }
        actual = kinds(spark, groups, with_step=False)
        assert actual == {
            ("an insert",): (UPSERTED, False, 1),
            ("a delete",): (DELETED, False, 1),
            ("an update",): (UPSERTED, False, 2),
            ("two inserts",): (DELETED, True, 2),
            ("two deletes",): (DELETED, True, 2),
            ("a carryover and an insert",): (DELETED, True, 3),
        }

    def it_notices_a_second_row_by_the_step_before(self, spark):
        groups = {
            "comes and goes": ["+a", "-a"],
            "goes and comes": ["-a", "+b"],
            "stays": ["+a", "-a +a", "-a +b"],
            "is inserted twice": ["+a", "+b"],
            "is deleted twice": ["-a", "-b"],
        }
        actual = kinds(spark, groups, with_step=True)
        assert {key: value[:2] for key, value in actual.items()} == {
            ("comes and goes", 0): (UPSERTED, False),
            ("comes and goes", 1): (DELETED, False),
            ("goes and comes", 0): (DELETED, False),
            ("goes and comes", 1): (UPSERTED, False),
            ("stays", 0): (UPSERTED, False),
            ("stays", 2): (UPSERTED, False),
            ("is inserted twice", 0): (UPSERTED, False),
            ("is inserted twice", 1): (UPSERTED, True),
            ("is deleted twice", 0): (DELETED, False),
            ("is deleted twice", 1): (DELETED, True),
        }


STEPS = f"id string, _change_ordinal int, {KIND} int, {IS_DUPLICATE} boolean, {ROWS} long"


def decisions(merged):
    """What is left to do for each identifier: upsert, delete and the step that decides, duplicate, rows compared."""
    found = merged.selectExpr("id", IS_UPSERTED, IS_DELETED, DECIDING_STEP, IS_DUPLICATE, ROWS).collect()
    return {row[0]: tuple(row)[1:] for row in found}


class DescribeMergeNarrowUpdates:
    def it_lets_the_last_step_decide(self, spark):
        rows = [
            ("updated", 0, UPSERTED, False, 2),
            ("updated", 2, UPSERTED, False, 2),
            ("goes", 0, UPSERTED, False, 1),
            ("goes", 1, DELETED, False, 1),
            ("comes back", 0, DELETED, False, 1),
            ("comes back", 3, UPSERTED, False, 1),
            ("twice", 0, UPSERTED, True, 3),
            ("twice", 1, DELETED, False, 1),
        ]
        assert decisions(merge_narrow_updates(spark.createDataFrame(rows, STEPS), ["id"], None)) == {
            "updated": (True, False, 2, False, 4),
            "goes": (False, True, 1, False, 2),
            "comes back": (True, False, 3, False, 2),
            "twice": (False, False, 1, True, 4),
        }

    def it_takes_the_only_step_as_it_is(self, spark):
        rows = [("new", None, UPSERTED, False, 1), ("gone", None, DELETED, False, 1), ("twice", None, DELETED, True, 2)]
        steps = spark.createDataFrame(rows, STEPS).drop("_change_ordinal")
        assert decisions(merge_narrow_updates(steps, ["id"], 5)) == {
            "new": (True, False, 5, False, 1),
            "gone": (False, True, 5, False, 1),
            "twice": (False, False, 5, True, 2),
        }
