"""The jars of a session; no Spark."""

import pytest

from icecdc_core.errors import ConfigError, DependencyError
from icecdc_core.session.jars import Jar, avro_package, iceberg_packages, needed_bundles


def it_refuses_a_mirror_with_a_password_and_does_not_show_it(monkeypatch):
    monkeypatch.setenv("ICECDC_MAVEN_URL", "https://deploy:hunter2@nexus/maven2")
    with pytest.raises(ConfigError, match="ICECDC_MAVEN_URL") as caught:
        Jar("g:a:1", "", 1).url  # noqa: B018
    assert "hunter2" not in str(caught.value)


class DescribeIcebergPackages:
    @pytest.mark.parametrize(
        ("pyspark", "runtime", "avro"), [("4.1.4", "4.1_2.13:1.12.0", "4.1."), ("4.0.5", "4.0_2.13:1.11.0", "4.0.")]
    )
    def it_names_what_was_made_for_a_pyspark(self, pyspark, runtime, avro):
        packages = iceberg_packages(pyspark, ["iceberg-aws-bundle"])
        assert packages[0] == f"org.apache.iceberg:iceberg-spark-runtime-{runtime}"
        assert packages[-1] == f"org.apache.iceberg:iceberg-aws-bundle:{runtime.rpartition(':')[2]}"
        assert avro_package(pyspark).startswith(f"org.apache.spark:spark-avro_2.13:{avro}")

    @pytest.mark.parametrize("pyspark", ["3.5.0", "4.2.0", "5.0.0.dev1"])
    def it_refuses_a_pyspark_without_a_runtime(self, pyspark):
        with pytest.raises(DependencyError, match=rf"pyspark='{pyspark}'\]\. Remedy: .*pyspark==4\.0\.\*"):
            iceberg_packages(pyspark)


@pytest.mark.parametrize(
    ("properties", "bundles"),
    [
        ({"type": "jdbc", "warehouse": "/data/s3/gs"}, []),
        ({"type": "rest", "uri": "https://s3.example/glue"}, []),
        ({"type": "glue"}, ["iceberg-aws-bundle"]),
        ({"type": "jdbc", "warehouse": "s3://bucket/lake"}, ["iceberg-aws-bundle"]),
        ({"type": "rest", "io-impl": "org.apache.iceberg.aws.s3.S3FileIO"}, ["iceberg-aws-bundle"]),
        ({"type": "rest", "rest.sigv4-enabled": "true"}, ["iceberg-aws-bundle"]),
        ({"type": "rest", "warehouse": "arn:aws:s3tables:eu-west-1:1:bucket/b"}, ["iceberg-aws-bundle"]),
        ({"catalog-impl": "org.apache.iceberg.aws.dynamodb.DynamoDbCatalog"}, ["iceberg-aws-bundle"]),
        ({"type": "hive", "warehouse": "gs://bucket/lake"}, ["iceberg-gcp-bundle"]),
        ({"type": "rest", "io-impl": "org.apache.iceberg.gcp.gcs.GCSFileIO"}, ["iceberg-gcp-bundle"]),
        ({"type": "jdbc", "warehouse": "abfss://c@a.dfs.core.windows.net/x"}, ["iceberg-azure-bundle"]),
        ({"type": "rest", "adls.sas-token.a": "x"}, ["iceberg-azure-bundle"]),
    ],
    ids=str,
)
def it_knows_by_the_properties_which_bundles_a_store_needs(properties, bundles):
    assert needed_bundles(properties) == bundles
