"""How long the texts of partition columns may be, by where the table's files are."""

import pytest
from pyspark.sql import functions as F

from icecdc_core.ingest.destinations import reject_long_folder_names
from icecdc_core.table.catalogs import load_table
from tests.kafka_records import settings

LOCATION = "s3://bucket/" + "p" * 88


def limits(spark, name):
    """The longest values for which a table's folders have names that are not too long, by column."""
    table, found = load_table(spark, f"lake.ns.{name}"), {}
    for column in "ab":
        text = F.repeat(F.lit("x"), F.col("id").cast("int"))
        row = F.struct(*((text if each == column else F.lit("")).alias(each) for each in "ab"))
        given = [row.alias("row"), F.lit(None).cast("string").alias("op"), F.lit(None).cast("string").alias("problem")]
        rows = spark.range(1000).select("id", *given, F.lit(True).alias("is_valid"))
        rows = reject_long_folder_names(rows, table, settings(metadata_columns=[]))
        longest = rows.where("is_valid").agg(F.max("id")).first()[0]
        found |= {} if longest == 999 else {column: longest}
    return found


@pytest.mark.parametrize(
    ("partitions", "expected"),
    [
        ("a", {"a": 771}),
        ("a, b", {"a": 384, "b": 384}),
        ("a, truncate(5, b), id", {"a": 255}),
        ("bucket(4, a), id", {}),
    ],
)
def it_divides_the_key_of_an_object_among_the_texts(spark, sql, name, partitions, expected):
    sql(
        f"CREATE TABLE {{t}} (id BIGINT, a STRING, b STRING) USING iceberg PARTITIONED BY ({partitions})"
        f" TBLPROPERTIES ('write.data.path' = '{LOCATION}')"
    )
    assert limits(spark, name) == expected


def it_lets_each_folder_of_a_file_system_have_its_own_name(spark, sql, name):
    sql("CREATE TABLE {t} (id BIGINT, a STRING, b STRING) USING iceberg PARTITIONED BY (a, b)")
    assert limits(spark, name) == {"a": 253, "b": 253}
