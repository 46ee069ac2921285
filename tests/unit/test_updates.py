"""What is left to do for each identifier: the last step decides, INSERT beats DELETE, duplicates are found."""

import itertools
from collections import Counter
from math import isnan

import pytest
from chispa import assert_df_equality
from hypothesis import HealthCheck, Phase, given, settings, strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from icecdc_core.carryover import remove_carryovers
from icecdc_core.changes.narrow_rows import fetch_changed_rows, find_changed_identifiers
from icecdc_core.columns import IS_DUPLICATE
from icecdc_core.errors import ColumnNotFoundError, ConfigError
from icecdc_core.shuffle import shuffle_by_identifiers
from icecdc_core.updates import merge_updates

CHANGE_COLUMNS = "_change_type string, _change_ordinal int, _commit_snapshot_id long"
NAN = float("nan")
SIDES = {"D": "DELETE", "I": "INSERT"}


def insert(step, snapshot=7):
    return ("INSERT", step, snapshot)


def delete(step, snapshot=7):
    return ("DELETE", step, snapshot)


class DescribeMergeUpdates:
    def it_lets_the_last_step_decide_and_the_insert_of_a_step(self, spark):
        # name of the case; its changes, rows of one identifier; the one that is left
        cases = [
            ("updated", [("JFK", 1, *delete(0)), ("JFK", 2, *insert(0))], ("JFK", 2, *insert(0))),
            ("partition changed", [("JFK", 1, *delete(0)), ("LGA", 1, *insert(0))], ("LGA", 1, *insert(0))),
            ("to null", [("JFK", 1, *delete(0)), (None, None, *insert(0))], (None, None, *insert(0))),
            ("insert, update, delete", [("JFK", 1, *insert(0)), ("JFK", 1, *delete(1)), ("JFK", 2, *insert(1)),
                ("JFK", 2, *delete(2))], ("JFK", 2, *delete(2))),
            ("back to what it was", [("JFK", 1, *delete(0)), ("JFK", 2, *insert(0)), ("JFK", 2, *delete(10)),
                ("JFK", 1, *insert(10))], ("JFK", 1, *insert(10))),
            ("snapshot of the step", [("JFK", 1, *insert(0, 9)), ("JFK", 1, *delete(1, 3))], ("JFK", 1, *delete(1, 3))),
        ]  # fmt: skip
        schema = f"case string, id int, origin string, delay int, {CHANGE_COLUMNS}"
        # A null identifier is one like any other, and part of a composite one.
        rows = [(case, id, *change) for case, changes, _ in cases for change in changes for id in (1, None)]
        source = spark.createDataFrame(rows[::-1], schema)
        actual = merge_updates(source, ["id", "case"])
        expected = spark.createDataFrame([(case, id, *left) for case, _, left in cases for id in (1, None)], schema)
        assert_df_equality(actual, expected, ignore_row_order=True)

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

    def it_refuses_a_frame_without_change_columns_and_an_unknown_policy(self, spark):
        for columns in ("_change_type string", "_change_ordinal int", "other int"):
            frame = spark.createDataFrame([], f"id int, {columns}")
            for transform in (remove_carryovers, lambda changes: merge_updates(changes, ["id"])):
                with pytest.raises(ColumnNotFoundError, match="_change_"):
                    transform(frame)
        with pytest.raises(ConfigError, match="first"):
            merge_updates(spark.createDataFrame([], f"id int, {CHANGE_COLUMNS}"), ["id"], on_duplicate="first")


class DescribeDuplicateIdentifiers:
    """Equal or not, in one step or over several."""

    SCHEMA = f"id int, `o.k` string, v double, {CHANGE_COLUMNS}"

    @pytest.mark.parametrize("changes", ["I0 I0", "D0 I0 I0", "I0 I2", "D0 D1 I1"])
    def it_fails_lazily_and_shows_the_identifier(self, spark, changes):
        rows = [(4711, None, 1.0, SIDES[side], int(step), 7) for side, step in changes.split()]
        merged = merge_updates(spark.createDataFrame(rows, self.SCHEMA), ["id", "o.k"])
        # Only a column is read that the rule does not need.
        with pytest.raises(PySparkException, match=r'duplicate identifier.*\{"id":"4711","o\.k":null\}'):
            merged.select("_commit_snapshot_id").collect()

    def it_takes_the_greatest_of_the_last_step_on_request_however_rows_lie(self, spark):
        # Null is the least, NaN the greatest, and 0.0 is less than -0.0 only because something has to be.
        greatest = {"2 1 1": "2.0", "1 1 None": "1.0", "0 -0.0": "-0.0", "1 2 nan 3": "NaN"}
        values = [(case, value) for case in greatest for value in case.split()]
        rows = [(1, case, None if value == "None" else float(value), *insert(0)) for case, value in values]
        rows += [(1, "snapshots", 1.0, *insert(0, 7)), (1, "snapshots", 1.0, *insert(0, 8))]
        lies = [spark.createDataFrame(rows, self.SCHEMA).coalesce(1)]
        lies += [spark.createDataFrame(rows[::-1], self.SCHEMA).repartition(3)]
        for source in lies:
            merged = merge_updates(source, ["id", "o.k"], on_duplicate="last")
            actual = merged.select(F.col("`o.k`").alias("case"), F.col("v").cast("string"), "_commit_snapshot_id")
            expected = {(case, value, 7) for case, value in greatest.items()} | {("snapshots", "1.0", 8)}
            assert sorted(map(tuple, actual.collect())) == sorted(expected)

    def it_takes_the_greatest_nested_number(self, spark):
        rows = [(kind, value, *insert(0)) for kind in "sam" for value in (9.0, 10.0, -1.0)]
        nested = (
            "if(kind = 's', struct(v), null) s",
            "if(kind = 'a', array(v), null) a",
            "if(kind = 'm', map(1, v), null) m",
        )
        source = spark.createDataFrame(rows, f"kind string, v double, {CHANGE_COLUMNS}")
        source = source.selectExpr("kind", *nested, *source.columns[2:])
        merged = merge_updates(source, ["kind"], on_duplicate="last").selectExpr("coalesce(s.v, a[0], m[1])")
        assert [row[0] for row in merged.collect()] == [10.0] * 3


