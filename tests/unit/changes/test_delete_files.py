"""Delete files show which rows two states of a table do not share, without comparing values."""

import pytest

from icecdc_core.changes.row_changes import changed_by_deletes

FEW, MANY = 0, 10**12


def names(rows):
    return sorted(row.name for row in rows.collect())


class DescribeChangedByDeletes:
    @pytest.mark.parametrize("delete_count", [FEW, MANY], ids=["broadcast", "shuffled"])
    def it_gives_the_rows_that_are_deleted_in_one_state_only(self, spark, delete_count):
        schema = "name string, _file string, _pos long, _deleted boolean"
        older = [("live", "f", 0, False), ("deleted", "f", 1, False), ("back", "f", 2, True), ("gone", "f", 3, True)]
        newer = [("live", "f", 0, False), ("deleted", "f", 1, True), ("back", "f", 2, False), ("gone", "f", 3, True)]
        # The same positions of another file are other rows.
        older.append(("other", "g", 1, True))
        newer.append(("other", "g", 1, True))
        removed, restored = changed_by_deletes(
            spark.createDataFrame(older, schema), spark.createDataFrame(newer, schema), delete_count
        )
        assert (names(removed), names(restored)) == (["deleted"], ["back"])
