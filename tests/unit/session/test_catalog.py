"""The settings that define a catalog, and the jars of a session; no Spark."""

import re
from contextlib import nullcontext
from unittest.mock import Mock

import pytest

from icecdc_core.config import SyncConfig
from icecdc_core.errors import ConfigError, SecretError
from icecdc_core.session.catalog import catalog_settings, embedded_catalog_properties, register_catalog, secret_settings
from icecdc_core.session.jars import Jar, needed_bundles

PREFIX = "spark.sql.catalog.lake"


def settings(**parameters):
    """The settings without their common prefix; the catalog's class is under the empty name."""
    given = catalog_settings(SyncConfig(table="lake.ns.t", **parameters))
    return {name.removeprefix(PREFIX).lstrip("."): value for name, value in given.items()}


class DescribeCatalogSettings:
    def it_knows_the_kind_of_catalog_by_its_properties(self):
        uris = {"http://127.0.0.1:8181": "rest", "https://lake.example/api": "rest", "thrift://metastore:9083": "hive"}
        for properties, kind in (
            ({"type": "glue"}, "glue"), ({"catalog-impl": "org.example.Mine"}, None), ({"warehouse": "/d"}, "hadoop"),
            *(({"uri": uri}, kind) for uri, kind in {**uris, "jdbc:postgresql://db/lake": "jdbc"}.items()),
        ):  # fmt: skip
            assert settings(catalog_properties=properties).get("type") == kind

    def it_is_the_one_that_spark_conf_describes_and_no_part_of_the_embedded_one(self):
        for own, kind in (({"type": "hive"}, "hive"), ({"catalog-impl": "a.B"}, None), ({"uri": "http://h"}, "rest")):
            found = settings(spark_conf={f"{PREFIX}.{name}": value for name, value in own.items()})
            assert found == {"": found[""], "cache-enabled": "false", **({"type": kind} if kind else {}), **own}

    def it_puts_secrets_in_where_references_are_and_lets_the_cache_be_asked_for(self, monkeypatch):
        properties = {"type": "rest", "cache-enabled": "true", "token": "env:LAKE_TOKEN"}
        monkeypatch.setenv("LAKE_TOKEN", "hidden")
        found = settings(catalog_properties=properties)
        assert (found["token"], found["cache-enabled"]) == ("hidden", "true")
        monkeypatch.delenv("LAKE_TOKEN")
        with pytest.raises(SecretError, match=r"catalog_properties\.token='env:LAKE_TOKEN'"):
            settings(catalog_properties=properties)


class DescribeTheEmbeddedCatalog:
    def it_makes_the_folder_as_sqlite_makes_only_the_file(self, tmp_path):
        embedded_catalog_properties(str(tmp_path / "a" / "b"))
        assert (tmp_path / "a" / "b").is_dir()

    def it_keeps_the_file_at_home_when_the_warehouse_is_an_object_store(self, tmp_path, monkeypatch):
        monkeypatch.setenv("HOME", str(tmp_path))
        one, two = (embedded_catalog_properties(f"s3://bucket/{name}") for name in ("one", "two"))
        assert (one["warehouse"], one["io-impl"]) == ("s3://bucket/one", "org.apache.iceberg.io.ResolvingFileIO")
        assert one["uri"].startswith(f"jdbc:sqlite:{tmp_path}/")
        assert one["uri"] != two["uri"]

    def it_is_refused_on_databricks_if_it_would_end_with_the_cluster(self, tmp_path, monkeypatch):
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
        monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "18.0")
        hive = [{"catalog_properties": {"type": "hive"}}, {"spark_conf": {f"{PREFIX}.type": "hive"}}]
        own = [*hive, {"warehouse": str(tmp_path)}]
        for given in ({}, {"warehouse": "s3://b/w"}, {"warehouse": "dbfs:/lake"}, *own):
            session = Mock(conf=Mock(get=lambda *_: None))
            with nullcontext() if given in own else pytest.raises(ConfigError, match="catalog_properties: missing"):
                register_catalog(session, SyncConfig(table="lake.ns.t", **given))
            assert session.conf.set.called is (given in own)


