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
DELETED, INSERTED = ("DELETE", 0, 7), ("INSERT", 0, 7)


class DescribeMergeUpdates:
    def it_takes_identifiers_as_they_are_written(self, spark):
        # Spark groups 0.0 with -0.0 and, under this collation, a with A; their documents have different ids.
        schema = f"number double, name string collate UTF8_LCASE, v int, {CHANGE_COLUMNS}"
        different = [(0.0, "a"), (-0.0, "a"), (0.0, "A"), (NAN, "a"), (None, "a")]
        updates = [(*key, value, *change) for key in different for value, change in ((1, DELETED), (2, INSERTED))]
        merged = spark.createDataFrame(updates, schema).transform(merge_updates, ["number", "name"])
        actual = merged.select(F.concat_ws("/", F.col("number").cast("string"), F.col("name"), "v").alias("merged"))
        assert sorted(row[0] for row in actual.collect()) == ["-0.0/a/2", "0.0/A/2", "0.0/a/2", "NaN/a/2", "a/2"]

    def it_keeps_columns_whatever_their_names(self, spark):
        names = ["a.b", "a`b", 'a"b', "_row", "_RANK", "_ordinal_before", "UPPER", "straße ✈", "v0"]
        columns = ", ".join(f"`{name.replace('`', '``')}` int" for name in names)
        values = range(len(names))
        source = spark.createDataFrame([(*values, *DELETED), (*values, *INSERTED)], f"{columns}, {CHANGE_COLUMNS}")
        actual = merge_updates(source, ["a.b", "a`b", 'a"b', "upper", "straße ✈"])
        expected = spark.createDataFrame([(*values, *INSERTED)], source.schema)
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

    def it_takes_the_greatest_nested_number(self, spark):
        rows = [(kind, value, *INSERTED) for kind in "sam" for value in (9.0, 10.0, -1.0)]
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
CHANGES = st.lists(st.tuples(VALUES, BLOBS, st.sampled_from("DI"), st.sampled_from([0, 2, 10])), min_size=1, max_size=6)

# Equal rows come and go several times in one step.
EQUAL = st.lists(st.tuples(st.sampled_from([-0.0, NAN]), st.none(), st.sampled_from("DI"), st.just(0)), min_size=1)


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


def changes_in(frame):
    """The changes of each case, and the snapshot of each."""
    for row in frame.collect():
        blob = None if row["blob"] is None else bytes(row["blob"])
        change = repr(row["value"]), blob, row["_change_type"][0], row["_change_ordinal"]
        yield row, change, row["_commit_snapshot_id"]


def left(frame):
    found = {}
    for row, change, _ in changes_in(frame):
        change = change if row["_change_type"] == "INSERT" else row["_change_ordinal"]
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
@given(cases=st.lists(st.one_of(STATES.map(changes_of), CHANGES, EQUAL), min_size=150, max_size=150))
def it_leaves_what_the_model_leaves_and_so_do_narrow_rows(spark, cases):
    # A part of an identifier may be null.
    rows = [
        (number, "a" if number % 2 else None, value, blob, SIDES[side], step, at or None)
        for number, changes in enumerate(cases)
        for at, (value, blob, side, step) in enumerate(changes)
    ]
    source = spark.createDataFrame(rows, f"case int, part string, value double, blob binary, {CHANGE_COLUMNS}")
    ids = ["case", "part"]
    kept = source.transform(shuffle_by_identifiers, ids).transform(remove_carryovers)
    models = {number: model(changes) for number, changes in enumerate(cases)}
    remaining = [(row["case"], *change, snapshot) for row, change, snapshot in changes_in(kept)]
    assert Counter(each[:-1] for each in remaining) == Counter((n, *each) for n in models for each in models[n][0])
    assert {*remaining} <= {(n, repr(value), blob, side[0], step, at) for n, _, value, blob, side, step, at in rows}
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