VALUES = st.sampled_from([None, -0.0, 0.0, 1.5, NAN])
BLOBS = st.sampled_from([None, b"", b"\xff"])
STATES = st.lists(st.one_of(st.none(), st.tuples(VALUES, BLOBS)), min_size=2, max_size=5)
CHANGES = st.lists(st.tuples(VALUES, BLOBS, st.sampled_from("DI"), st.integers(0, 2)), min_size=1, max_size=6)


def changes_of(states):
    """The changes of one row whose file every step rewrites: what it is after each step, None where it is not there."""
    steps = enumerate(itertools.pairwise(states))
    return [(*row, side, step) for step, pair in steps for row, side in zip(pair, "DI", strict=True) if row is not None]


def alternate(changes):
    """Whether they can be those of one row."""
    sides = [side for step, side in sorted((step, side) for *_, side, step in changes)]
    return all(one != other for one, other in itertools.pairwise(sides))


def model(changes):
    """The three transforms in plain Python: the changes that are no carryovers, and the last of them by values."""
    surplus = Counter()
    for value, blob, side, step in changes:
        surplus[step, repr(value), blob] += 1 if side == "I" else -1
    remaining = [(v, b, "I" if n > 0 else "D", s) for (s, v, b), n in surplus.items() for _ in range(abs(n))]
    last = max(((step, side) for *_, side, step in remaining), default=None)
    return remaining, max((row for row in remaining if (row[3], row[2]) == last), key=_rank, default=None)


def _rank(row):
    """Spark's order: null first, NaN last; of the two zeros the negative one later, as the transform has it."""
    value, blob = None if row[0] == "None" else float(row[0]), row[1]
    number = (0,) if value is None else (2,) if isnan(value) else (1, value, row[0] == "-0.0")
    return number, (blob is not None, blob or b"")


def left(frame):
    found = {}
    for row in frame.collect():
        values = (repr(row["value"]), row["blob"] and bytes(row["blob"]))
        change = (*values, "I", row["_change_ordinal"]) if row["_change_type"] == "INSERT" else row["_change_ordinal"]
        assert found.setdefault(row["case"], change) is change
    return found


# Many cases a job: a Spark job for each of them would take minutes.
@settings(
    max_examples=3,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
    database=None,
    print_blob=True,
)
@given(cases=st.lists(st.one_of(STATES.map(changes_of), CHANGES), min_size=150, max_size=150))
def it_leaves_what_the_model_leaves_and_so_do_narrow_rows(spark, cases):
    # A part of an identifier may be null.
    rows = [
        (number, "a" if number % 2 else None, value, blob, SIDES[side], step, 100 + step)
        for number, changes in enumerate(cases)
        for value, blob, side, step in changes
    ]
    source = spark.createDataFrame(rows, f"case int, part string, value double, blob binary, {CHANGE_COLUMNS}")
    ids = ["case", "part"]
    kept = source.transform(shuffle_by_identifiers, ids).transform(remove_carryovers)
    models = {number: model(changes) for number, changes in enumerate(cases)}
    expected = {n: row if row[2] == "I" else row[3] for n, (_, row) in models.items() if row is not None}
    assert left(merge_updates(kept, ids, on_duplicate="last")) == expected

    of_one_row = [number for number, changes in enumerate(cases) if alternate(changes)]
    unique = F.col("case").isin(of_one_row)
    of_those = {number: change for number, change in expected.items() if number in of_one_row}
    assert left(merge_updates(kept.where(unique), ids)) == of_those

    found = find_changed_identifiers(source, ids)
    duplicates = found.identifiers.where(IS_DUPLICATE).collect()
    assert {row.case for row in duplicates} == set(range(len(cases))) - set(of_one_row)
    found.identifiers.unpersist()
    found = find_changed_identifiers(source.where(unique), ids)
    assert left(fetch_changed_rows(source.where(unique), ids, found)) == of_those
    found.identifiers.unpersist()
