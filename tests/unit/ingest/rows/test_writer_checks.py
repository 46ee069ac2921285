"""How long the texts of partition columns may be, by where the table's files are."""

from __future__ import annotations

import json

import pytest

from icecdc_core.ingest.destinations import with_checks
from icecdc_core.ingest.readers import FOLDERS
from icecdc_core.table.catalogs import load_table
from icecdc_core.table.schema import spark_schema

LOCATION = "s3://bucket/" + "p" * 88


def limits(spark, name):
    table = load_table(spark, f"lake.ns.{name}")
    schema = with_checks(spark, table, spark_schema(spark, table))
    return {
        field.name: [folder["limit"] for folder in json.loads(field.metadata[FOLDERS])]
        for field in schema
        if FOLDERS in field.metadata
    }


@pytest.mark.parametrize(
    ("partitions", "expected"),
    [
        ("a", {"a": [771]}),
        ("a, b", {"a": [384], "b": [384]}),
        ("a, truncate(5, b), id", {"a": [255], "b": [249]}),
        ("bucket(4, a), id", {}),
    ],
)
def it_divides_the_key_of_an_object_among_the_texts(spark, sql, name, partitions, expected):
    sql(
        f"CREATE TABLE {{t}} (id BIGINT, a STRING, b BINARY) USING iceberg PARTITIONED BY ({partitions})"
        f" TBLPROPERTIES ('write.data.path' = '{LOCATION}')"
    )
    assert limits(spark, name) == expected


def it_lets_each_folder_of_a_file_system_have_its_own_name(spark, sql, name):
    sql("CREATE TABLE {t} (id BIGINT, a STRING, b BINARY) USING iceberg PARTITIONED BY (a, b)")
    assert limits(spark, name) == {"a": [253], "b": [253]}
