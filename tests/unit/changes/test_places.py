"""A row that moves is deleted where it was, in every step of a range, and inserted where it is."""

from icecdc_core.changes.places import at_each_place, look_up_old_places, with_old_places
from icecdc_core.shuffle import shuffle_by_identifiers
from icecdc_core.updates import merge_updates

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
