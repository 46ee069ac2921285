"""Rows that delete files remove in one of two states alone."""

import pytest

from icecdc_core.changes.row_changes import changed_by_deletes


@pytest.mark.parametrize("delete_count", [0, 10**12], ids=["broadcast", "shuffled"])
def it_gives_the_rows_that_are_deleted_in_one_state_only(spark, delete_count):
    schema = "name string, _file string, _pos long, _deleted boolean"
    older = [("live", "f", 0, False), ("deleted", "f", 1, False), ("back", "f", 2, True), ("gone", "f", 3, True)]
    newer = [("live", "f", 0, False), ("deleted", "f", 1, True), ("back", "f", 2, False), ("gone", "f", 3, True)]
    # The same positions of another file are other rows.
    states = (spark.createDataFrame([*rows, ("other", "g", 1, True)], schema) for rows in (older, newer))
    removed, restored = changed_by_deletes(*states, delete_count)
    assert ([row.name for row in removed.collect()], [row.name for row in restored.collect()]) == (
        ["deleted"],
        ["back"],
    )
