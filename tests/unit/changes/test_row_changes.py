"""Rows that delete files remove in one of two states alone."""

from icecdc_core.changes.row_changes import changed_by_deletes


def it_gives_the_rows_that_are_deleted_in_one_state_only(spark):
    schema = "name string, _file string, _pos long, _deleted boolean"
    older = [("live", "f", 0, False), ("deleted", "f", 1, False), ("back", "f", 2, True), ("gone", "f", 3, True)]
    newer = [("live", "f", 0, False), ("deleted", "f", 1, True), ("back", "f", 2, False), ("gone", "f", 3, True)]
    # The same positions of another file are other rows.
    states = (spark.createDataFrame([*rows, ("other", "g", 1, True)], schema) for rows in (older, newer))
    found = [[row.name for row in rows.collect()] for rows in changed_by_deletes(*states, 0)]
    assert found == [["deleted"], ["back"]]