class DescribeSecretSettings:
    def it_keeps_references_and_what_looks_like_a_secret_off_the_command_line(self, monkeypatch):
        monkeypatch.setenv("PLANTED", "planted")
        config = SyncConfig(
            table="lake.ns.t",
            catalog_properties={"type": "jdbc", "uri": "jdbc:x://h/?password=p", "thing": "env:PLANTED", "token": "t"},
            spark_conf={"spark.hadoop.fs.key": "env:PLANTED", "spark.master": "local[1]"},
        )
        settings = {**catalog_settings(config), **config.resolved_spark_conf()}
        secrets = {f"{PREFIX}.{name}" for name in ("uri", "thing", "token")} | {"spark.hadoop.fs.key"}
        assert secret_settings(config, settings) == secrets

    def it_hides_them_in_the_web_pages_of_a_session_that_somebody_else_started(self):
        session = Mock(conf=Mock(get=lambda name, *_: "(?i)url" if name.endswith("regex") else None))
        given = {"type": "rest", "uri": "https://h", "header.X-Api-Key": "planted"}
        register_catalog(session, SyncConfig(table="lake.ns.t", catalog_properties=given))
        name, pattern = session.conf.set.call_args_list[0].args
        assert name == "spark.sql.redaction.options.regex"
        assert re.search(pattern, f"{PREFIX}.header.X-Api-Key")
        assert re.search(pattern, "URL")
        assert not re.search(pattern, f"{PREFIX}.type")

    def it_refuses_a_secret_that_the_java_process_needs_when_it_starts(self, monkeypatch):
        for name, value in (
            ("spark.driver.extraJavaOptions", "-Djavax.net.ssl.trustStorePassword=hunter2"),
            ("spark.jars.repositories", "https://ann:hunter2@nexus/maven2"),
            ("spark.driver.memory", "env:PLANTED"),
        ):
            monkeypatch.setenv("PLANTED", "hunter2")
            config = SyncConfig(table="lake.ns.t", spark_conf={name: value})
            with pytest.raises(ConfigError, match=f"{name}.*JAVA_TOOL_OPTIONS") as caught:
                secret_settings(config, config.resolved_spark_conf())
            assert "hunter2" not in str(caught.value)


def it_refuses_a_mirror_with_a_password_and_does_not_show_it(monkeypatch):
    monkeypatch.setenv("ICECDC_MAVEN_URL", "https://deploy:hunter2@nexus/maven2")
    with pytest.raises(ConfigError, match="ICECDC_MAVEN_URL") as caught:
        Jar("g:a:1", "", 1).url  # noqa: B018
    assert "hunter2" not in str(caught.value)


STORES = {
    "": [{"type": "jdbc", "warehouse": "/data/s3/gs"}, {"type": "rest", "uri": "https://s3.example/glue"}],
    "aws": [{"type": "glue"}, {"type": "rest", "rest.sigv4-enabled": "true"},
        {"type": "rest", "io-impl": "org.apache.iceberg.aws.s3.S3FileIO"},
        {"type": "rest", "warehouse": "arn:aws:s3tables:eu-west-1:1:bucket/b"},
        {"catalog-impl": "org.apache.iceberg.aws.dynamodb.DynamoDbCatalog"}],
    "gcp": [{"type": "hive", "warehouse": "gs://bucket/lake"},
        {"type": "rest", "io-impl": "org.apache.iceberg.gcp.gcs.GCSFileIO"}],
    "azure": [{"type": "jdbc", "warehouse": "abfss://c@a.dfs.core.windows.net/x"},
        {"type": "rest", "adls.sas-token.a": "x"}],
}  # fmt: skip


def it_knows_by_the_properties_which_bundles_a_store_needs():
    for store, given in STORES.items():
        found = [needed_bundles(properties) for properties in given]
        assert found == [[f"iceberg-{store}-bundle"] if store else []] * len(given)
