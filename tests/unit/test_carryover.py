"""Carryovers cancel one for one, whatever the types of the columns; what is left is as it was."""

from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial

import pytest
from chispa import assert_df_equality
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, MapType, StructField, StructType

from icecdc_core.carryover import remove_carryovers

CHANGE_COLUMNS = "_change_type string, _change_ordinal int, _commit_snapshot_id long"
D, I = ("DELETE", 0, 7), ("INSERT", 0, 7)  # noqa: E741  (a delete and an insert, in columns of their own)
NAN = float("nan")


def require_left(source, left):
    expected = source.sparkSession.createDataFrame(left, source.schema)
    assert_df_equality(remove_carryovers(source), expected, ignore_row_order=True, ignore_nullable=True)


# How many deletes and inserts of one row there are, and what is left of them.
COUNTS = {(1, 1): [], (0, 1): [I], (1, 0): [D], (2, 2): [], (2, 1): [D], (1, 2): [I], (0, 3): [I] * 3, (3, 0): [D] * 3,
          (3, 1): [D] * 2, (2, 5): [I] * 3}  # fmt: skip
TWO_STEPS = [(1, 1, "DELETE", 0, 7), (1, 1, "INSERT", 1, 8)]
SNAPSHOTS = [(2, 1, "DELETE", 0, 7), (3, 1, "INSERT", 0, 8), (4, 1, "INSERT", 0, None)]
# Changes of a case (id, delay and change columns), and what is left of them.
CASES = {
    **{f"{d}:{i}": ([(1, 1, *each) for each in [D] * d + [I] * i], [(1, 1, *each) for each in left])
       for (d, i), left in COUNTS.items()},
    "a rewritten file": ([(1, 10, *D), (2, 7, *D), (3, None, *D), (1, 10, *I), (2, 9, *I), (3, None, *I)],
                         [(2, 7, *D), (2, 9, *I)]),
    "within one step only": ([*TWO_STEPS, (2, 1, "DELETE", 1, 8), (2, 1, "INSERT", 1, 8)], TWO_STEPS),
    "snapshot ids are not compared, and kept": ([(1, 1, "DELETE", 0, 7), (1, 1, "INSERT", 0, 8), *SNAPSHOTS],
                                                SNAPSHOTS),
}  # fmt: skip


class DescribeRemoveCarryovers:
    def it_cancels_deletes_against_equal_inserts_of_a_step_one_for_one(self, spark):
        rows, left = ([(case, *row) for case, parts in CASES.items() for row in parts[side]] for side in (0, 1))
        require_left(spark.createDataFrame(rows, f"case string, id int, delay int, {CHANGE_COLUMNS}"), left)


# A column for each type, and for each: a value that is deleted, one that is inserted, and whether they are the same.
# Maps are given as their entries, in order.
PLAIN = {
    "i int": [(None, None, True), (None, 0, False), (1, 1, True), (1, 2, False)],
    "s string": [("a", "a", True), ("a", "A", False), ("a", "a ", False), ("", None, False), ("é", "e\u0301", False)],
    "b binary": [(b"\x00\xff", b"\x00\xff", True), (b"\xff", b"\xfe", False), (b"", None, False), (b"", b"", True)],
    "d double": [(NAN, NAN, True), (NAN, None, False), (0.0, 0.0, True), (-0.0, -0.0, True), (-0.0, 0.0, False),
        (0.0, -0.0, False), (0.1, 0.1, True), (0.1, 0.1 + 2**-56, False), (None, 0.0, False),
        (float("inf"), float("-inf"), False)],
    "f float": [(NAN, NAN, True), (-0.0, 0.0, False), (-0.0, -0.0, True), (0.5, 0.5, True)],
    "n decimal(38,18)": [(Decimal("1.10"), Decimal("1.1"), True), (Decimal("1e-18"), Decimal("0"), False),
        (Decimal("99999999999999999999"), Decimal("99999999999999999998"), False)],
    "t timestamp": [(datetime(2026, 1, 1, 0, 0, 0, 1, UTC), datetime(2026, 1, 1, 0, 0, 0, 1, UTC), True),
        (datetime(2026, 1, 1, 0, 0, 0, 1, UTC), datetime(2026, 1, 1, 0, 0, 0, 2, UTC), False)],
    "l timestamp_ntz": [(datetime(2026, 1, 1), datetime(2026, 1, 1), True), (datetime(2026, 1, 1), None, False)],
    "y date": [(date(2026, 1, 1), date(2026, 1, 1), True), (date(2026, 1, 1), date(2026, 1, 2), False)],
    "o boolean": [(True, True, True), (True, False, False), (False, None, False)],
    "a array<int>": [([1, 2], [1, 2], True), ([1, 2], [2, 1], False), ([None], [None], True), ([], None, False)],
    "r struct<`x.y`:int,z:binary>": [((1, b"a"), (1, b"a"), True), ((1, b"a"), (1, b"b"), False),
        ((None, None), (None, None), True), ((None, None), None, False)],
}  # fmt: skip
NESTED = {
    "d double": PLAIN["d double"],
    "fs struct<x:double>": [((NAN,), (NAN,), True), ((-0.0,), (0.0,), False), ((None,), None, False)],
    "fa array<float>": [([NAN, -0.0], [NAN, -0.0], True), ([-0.0], [0.0], False), ([None], [], False)],
    "m array<struct<k:string,v:int>>": [([("a", 1), ("b", 2)], [("b", 2), ("a", 1)], True),
        ([("a", 1), ("b", 2)], [("a", 2), ("b", 1)], False), ([("a", None)], [("a", None)], True),
        ([("a", None)], [], False), ([], None, False), ([], [], True)],
    "mf array<struct<k:int,v:double>>": [([(1, NAN)], [(1, NAN)], True), ([(1, -0.0)], [(1, 0.0)], False)],
    "mb array<struct<k:binary,v:array<binary>>>": [([(b"\xff", [b"1"]), (b"\xfe", None)],
        [(b"\xfe", None), (b"\xff", [b"1"])], True), ([(b"\xff", [b"1"])], [(b"\xff", [b"2"])], False)],
}  # fmt: skip


