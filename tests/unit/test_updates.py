"""What is left to do for each identifier: the last step decides, INSERT beats DELETE, duplicates are found."""

from collections import Counter
from math import isnan

import pytest
from chispa import assert_df_equality
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from icecdc_core.carryover import remove_carryovers
from icecdc_core.errors import ColumnNotFoundError, ConfigError
from icecdc_core.shuffle import shuffle_by_identifiers
from icecdc_core.updates import merge_updates

CHANGE_COLUMNS = "_change_type string, _change_ordinal int, _commit_snapshot_id long"
NAN = float("nan")


def insert(step, snapshot=7):
    return ("INSERT", step, snapshot)


def delete(step, snapshot=7):
    return ("DELETE", step, snapshot)


class DescribeMergeUpdates:
    def it_lets_the_last_step_decide_and_the_insert_of_a_step(self, spark):
        # name of the case; its changes, rows of one identifier; the one that is left
        cases = [
            ("inserted", [("JFK", 1, *insert(0))], ("JFK", 1, *insert(0))),
            ("deleted", [("JFK", 1, *delete(0))], ("JFK", 1, *delete(0))),
            ("updated", [("JFK", 1, *delete(0)), ("JFK", 2, *insert(0))], ("JFK", 2, *insert(0))),
            ("partition changed", [("JFK", 1, *delete(0)), ("LGA", 1, *insert(0))], ("LGA", 1, *insert(0))),
            ("to null", [("JFK", 1, *delete(0)), (None, None, *insert(0))], (None, None, *insert(0))),
            ("insert, then delete", [("JFK", 1, *insert(0)), ("JFK", 1, *delete(1))], ("JFK", 1, *delete(1))),
            ("delete, then insert", [("JFK", 1, *delete(0)), ("JFK", 1, *insert(1))], ("JFK", 1, *insert(1))),
            (
                "insert, update, delete",
                [("JFK", 1, *insert(0)), ("JFK", 1, *delete(1)), ("JFK", 2, *insert(1)), ("JFK", 2, *delete(2))],
                ("JFK", 2, *delete(2)),
            ),
            (
                "back to what it was",
                [("JFK", 1, *delete(0)), ("JFK", 2, *insert(0)), ("JFK", 2, *delete(10)), ("JFK", 1, *insert(10))],
                ("JFK", 1, *insert(10)),
            ),
            ("equal inserts", [("JFK", 1, *insert(0))] * 3, ("JFK", 1, *insert(0))),
            ("equal inserts with nulls", [(None, None, *insert(0))] * 2, (None, None, *insert(0))),
            ("inserts of two steps differ", [("JFK", 1, *insert(0)), ("JFK", 2, *insert(1))], ("JFK", 2, *insert(1))),
            ("deletes differ", [("JFK", 1, *delete(0)), ("LGA", 2, *delete(0))], ("LGA", 2, *delete(0))),
            ("snapshot of the step", [("JFK", 1, *insert(0, 9)), ("JFK", 1, *delete(1, 3))], ("JFK", 1, *delete(1, 3))),
        ]
        schema = f"case string, id int, origin string, delay int, {CHANGE_COLUMNS}"
        # A null identifier is one like any other, and part of a composite one.
        rows = [(case, id, *change) for case, changes, _ in cases for change in changes for id in (1, None)]
        source = spark.createDataFrame(rows[::-1], schema)
        actual = merge_updates(source, ["id", "case"])
        expected = spark.createDataFrame([(case, id, *left) for case, _, left in cases for id in (1, None)], schema)
        assert_df_equality(actual, expected, ignore_row_order=True)

    def it_collapses_equal_inserts_whatever_their_types_and_commit_snapshot_ids(self, spark):
        schema = f"id int, d double, b binary, r struct<x:double>, e array<struct<k:string,v:int>>, {CHANGE_COLUMNS}"
        rows = [
            (1, NAN, b"\xff", (NAN,), [("a", 1), ("b", 2)], *insert(0, 7)),
            (1, NAN, b"\xff", (NAN,), [("b", 2), ("a", 1)], *insert(0, 8)),
            (2, -0.0, None, None, None, *insert(0)),
            (2, -0.0, None, None, None, *insert(0)),
        ]
        source = spark.createDataFrame(rows, schema).withColumn("e", F.map_from_entries("e"))
        merged = merge_updates(source, ["id"])
        actual = merged.select("id", F.col("d").cast("string").alias("d"), "b", F.size("e").alias("e"), "_change_type")
        expected = spark.createDataFrame(
            [(1, "NaN", b"\xff", 2, "INSERT"), (2, "-0.0", None, None, "INSERT")], actual.schema
        )
        assert_df_equality(actual, expected, ignore_row_order=True, ignore_nullable=True)

    def it_takes_identifiers_as_they_are_written(self, spark):
        # Spark groups 0.0 with -0.0 and, under this collation, a with A; their documents have different ids.
        schema = f"number double, name string collate UTF8_LCASE, v int, {CHANGE_COLUMNS}"
        different = [(0.0, "a"), (-0.0, "a"), (0.0, "A"), (NAN, "a"), (None, "a")]
        updates = [(*key, value, *change) for key in different for value, change in ((1, delete(0)), (2, insert(0)))]
        merged = spark.createDataFrame(updates, schema).transform(merge_updates, ["number", "name"])
        actual = merged.select(F.concat_ws("/", F.col("number").cast("string"), F.col("name"), "v").alias("merged"))
        assert sorted(row[0] for row in actual.collect()) == ["-0.0/a/2", "0.0/A/2", "0.0/a/2", "NaN/a/2", "a/2"]

    def it_keeps_columns_whatever_their_names(self, spark):
        names = ["a.b", "a`b", 'a"b', "_row", "_RANK", "_ordinal_before", "UPPER", "straße ✈", "v0"]
        columns = ", ".join(f"`{name.replace('`', '``')}` int" for name in names)
        values = range(len(names))
        source = spark.createDataFrame([(*values, *delete(0)), (*values, *insert(0))], f"{columns}, {CHANGE_COLUMNS}")
        actual = merge_updates(source, ["a.b", "a`b", 'a"b', "upper", "straße ✈"])
        expected = spark.createDataFrame([(*values, *insert(0))], source.schema)
        assert_df_equality(actual, expected)

    @pytest.mark.parametrize("columns", ["_change_type string", "_change_ordinal int"])
    def it_refuses_a_frame_without_change_columns(self, spark, columns):
        with pytest.raises(ColumnNotFoundError, match="_change_"):
            merge_updates(spark.createDataFrame([], f"id int, {columns}"), ["id"])

    def it_refuses_an_unknown_policy(self, spark):
        with pytest.raises(ConfigError, match="first"):
            merge_updates(spark.createDataFrame([], f"id int, {CHANGE_COLUMNS}"), ["id"], on_duplicate="first")


