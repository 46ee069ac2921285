"""What tests of several packages ask of a table."""

import json
import shutil

import pytest

from tests.given.nested_shop import Shop
from tests.servers.stub_model import Model


@pytest.fixture
def snapshots(sql):
    return lambda: [row[0] for row in sql("SELECT snapshot_id FROM {t}.snapshots ORDER BY committed_at").collect()]


@pytest.fixture
def model(name):
    model = Model(name)
    yield model
    shutil.rmtree(model.folder)


@pytest.fixture
def make_shop(spark, name):
    """Make the tables of a shop, which goes with the test."""
    made = []

    def make(*properties, **more):
        made.append(Shop(spark, name, *properties, **more))
        return made[-1]

    yield make
    for shop in made:
        shop.drop()


@pytest.fixture
def create_table(spark, sql, name):
    """Create this test's table from a list of fields by Iceberg's Java API, which knows types that Spark does not."""

    def run(fields, version=3):
        iceberg = spark._jvm.org.apache.iceberg
        catalog = iceberg.spark.Spark3Util.loadIcebergCatalog(spark._jsparkSession, "lake")
        schema = iceberg.SchemaParser.fromJson(json.dumps({"type": "struct", "schema-id": 0, "fields": fields}))
        properties = spark._jvm.java.util.HashMap()
        properties.put("format-version", str(version))
        properties.put("write.update.mode", "copy-on-write")
        identifier = iceberg.catalog.TableIdentifier.parse(f"ns.{name}")
        catalog.createTable(identifier, schema, iceberg.PartitionSpec.unpartitioned(), properties)

    return run


@pytest.fixture
def java_table(spark, name):
    """Load this test's table by Iceberg's Java API, as it is now."""

    def load():
        table = spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, f"lake.ns.{name}")
        table.refresh()
        return table

    return load
