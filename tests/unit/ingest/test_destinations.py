"""How tables follow their records, and how long the texts of partition columns may be."""

import pytest
from pyspark.sql import functions as F, types as T

from icecdc_core.errors import SchemaChangeError
from icecdc_core.ingest.destinations import ColumnChange, evolve, plan_evolution, reject_unwritable_rows
from icecdc_core.ingest.inference import Seen, merge_types
from icecdc_core.table.catalogs import load_table
from tests.given.kafka_records import settings

# DDL is read by Spark.
pytestmark = pytest.mark.usefixtures("spark")


def ddl(text):
    return T.StructType.fromDDL(text)


def changes(current, seen, *more, **overrides):
    chosen = settings(**{"evolve_schema": True, **overrides})
    return [str(change) for change in plan_evolution(ddl(current), Seen(written=[ddl(seen)]), chosen, *more)]


class DescribePlanEvolution:
    @pytest.mark.parametrize(
        ("current", "seen", "expected"),
        [
            ("id bigint", "id int", []), ("x decimal(5,2)", "x decimal(9,1)", ["widen x decimal(10,2)"]),
            ("x decimal(9,2)", "x decimal(5,2)", []), ("id int not null", "id int", ["optional id"]),
            ("id int", "id int not null", []), ("id int not null", "name string", ["add name string"]),
        ],
        ids=str,
    )  # fmt: skip
    def it_names_what_has_to_change(self, current, seen, expected):
        assert changes(current, seen) == expected

    def it_changes_nothing_for_a_guess_or_of_identifier_columns(self):
        assert changes("id int not null", "id int", identifier_columns=["ID"]) == []
        assert changes("id int not null", "id int", (), ["id"]) == []  # the table's own
        assert plan_evolution(ddl("id int not null"), Seen(ddl("id bigint")), settings(evolve_schema=True)) == []

    @pytest.mark.parametrize(
        ("case", "expected"),
        [("sensitive", ["add Note string"]), ("insensitive", ["add Note string"]), ("lower", ["add note string"])],
    )
    def it_tells_names_apart_by_the_case_rule(self, case, expected):
        assert changes("orderid int", "orderId int, Note string, note string", column_case=case) == expected


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("bigint", "double", "double"), ("decimal(10,2)", "decimal(8,4)", "decimal(12,4)"),
        ("decimal(38,0)", "decimal(10,2)", "string"), ("int", "decimal(4,2)", "decimal(12,2)"),
        ("string", "bigint", "string"), ("date", "timestamp", "string"),
        ("map<string,int>", "map<string,bigint>", "map<string,bigint>"),
        ("struct<a:int>", "struct<b:int,a:bigint>", "struct<a:bigint,b:int>"),
    ],
)  # fmt: skip
def it_merges_types_to_one_that_holds_both(left, right, expected):
    kinds = [ddl(f"x {text}")["x"].dataType for text in (left, right)]
    assert merge_types(*kinds).simpleString() == expected


def it_makes_all_changes_in_one_commit_or_none(spark, sql, name):
    nested = "a ARRAY<STRUCT<q: INT>>, m MAP<STRING, STRUCT<v: INT>>"
    sql(f"CREATE TABLE {{t}} (id INT NOT NULL, x DECIMAL(5,2), {nested}, b STRING) USING iceberg")
    seen = ddl(
        "id bigint, x decimal(9,2), a array<struct<q:bigint,r:string>>, m map<string,struct<w:timestamp>>,"
        " `new.name` struct<u:int,w:array<double>>"
    )
    table = f"lake.ns.{name}"
    wanted = plan_evolution(spark.table(table).schema, Seen(written=[seen]), settings(evolve_schema=True))
    evolve(spark, table, load_table(spark, table), wanted)
    expected = (
        "struct<id:bigint,x:decimal(9,2),a:array<struct<q:bigint,r:string>>,"
        "m:map<string,struct<v:int,w:timestamp>>,b:string,new.name:struct<u:int,w:array<double>>>"
    )
    assert spark.table(table).schema.simpleString() == expected
    refused = [ColumnChange("add", ("c",), T.StringType()), ColumnChange("widen", ("id",), T.StringType())]
    with pytest.raises(SchemaChangeError, match=r"long -> string.*without evolve_schema"):
        evolve(spark, table, load_table(spark, table), refused)
    assert spark.table(table).schema.simpleString() == expected


OBJECTS = f"TBLPROPERTIES ('write.data.path' = 's3://bucket/{'p' * 88}')"


@pytest.mark.parametrize(
    ("partitions", "properties", "expected"),
    [
        # The texts share the key of an object; each folder of a file system has its own name.
        ("a", OBJECTS, {"a": 771}),
        ("a, b", OBJECTS, {"a": 384, "b": 384}),
        ("a, truncate(5, b), id", OBJECTS, {"a": 255}),
        ("bucket(4, a), id", OBJECTS, {}),
        ("a, b", "", {"a": 253, "b": 253}),
    ],
)
def it_is_the_longest_value_whose_folders_have_names_that_are_not_too_long(
    spark, sql, name, partitions, properties, expected
):
    columns = "id BIGINT, a STRING, b STRING"
    sql(f"CREATE TABLE {{t}} ({columns}) USING iceberg PARTITIONED BY ({partitions}) {properties}")
    table, found = load_table(spark, f"lake.ns.{name}"), {}
    for column in "ab":
        text = F.repeat(F.lit("x"), F.col("id").cast("int"))
        row = F.struct(*((text if each == column else F.lit("")).alias(each) for each in "ab"))
        given = [row.alias("row"), F.lit(None).cast("string").alias("op"), F.lit(None).cast("string").alias("problem")]
        rows = spark.range(1000).select("id", *given, F.lit(True).alias("is_valid"))
        rows = reject_unwritable_rows(rows, table, settings(metadata_columns=[]))
        longest = rows.where("is_valid").agg(F.max("id")).first()[0]
        found |= {} if longest == 999 else {column: longest}
    assert found == expected