DUPLICATES = {
    "two in the last step": [(1.0, *insert(0)), (2.0, *insert(0))],
    "two in a step before": [(1.0, *insert(0)), (2.0, *insert(0)), (3.0, *insert(1))],
    "two that are deleted later": [(1.0, *insert(0)), (2.0, *insert(0)), (1.0, *delete(1)), (2.0, *delete(1))],
    "three": [(1.0, *insert(0)), (2.0, *insert(0)), (3.0, *insert(0))],
    "two equal and one other": [(1.0, *insert(0)), (1.0, *insert(0)), (None, *insert(0))],
    "one and two equal others": [(2.0, *insert(0)), (1.0, *insert(0)), (1.0, *insert(0))],
    "after an update": [(0.0, *delete(0)), (1.0, *insert(0)), (2.0, *insert(0))],
    "minus zero": [(0.0, *insert(0)), (-0.0, *insert(0))],
}


class DescribeDuplicateIdentifiers:
    SCHEMA = f"id int, `o.k` string, v double, {CHANGE_COLUMNS}"

    @pytest.mark.parametrize("changes", DUPLICATES.values(), ids=DUPLICATES.keys())
    def it_fails_lazily_and_shows_the_identifier(self, spark, changes):
        source = spark.createDataFrame([(4711, None, *change) for change in changes], self.SCHEMA)
        merged = merge_updates(source, ["id", "o.k"])
        with pytest.raises(PySparkException, match=r'duplicate identifier.*\{"id":"4711","o\.k":null\}'):
            merged.collect()

    @pytest.mark.parametrize(
        "action",
        [lambda merged: merged.count(), lambda merged: merged.select("_change_type").collect()],
        ids=["count", "one column"],
    )
    def it_fails_even_if_the_values_are_not_read(self, spark, action):
        rows = [(1, "a", *change) for change in DUPLICATES["two in a step before"]]
        merged = merge_updates(spark.createDataFrame(rows, self.SCHEMA), ["id", "o.k"])
        with pytest.raises(PySparkException, match="duplicate identifier"):
            action(merged)

    def it_takes_the_greatest_of_the_last_step_on_request_however_rows_lie(self, spark):
        # Null is the least, NaN the greatest, and 0.0 is less than -0.0 only because something has to be.
        greatest = {"one and two equal others": 2.0, "two equal and one other": 1.0, "minus zero": -0.0, "three": 3.0}
        rows = [(1, case, *change) for case in greatest for change in DUPLICATES[case]]
        rows += [(1, "snapshots", 1.0, *insert(0, 7)), (1, "snapshots", 1.0, *insert(0, 8))]
        lies = {"one file": rows, "another order": rows[::-1]}
        frames = [spark.createDataFrame(lies["one file"], self.SCHEMA).coalesce(1)]
        frames += [spark.createDataFrame(lies["another order"], self.SCHEMA).repartition(3)]
        merged = [
            merge_updates(frame, ["id", "o.k"], on_duplicate="last").withColumn("lie", F.lit(number))
            for number, frame in enumerate(frames)
        ]
        actual = merged[0].unionAll(merged[1]).withColumn("v", F.col("v").cast("string"))
        expected = spark.createDataFrame(
            [(1, case, str(value), *insert(0), lie) for case, value in greatest.items() for lie in (0, 1)]
            + [(1, "snapshots", "1.0", *insert(0, 8), lie) for lie in (0, 1)],
            actual.schema,
        )
        assert_df_equality(
            actual.withColumnRenamed("o.k", "k"),
            expected.withColumnRenamed("o.k", "k"),
            ignore_row_order=True,
            ignore_nullable=True,
        )


