"""Row lineage and delete files show which rows two states do not share, without comparing values."""

import pytest

from icecdc_core.changes.row_changes import changed_by_deletes
from icecdc_core.changes.row_lineage import (
    changed_by_lineage,
    count_unchanged,
    removed_rows,
    unchanged_row_ids,
    written_rows,
)

SCHEMA = "name string, _row_id long, _last_updated_sequence_number long"
BOTH = 5
FEW, MANY = 0, 10**12
# Row ids around the border of two bitmaps; rows up to commit 5 are in the snapshot that both states descend from.
OLDER = [("same", 63, 1), ("same", 64, 5), ("updated", 65, 2), ("deleted", 66, 3), ("also updated", 67, 6)]
NEWER = [("same", 63, 1), ("same", 64, 5), ("new value", 65, 7), ("also new value", 67, 7), ("inserted", 900, 7)]


@pytest.fixture(scope="module")
def older(spark):
    return spark.createDataFrame(OLDER, SCHEMA)


@pytest.fixture(scope="module")
def newer(spark):
    return spark.createDataFrame(NEWER, SCHEMA)


def names(rows):
    return sorted(row.name for row in rows.collect())


class DescribeChangedByLineage:
    @pytest.mark.parametrize("row_count", [FEW, MANY], ids=["broadcast", "shuffled"])
    def it_gives_the_rows_that_only_one_state_has(self, older, newer, row_count):
        removed, (added,) = changed_by_lineage(older, newer, None, BOTH, row_count)
        assert removed.columns == older.columns
        assert (names(removed), names(added)) == (
            ["also updated", "deleted", "updated"],
            ["also new value", "inserted", "new value"],
        )

    @pytest.mark.parametrize("row_count", [FEW, MANY], ids=["broadcast", "shuffled"])
    def it_finds_rows_that_came_back_in_files_of_both_states(self, spark, older, newer, row_count):
        in_both = spark.createDataFrame([("same", 1, 1), ("back", 2, 1)], SCHEMA)
        older = older.unionAll(spark.createDataFrame([("same", 1, 1)], SCHEMA))
        removed, (_, back) = changed_by_lineage(older, newer, in_both, BOTH, row_count)
        assert (names(removed), names(back)) == (["also updated", "deleted", "updated"], ["back"])


class DescribeRowIds:
    @pytest.mark.parametrize("row_count", [FEW, MANY], ids=["broadcast", "shuffled"])
    def it_finds_removed_rows_by_the_ids_of_the_newer_state_of_their_step(self, spark, older, newer, row_count):
        other = spark.createDataFrame([("of another step", 66, 1)], SCHEMA)
        unchanged = unchanged_row_ids({0: (newer, BOTH), 1: (other, BOTH)})
        removed = removed_rows(older, unchanged, 0, BOTH, row_count)
        assert (names(removed), count_unchanged(unchanged)) == (["also updated", "deleted", "updated"], 3)
        assert names(written_rows(newer, BOTH)) == ["also new value", "inserted", "new value"]

    def it_shows_by_their_number_that_a_row_came_back(self, spark, older, newer):
        unchanged = unchanged_row_ids({0: (newer.unionAll(spark.createDataFrame([("back", 2, 1)], SCHEMA)), BOTH)})
        removed = removed_rows(older, unchanged, 0, BOTH, FEW)
        assert removed.count() == 3 != len(OLDER) - count_unchanged(unchanged)

    def it_counts_none_of_none(self, spark):
        assert count_unchanged(unchanged_row_ids({0: (spark.createDataFrame([], SCHEMA), BOTH)})) == 0


@pytest.mark.parametrize("delete_count", [FEW, MANY], ids=["broadcast", "shuffled"])
def it_gives_the_rows_that_are_deleted_in_one_state_only(spark, delete_count):
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
