"""Changed identifiers are found by hashes, and then their rows are fetched (test_updates.py has the rule)."""

import random
from datetime import date
from functools import reduce

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, functions as F

from icecdc_core.changes.narrow_rows import find_changed_identifiers, new_key, with_row_hash
from tests.unit.test_carryover import PLAIN, SHAPED

SCHEMA = (
    "region string, id long, name string, price double, tags map<string,int>, "
    "_change_type string, _change_ordinal int, _commit_snapshot_id long"
)
IDS = ["region", "id"]
CHANGE = "_change_type string, _change_ordinal int"
SIDES = "DELETE", "INSERT"


def it_leaves_nothing_cached_of_changes_that_cannot_be_read(spark):
    spark.catalog.clearCache()
    changes = spark.createDataFrame([("a", 1, "x", 1.5, None, "INSERT", 0, 1)], SCHEMA)
    unreadable = changes.withColumn("name", F.expr("if(id = 1, raise_error('unreadable'), name)"))
    with pytest.raises(PySparkException, match="unreadable"):
        find_changed_identifiers(unreadable, IDS)
    assert spark._jsparkSession.sharedState().cacheManager().isEmpty()


def it_sees_nulls_that_change_places(spark):
    pairs = [
        ((5, None, [1, None]), (None, 5, [1, None])),
        ((5, 5, [1, None]), (5, 5, [None, 1])),
        ((5, 5, []), (5, 5, None)),
        ((None, None, None), (None, None, None)),
    ]
    rows = [(n, *side, kind, 0) for n, pair in enumerate(pairs) for side, kind in zip(pair, SIDES, strict=True)]
    changes = spark.createDataFrame(rows, f"id int, a int, b int, c array<int>, {CHANGE}")
    found = find_changed_identifiers(changes, ["id"])
    assert (found.upserts, found.carryovers) == (3, 1)
    # Nor is a part of a text taken for the next value.
    pairs = [(("1,2", "3"), ("1", "2,3")), (("a", "1:b"), ("a,1:b", None))]
    rows = [(n, *side, kind, 0) for n, pair in enumerate(pairs) for side, kind in zip(pair, SIDES, strict=True)]
    changes = spark.createDataFrame(rows, f"id int, a string, b string, {CHANGE}")
    assert find_changed_identifiers(changes, ["id"], row_hash="keyed").upserts == 2


@pytest.mark.parametrize("row_hash", ["fast", "keyed"])
def it_hashes_values_alike_just_where_they_are_the_same_whatever_the_type(spark, row_hash):
    key = new_key(row_hash)
    assert (key == "", new_key(row_hash) == key) == (row_hash == "fast", row_hash == "fast")

    pairs = [*PLAIN, *SHAPED[::3]]

    def hashed(value):
        row = spark.range(0, 1, 1, 1).selectExpr(f"{value} AS v")
        rows, text = with_row_hash(row, row.schema.fields, key)
        return rows.selectExpr(f"CAST({text} AS STRING) AS hash")

    frames = [hashed(value) for *pair, _ in pairs for value in pair]
    found = [row.hash for row in reduce(DataFrame.unionAll, frames).collect()]
    alike = [one == other for one, other in zip(found[::2], found[1::2], strict=True)]
    wrong = [pair for pair, is_alike in zip(pairs, alike, strict=True) if is_alike != pair[-1]]
    assert wrong == []


def it_hashes_nested_values_alike_just_where_they_are_the_same(spark):
    draw = random.Random(5)

    def any_of(*values):
        return draw.choice([None, *values])

    def list_of(*values):
        return any_of([any_of(*values) for _ in range(draw.randrange(3))])

    def row():
        texts, numbers, days = ("", "a", "\uffff"), (0, -113, 7), (date(1, 1, 3), date(2026, 1, 1))
        inner = any_of((list_of(*numbers), any_of("", "a")))
        return any_of((any_of(0, 1), list_of(*texts), inner)), list_of(*texts), list_of(*days), list_of([1], [None])

    schema = (
        "s struct<a: int, `b.c`: array<string>, d: struct<e: array<int>, f: string>>, t array<string>, u array<date>, "
        "v array<array<int>>"
    )
    rows = [row() for _ in range(3000)]
    for _ in range(3000):
        one, place = row(), draw.randrange(4)
        rows += [one, (*one[:place], row()[place], *one[place + 1 :])]
    frame = spark.createDataFrame(rows, schema).coalesce(1)
    hashable, text = with_row_hash(frame, frame.schema.fields)
    found = [each.hash for each in hashable.selectExpr(f"{text} AS hash").collect()]
    by_value = {repr(row): hashed for row, hashed in zip(rows, found, strict=True)}
    assert [by_value[repr(row)] for row in rows] == found
    assert len({*found}) == len(by_value) > 4000


def it_tells_moments_apart_that_have_one_local_text_when_keyed(spark):
    hour_twice = (1_761_438_600, 1_761_442_200)  # half past two, before and after the clocks are set back in Berlin
    rows = [(1, moment, change, 0) for moment, change in zip(hour_twice, SIDES, strict=True)]
    changes = spark.createDataFrame(rows, f"id int, at long, {CHANGE}").withColumn("at", F.timestamp_seconds("at"))
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        assert changes.selectExpr("count(DISTINCT cast(at AS string))").first()[0] == 1
        assert find_changed_identifiers(changes, ["id"], row_hash="keyed").upserts == 1
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