def _typed(spark, columns, side, changes):
    """For each pair of values a row that holds one of them in the column of its type, null in the others."""
    rows = [
        (f"{column} {number}", *(pair[side] if other == column else None for other in columns), *change)
        for column, pairs in columns.items()
        for number, pair in enumerate(pairs)
        for change in changes(pair)
    ]
    frame = spark.createDataFrame(rows, f"case string, {', '.join(columns)}, {CHANGE_COLUMNS}")
    maps = {name: F.map_from_entries(name) for name in ("m", "mf", "mb") if name in frame.columns}
    nested = {"am": F.array("m"), "sm": F.struct("m"), "mm": F.create_map(F.lit(1), F.col("m"))} if maps else {}
    # Maps within arrays, structs and maps, in front of the change columns.
    return frame.withColumns(maps).select(
        "case", *(value.alias(key) for key, value in nested.items()), *frame.columns[1:]
    )


def _texts(frame):
    maps = [field.name for field in frame.schema if isinstance(field.dataType, MapType)]
    frame = frame.withColumns({name: F.map_entries(name) for name in maps})
    options = {"ignoreNullFields": "false", "timestampFormat": "yyyy-MM-dd HH:mm:ss.SSSSSS"}
    return frame.select(F.to_json(F.struct(*frame.columns), options).alias("row"))


@pytest.mark.parametrize("columns", [PLAIN, NESTED], ids=["plain", "nested"])
def it_compares_each_type_exactly_and_gives_back_the_original_values(spark, columns):
    def both(changes_of):
        deleted, inserted = (_typed(spark, columns, n, partial(changes_of, kind)) for n, kind in enumerate([[D], [I]]))
        return deleted.unionAll(inserted)

    actual = remove_carryovers(both(lambda kind, pair: kind))
    expected = both(lambda kind, pair: [] if pair[2] else kind)
    assert_df_equality(_texts(actual), _texts(expected), ignore_row_order=True, ignore_nullable=True)


class DescribeColumns:
    def it_keeps_their_order_types_names_and_metadata(self, spark):
        names = ["a.b", "a`b", 'a"b', "it's", "UPPER", "straße ✈", "key0", "surplus", "copy", "inserted1", "_row", " "]
        schema = StructType([*(StructField(name, IntegerType()) for name in names)])
        for field in StructType.fromDDL(f"`n.n` array<int>, {CHANGE_COLUMNS}"):
            schema = schema.add(field)
        values = range(len(names))
        source = spark.createDataFrame([(*values, [1], *D), (*values, [2], *I)], schema)
        source = source.withMetadata("UPPER", {"comment": "kept"})
        actual = remove_carryovers(source)
        # Sorted here, because chispa does not quote the names by which it sorts.
        assert_df_equality(actual.sort("_change_type"), source, ignore_nullable=True)
        assert actual.schema["UPPER"].metadata == {"comment": "kept"}

    def it_takes_columns_in_any_order_and_needs_no_commit_snapshot_ids(self, spark):
        rows = [(0, 1, "DELETE", 2), (0, 1, "INSERT", 2), (0, 2, "INSERT", 1)]
        changes = spark.createDataFrame(rows, "_change_ordinal int, b int, _change_type string, a int")
        require_left(changes, rows[2:])

    def it_distinguishes_strings_of_a_collation_by_their_bytes(self, spark):
        rows = [("same", "a", *D), ("same", "a", *I), ("other", "a", *D), ("other", "A", *I)]
        source = spark.createDataFrame(rows, f"case string, s string collate UTF8_LCASE, {CHANGE_COLUMNS}")
        require_left(source, rows[2:])

    def it_compares_variants(self, spark):
        rows = [("same", '{"b":1,"a":2}', *D), ("same", '{"a":2,"b":1}', *I), ("x", '"1"', *D), ("x", "1", *I)]
        texts = spark.createDataFrame(rows, f"case string, v string, {CHANGE_COLUMNS}")
        actual = remove_carryovers(texts.withColumn("v", F.parse_json("v"))).withColumn("v", F.to_json("v"))
        assert_df_equality(actual, texts.where("case = 'x'"), ignore_row_order=True, ignore_nullable=True)

    def it_keeps_what_may_be_null_and_what_may_not(self, spark):
        rows = [(1, {"k": 1}, "DELETE", 0, 7), (1, {"k": 2}, "INSERT", 0, 7)]
        loose = spark.createDataFrame(rows, f"id int, m map<string, int>, {CHANGE_COLUMNS}")
        not_null = StructType([StructField(field.name, field.dataType, False) for field in loose.schema])
        for source in (loose, spark.createDataFrame(loose.rdd, not_null)):
            assert remove_carryovers(source).schema == source.schema
