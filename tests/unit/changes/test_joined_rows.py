"""Joining both sides finds what narrow rows find, and nothing where an identifier has two rows or is null."""

import random
from collections import Counter

import pytest
from hypothesis import example, given, strategies as st

from icecdc_core.changes.joined_rows import find_joined_changes, met_once
from icecdc_core.changes.narrow_rows import fetch_changed_rows, find_changed_identifiers
from icecdc_core.changes.steps import Step
from icecdc_core.columns import IS_DELETE, IS_DUPLICATE, IS_INSERT, RESERVED

DRAW = random.Random(7)
MARKS = [DRAW.getrandbits(63) for _ in range(6)]


def summed(identifiers):
    marks = [MARKS[n] for n in identifiers]
    return {"low": sum(mark & 2147483647 for mark in marks), "high": sum(mark >> 33 for mark in marks)}


def proves_unique(older, newer):
    """The rule, on identifiers alone: the join and the look-ups of inserted and of deleted rows."""
    pairs = [each for each in newer for _ in range(older.count(each))]
    inserted, deleted = ([n for n in one if n not in other] for one, other in ((newer, older), (older, newer)))
    if len(pairs) + len(inserted) != len(newer) or any(len({*each}) < len(each) for each in (inserted, deleted)):
        return False
    rows_and_sums = ({"rows": len(each), **summed(each)} for each in (older, pairs, deleted))
    of_older, of_joined, of_deleted = rows_and_sums
    return met_once(of_older, {**of_joined, "met": len(pairs)}, of_deleted)


IDENTIFIERS = st.lists(st.integers(0, 5), max_size=7)


@given(older=IDENTIFIERS, newer=IDENTIFIERS)
@example(older=[1, 1], newer=[1, 1])
@example(older=[1, 2], newer=[1, 1])
@example(older=[1, 2, 2], newer=[1, 1, 1])
@example(older=[1, 1, 2, 3], newer=[1, 2, 2])
def it_proves_that_identifiers_are_unique_just_where_they_are(older, newer):
    assert proves_unique(older, newer) is all(times == 1 for side in (older, newer) for times in Counter(side).values())


NAN = float("nan")
ONE = [("a", 1, 1.0), ("b", 2, 0.0), ("c", 3, NAN), (None, 9, None)]
CASES = {
    "two older rows": ([*ONE[:3], ONE[0]], ONE[:3]),
    "two older rows, both deleted": ([*ONE[:3], ONE[0]], ONE[1:3]),
    "two newer rows": (ONE[:2], [*ONE[:2], ("a", 1, 5.0)]),
    "two newer rows, inserted": (ONE[:1], [*ONE[:2], ("b", 2, 5.0)]),
    "two newer rows hide a delete": (ONE[:2], [ONE[0], ONE[0]]),
    "two rows on both sides": ([ONE[0], ONE[0]], [ONE[0], ONE[0]]),
    "a null is updated": (ONE, [*ONE[:3], (None, 9, 1.0)]),
    "a null is deleted": (ONE, ONE[:3]),
}


BOTH = ["region", "id"]


def changes_of(spark, older, newer, ids=BOTH):
    schema = f"region string, id {'long' if ids == ['id'] else 'int'}, value double, _change_type string"
    rows = [(*row, "DELETE") for row in older] + [(*row, "INSERT") for row in newer]
    changes = spark.createDataFrame(rows, schema)
    nested = "named_struct('v', value, 'w', named_struct('r', region)) AS s", "map('k', value) AS m"
    change = "3 AS _change_ordinal", "2L AS _commit_snapshot_id"
    return changes.selectExpr("*", *nested, "array(region) AS _key_0", *change)


def joined_changes(changes, ids, older, newer, row_hash="fast"):
    sides = [changes.where(side).drop(*RESERVED) for side in (IS_DELETE, IS_INSERT)]
    return find_joined_changes(*sides, ids, Step(3, 1, 2, (2,)), len(older), len(newer), row_hash)


def of_all(cases):
    """Both sides of all cases together; each has identifiers of its own."""
    return [
        [
            (region and f"{region} {case}", number and number + 100 * n, value)
            for n, (case, sides) in enumerate(cases.items())
            for region, number, value in sides[at]
        ]
        for at in (0, 1)
    ]


def require_same(spark, older, newer, ids, row_hash):
    changes = changes_of(spark, older, newer, ids)
    found = find_changed_identifiers(changes, ids, 3, len(older) + len(newer), row_hash)
    joined, fetched = joined_changes(changes, ids, older, newer, row_hash), fetch_changed_rows(changes, ids, found)
    narrow, actual = (
        sorted(repr([row[name] for name in changes.columns]) for row in rows.collect())
        for rows in (fetched, joined.rows)
    )
    counts = joined.upserts, joined.deletes, joined.carryovers_removed
    assert (actual, counts) == (narrow, (found.upserts, found.deletes, found.carryovers))
    found.identifiers.unpersist()
    joined.close()


def it_finds_nothing_where_an_identifier_has_two_rows_or_is_null_as_narrow_rows_know(spark):
    for case, sides in CASES.items():
        assert joined_changes(changes_of(spark, *sides), BOTH, *sides) is None, case
    narrow = find_changed_identifiers(changes_of(spark, *of_all(CASES)), BOTH, 3)
    duplicates = narrow.identifiers.where(IS_DUPLICATE).collect()
    assert {row.region.partition(" ")[2] for row in duplicates if row.region} == {*CASES} - {
        "a null is updated",
        "a null is deleted",
    }
    assert narrow.nulls == 2
    narrow.identifiers.unpersist()


@pytest.mark.parametrize("seed", range(4))
def it_finds_in_random_rows_what_narrow_rows_find(spark, seed):
    draw = random.Random(seed)
    ids = (["id"], BOTH, ["region"], BOTH)[seed]

    def row(number):
        # Of an identifier of two columns, either may be that of another row.
        region, last = (f"r{number % 10}", number // 10) if ids == BOTH else (f"r{number}", number)
        return (region, last, draw.choice([0.0, -0.0, NAN, None, 1.5]))

    older = {n: row(n) for n in draw.sample(range(40), 30)}
    newer = {n: row(n) if draw.random() < 0.3 else older.get(n, row(n)) for n in draw.sample(range(40), 28)}
    require_same(spark, [*older.values()], [*newer.values()], ids, ("fast", "keyed")[seed // 2])
