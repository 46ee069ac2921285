"""Carryovers cancel one for one, whatever the types of the columns; what is left is as it was."""

from chispa import assert_df_equality
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StructField, StructType

from icecdc_core.carryover import remove_carryovers

CHANGE_COLUMNS = "_change_type string, _change_ordinal int, _commit_snapshot_id long"
D, I = ("DELETE", 0, 7), ("INSERT", 0, 7)  # noqa: E741  (a delete and an insert, in columns of their own)


# Values as SQL. In each pair they are not the same, or the same.
DIFFERENT = (
    ("null", "0"), ("1", "2"), ("'a'", "'A'"), ("'a'", "'a '"), ("''", "cast(null as string)"),
    ("'\u00e9'", "'e\u0301'"),
    ("'a' COLLATE UTF8_LCASE", "'A' COLLATE UTF8_LCASE"), ("X'ff'", "X'fe'"), ("X''", "cast(null as binary)"),
    ("X'00'", "X'0000'"), ("double('NaN')", "cast(null as double)"), ("0.0D", "-0.0D"), ("-0.0F", "0.0F"),
    ("0.1D", "0.10000000000000002D"), ("double('inf')", "double('-inf')"), ("1e-38BD", "2e-38BD"),
    ("timestamp_micros(1)", "timestamp_micros(2)"),
    ("cast(timestamp_micros(1) as timestamp_ntz)", "cast(timestamp_micros(2) as timestamp_ntz)"),
    ("date '2026-01-01'", "date '2026-01-02'"), ("true", "false"), ("false", "null"),
    ("array(1, 2)", "array(2, 1)"), ("array(null)", "array()"), ("array()", "cast(null as array<void>)"),
    ("named_struct('x.y', 1, 'z', X'61')", "named_struct('x.y', 1, 'z', X'62')"),
    ("named_struct('x', cast(null as int))", "cast(null as struct<x: int>)"),
    ("map('a', 1, 'b', null)", "map('a', 1)"), ("map('a', 1, 'b', 2)", "map('a', 2, 'b', 1)"),
    ("map('a', cast(null as int))", "cast(map() as map<string, int>)"), ("map(1, -0.0D)", "map(1, 0.0D)"),
    ("parse_json('1')", "parse_json('\"1\"')"), ("parse_json('null')", "cast(null as variant)"),
)  # fmt: skip
EQUAL = (
    ("null", "null"), ("''", "''"), ("X'00ff'", "X'00ff'"), ("double('NaN')", "-double('NaN')"), ("-0.0D", "-0.0D"),
    ("cast(1.10 as decimal(9, 2))", "cast(1.1 as decimal(9, 2))"), ("array(null)", "array(null)"),
    ("map('a', 1, 'b', null)", "map('b', null, 'a', 1)"),
    ("map(X'ff', array(X'31'), X'fe', null)", "map(X'fe', null, X'ff', array(X'31'))"),
    ("""parse_json('{"a": 1.5, "b": [1]}')""", """parse_json('{"b": [1], "a": 1.50}')"""),
)  # fmt: skip
NESTED = ("named_struct('x', {})", "array({})", "map('k', {})", "array(named_struct('m', map('k', {})))")
# Each pair as it is and nested in one of the ways: plans of all of them take minutes.
PLAIN = [(*pair, same) for several, same in ((DIFFERENT, False), (EQUAL, True)) for pair in several]
SHAPED = [(*map(NESTED[n % len(NESTED)].format, pair), same) for n, (*pair, same) in enumerate(PLAIN)]
PAIRS = [*PLAIN, *SHAPED]


def it_compares_each_type_exactly_and_gives_back_the_original_values(spark):
    """A column for each pair; rows have a value in that of theirs."""

    def side(at, kind):
        values = (f"if(id = {n}, {pair[at]}, null) AS v{n}" for n, pair in enumerate(PAIRS))
        change = f"'{kind}' AS _change_type", "0 AS _change_ordinal", "7L AS _commit_snapshot_id"
        return spark.range(0, len(PAIRS), 1, 1).selectExpr("id", *values, *change)

    changes = side(0, "DELETE").unionAll(side(1, "INSERT"))
    text = F.to_json(F.struct("*"), {"timestampFormat": "ss.SSSSSS", "ignoreNullFields": "false"})
    same = [n for n, (*_, same) in enumerate(PAIRS) if same]
    expected, actual = (
        sorted(row[0] for row in rows.select(text).collect())
        for rows in (changes.where(~F.col("id").isin(same)), remove_carryovers(changes))
    )
    assert actual == expected


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
        left = remove_carryovers(changes)
        assert_df_equality(left, spark.createDataFrame(rows[2:], changes.schema), ignore_nullable=True)

    def it_keeps_what_may_be_null_and_what_may_not(self, spark):
        rows = [(1, {"k": 1}, "DELETE", 0, 7), (1, {"k": 2}, "INSERT", 0, 7)]
        loose = spark.createDataFrame(rows, f"id int, m map<string, int>, {CHANGE_COLUMNS}")
        not_null = StructType([StructField(field.name, field.dataType, False) for field in loose.schema])
        for source in (loose, spark.createDataFrame(loose.rdd, not_null)):
            assert remove_carryovers(source).schema == source.schema
