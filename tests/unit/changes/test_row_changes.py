"""Rows that two states do not share are found without comparing values; a row that moves is deleted where it was."""

import pytest

from icecdc_core.changes import row_lineage
from icecdc_core.changes.places import at_each_place, look_up_old_places, with_old_places
from icecdc_core.changes.row_changes import changed_by_deletes
from icecdc_core.changes.row_lineage import changed_by_lineage, count_unchanged, is_old, removed_rows, unchanged_row_ids
from icecdc_core.shuffle import shuffle_by_identifiers
from icecdc_core.updates import merge_updates

SCHEMA = "name string, _row_id long, _last_updated_sequence_number long"
BOTH = 5
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


GONE, NEW = ["also updated", "deleted", "updated"], ["also new value", "inserted", "new value"]


@pytest.fixture(params=[(0, 64), (10**12, 64), (10**12, 10**12)], ids=["broadcast", "counted", "shuffled"])
def row_count(request, monkeypatch):
    count, bitmap_bytes = request.param
    monkeypatch.setattr(row_lineage, "BITMAP_BYTES", bitmap_bytes)
    return count


class DescribeChangedByLineage:
    def it_gives_the_rows_that_only_one_state_has(self, older, newer, row_count):
        removed, (added,) = changed_by_lineage(older, newer, None, BOTH, row_count)
        assert (removed.columns, names(removed), names(added)) == (older.columns, GONE, NEW)

    def it_finds_rows_that_came_back_in_files_of_both_states(self, spark, older, newer, row_count):
        in_both = spark.createDataFrame([("same", 1, 1), ("back", 2, 1)], SCHEMA)
        older = older.unionAll(spark.createDataFrame([("same", 1, 1)], SCHEMA))
        removed, (_, back) = changed_by_lineage(older, newer, in_both, BOTH, row_count)
        assert (names(removed), names(back)) == (GONE, ["back"])


class DescribeRowIds:
    def it_finds_removed_rows_by_the_ids_of_the_newer_state_of_their_step(self, spark, older, newer, row_count):
        other = spark.createDataFrame([("of another step", 66, 1)], SCHEMA)
        unchanged = unchanged_row_ids({0: (newer, BOTH), 1: (other, BOTH)})
        removed = removed_rows(older, unchanged, 0, BOTH, row_count)
        written = newer.where(f"NOT ({is_old(BOTH)})")
        assert (names(removed), count_unchanged(unchanged), names(written)) == (GONE, 3, NEW)

    def it_finds_no_row_unchanged_if_two_have_one_id(self, spark, older, newer):
        twin = spark.createDataFrame([("a twin", 63, 1)], SCHEMA)
        assert count_unchanged(unchanged_row_ids({0: (newer.unionAll(twin), BOTH)})) is None
        for sides in ((older.unionAll(twin), newer), (older, newer.unionAll(twin))):
            removed, (added,) = changed_by_lineage(*sides, None, BOTH, 0)
            cancelled = [each.count(63) for each in ([row._row_id for row in r.collect()] for r in (removed, added))]
            assert sorted(cancelled) == [1, 2]

    def it_shows_by_their_number_that_a_row_came_back(self, spark, older, newer):
        unchanged = unchanged_row_ids({0: (newer.unionAll(spark.createDataFrame([("back", 2, 1)], SCHEMA)), BOTH)})
        removed = removed_rows(older, unchanged, 0, BOTH, 0)
        assert removed.count() == 3 != len(OLDER) - count_unchanged(unchanged)
        assert count_unchanged(unchanged_row_ids({0: (spark.createDataFrame([], SCHEMA), BOTH)})) == 0


def it_gives_the_rows_that_are_deleted_in_one_state_only(spark, row_count):
    schema = "name string, _file string, _pos long, _deleted boolean"
    older = [("live", "f", 0, False), ("deleted", "f", 1, False), ("back", "f", 2, True), ("gone", "f", 3, True)]
    newer = [("live", "f", 0, False), ("deleted", "f", 1, True), ("back", "f", 2, False), ("gone", "f", 3, True)]
    # The same positions of another file are other rows.
    older.append(("other", "g", 1, True))
    newer.append(("other", "g", 1, True))
    states = (spark.createDataFrame(rows, schema) for rows in (older, newer))
    removed, restored = changed_by_deletes(*states, row_count)
    assert (names(removed), names(restored)) == (["deleted"], ["back"])


CHANGES = "id int, v string, _change_type string, _change_ordinal int, _commit_snapshot_id long, _icecdc_place string"
# By identifier: what happens in each step, as the type and the place of its changes.
LIVES = {
    1: [("D", "a"), ("I", "b")], 2: [("D", "a"), ("I", "a")], 3: [("D", "a")], 4: [("I", "a")],
    5: [("D", "a"), ("I", "b"), ("D", "b"), ("I", "c")], 6: [("D", "a"), ("I", "b"), ("D", "b"), ("I", "a")],
    7: [("D", "a"), ("I", "b"), ("D", "b")], 8: [("I", "b"), ("D", "b")], 9: [("I", None), ("D", None), ("I", "b")],
}  # fmt: skip
EXPECTED = {
    1: ["-a", "b"], 2: ["a"], 3: ["-a"], 4: ["a"], 5: ["-a", "-b", "c"], 6: ["-b", "a"], 7: ["-a", "-b"], 8: ["-b"],
    9: ["b"],
}  # fmt: skip


def changes_of(lives):
    for key, life in lives.items():
        step = 0
        for n, (side, place) in enumerate(life):
            step += int(n > 0 and side == "D")
            yield key, "v", {"D": "DELETE", "I": "INSERT"}[side], step, 1, place


def shown(rows):
    found = {}
    for row in rows.collect():
        sign = "" if row["_change_type"] == "INSERT" else "-"
        found.setdefault(row["id"], []).append(f"{sign}{row['_icecdc_place']}")
    return {key: [*sorted(places[:-1]), places[-1]] for key, places in sorted(found.items())}


class DescribeAMove:
    def it_deletes_at_the_places_of_all_steps_and_inserts_last(self, spark):
        changes = spark.createDataFrame(list(changes_of(LIVES)), CHANGES)
        merged = changes.transform(shuffle_by_identifiers, ["id"]).transform(with_old_places, ["id"])
        assert shown(merged.transform(merge_updates, ["id"]).transform(at_each_place)) == EXPECTED
        # By identifiers alone.
        merged = changes.transform(merge_updates, ["id"])
        deleted = changes.where("_change_type = 'DELETE'")
        found = look_up_old_places(merged, [deleted], changes.select("id").distinct(), ["id"])
        assert shown(at_each_place(found)) == EXPECTED