VALUES = st.sampled_from([None, -0.0, 0.0, 1.5, NAN])
CHANGES = st.tuples(
    st.sampled_from([None, 1, 2]),  # id
    VALUES,
    st.sampled_from([None, b"", b"\xff"]),
    st.sampled_from(["INSERT", "DELETE"]),
    st.integers(0, 2),  # step
)


def model(changes):
    """The three transforms in plain Python: the remaining change of each identifier, and whether any is a duplicate."""
    surplus = Counter()
    for id, value, blob, kind, step in changes:
        surplus[step, id, repr(value), blob] += 1 if kind == "INSERT" else -1
    remaining = {}
    for (step, id, value, blob), times in surplus.items():
        if times:
            remaining.setdefault((id, step, times > 0), set()).add((value, blob))
    last = {}
    for id, step, inserted in remaining:
        last[id] = max(last.get(id, (step, inserted)), (step, inserted))
    left = {id: (*max(remaining[(id, *key)], key=_rank), *key) for id, key in last.items()}
    return left, any(inserted and len(rows) > 1 for (_, _, inserted), rows in remaining.items())


def _rank(row):
    """Spark's order: null first, NaN last; of the two zeros the negative one later, as the transform has it."""
    value, blob = None if row[0] == "None" else float(row[0]), row[1]
    number = (0,) if value is None else (2,) if isnan(value) else (1, value, row[0] == "-0.0")
    return number, (blob is not None, blob or b"")


def _left(frame):
    left = {}
    for row in frame.collect():
        change = (
            repr(row["value"]),
            row["blob"] and bytes(row["blob"]),
            row["_change_ordinal"],
            row["_change_type"] == "INSERT",
        )
        assert left.setdefault(row["case"], {}).setdefault(row["id"], change) is change
    return left


class DescribeAnyChanges:
    # Many cases a job: a Spark job for each of them would take minutes.
    @settings(
        max_examples=3,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        database=None,
        print_blob=True,
    )
    @given(cases=st.lists(st.lists(CHANGES, min_size=1, max_size=8), min_size=100, max_size=100))
    def it_leaves_of_any_changes_what_the_model_leaves(self, spark, cases):
        rows = [
            (number, id, value, blob, kind, step, 100 + step)
            for number, changes in enumerate(cases)
            for id, value, blob, kind, step in changes
        ]
        source = spark.createDataFrame(rows, f"case int, id int, value double, blob binary, {CHANGE_COLUMNS}")
        kept = source.transform(shuffle_by_identifiers, ["case", "id"]).transform(remove_carryovers)
        expected = {number: model(changes) for number, changes in enumerate(cases)}
        assert _left(merge_updates(kept, ["case", "id"], on_duplicate="last")) == {
            number: left for number, (left, _) in expected.items() if left
        }
        unique = [number for number, (_, duplicate) in expected.items() if not duplicate]
        assert _left(merge_updates(kept.where(F.col("case").isin(unique)), ["case", "id"])) == {
            number: expected[number][0] for number in unique if expected[number][0]
        }
        for number in [number for number in expected if number not in unique][:1]:
            with pytest.raises(PySparkException, match="duplicate identifier"):
                merge_updates(kept.where(F.col("case") == number), ["case", "id"]).count()
