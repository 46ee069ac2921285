"""What a step did to an identifier, from the number of its rows and their hashes."""

from __future__ import annotations

from icecdc_core.changes.narrow_rows import DELETED, IS_DUPLICATE, KIND, ROWS, UPSERTED, changed_steps, narrow_rows

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
    found = changed_steps(narrow, ["id"], with_step).collect()
    return {
        (row["id"], *([row["_change_ordinal"]] if with_step else [])): (row[KIND], row[IS_DUPLICATE], row[ROWS])
        for row in found
    }


class DescribeChangedSteps:
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
