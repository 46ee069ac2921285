"""The jars of a session; no Spark."""

import pytest

from icecdc_core.errors import ConfigError, DependencyError
from icecdc_core.session.jars import Jar, avro_package, iceberg_packages, needed_bundles


def it_refuses_a_mirror_with_a_password_and_does_not_show_it(monkeypatch):
    monkeypatch.setenv("ICECDC_MAVEN_URL", "https://deploy:hunter2@nexus/maven2")
    with pytest.raises(ConfigError, match="ICECDC_MAVEN_URL") as caught:
        Jar("g:a:1", "", 1).url  # noqa: B018
    assert "hunter2" not in str(caught.value)


def it_names_what_was_made_for_a_pyspark_and_refuses_one_without_a_runtime():
    for pyspark, runtime, avro in (("4.1.4", "4.1_2.13:1.12.0", "4.1."), ("4.0.5", "4.0_2.13:1.11.0", "4.0.")):
        packages = iceberg_packages(pyspark, ["iceberg-aws-bundle"])
        assert packages[0] == f"org.apache.iceberg:iceberg-spark-runtime-{runtime}"
        assert packages[-1] == f"org.apache.iceberg:iceberg-aws-bundle:{runtime.rpartition(':')[2]}"
        assert avro_package(pyspark).startswith(f"org.apache.spark:spark-avro_2.13:{avro}")
    for pyspark in ("3.5.0", "4.2.0", "5.0.0.dev1"):
        with pytest.raises(DependencyError, match=rf"pyspark='{pyspark}'\]\. Remedy: .*pyspark==4\.0\.\*"):
            iceberg_packages(pyspark)


STORES = {
    "": [{"type": "jdbc", "warehouse": "/data/s3/gs"}, {"type": "rest", "uri": "https://s3.example/glue"}],
    "aws": [{"type": "glue"}, {"type": "jdbc", "warehouse": "s3://bucket/lake"},
        {"type": "rest", "io-impl": "org.apache.iceberg.aws.s3.S3FileIO"},
        {"type": "rest", "rest.sigv4-enabled": "true"},
        {"type": "rest", "warehouse": "arn:aws:s3tables:eu-west-1:1:bucket/b"},
        {"catalog-impl": "org.apache.iceberg.aws.dynamodb.DynamoDbCatalog"}],
    "gcp": [{"type": "hive", "warehouse": "gs://bucket/lake"},
        {"type": "rest", "io-impl": "org.apache.iceberg.gcp.gcs.GCSFileIO"}],
    "azure": [{"type": "jdbc", "warehouse": "abfss://c@a.dfs.core.windows.net/x"},
        {"type": "rest", "adls.sas-token.a": "x"}],
}  # fmt: skip


@pytest.mark.parametrize("store", STORES)
def it_knows_by_the_properties_which_bundles_a_store_needs(store):
    bundles = [f"iceberg-{store}-bundle"] if store else []
    assert [needed_bundles(properties) for properties in STORES[store]] == [bundles] * len(STORES[store])
