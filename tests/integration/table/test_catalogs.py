"""Every kind of catalog, given by `catalog_properties` alone: a table goes the whole way through real ones.

Iceberg's REST servlet, a Hive metastore, Nessie, and moto for Glue and S3, where every request must be signed rightly.
"""

import json
import os
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pyspark
import pytest

from icecdc_core import export_table, get_spark, sync_changes, validate_table
from icecdc_core.changes import read_changes
from icecdc_core.errors import DependencyError, HiddenHistoryError, JavaNotFoundError
from icecdc_core.session.catalog import SPARK_CATALOG
from icecdc_core.session.jars import iceberg_package
from icecdc_core.table.iceberg_table import IcebergTable
from tests.checks.catalog_journey import EXPECTED, change, create, whole_way
from tests.checks.doc_blocks import allowed_requests
from tests.servers.catalog_servers import BUCKET, REGION, aws_services, hive_metastore, nessie, rest_catalog
from tests.servers.loopback_proxy import loopback_proxy
from tests.speed.fast_java import SPARK_CONF

ROOT = Path(__file__).parents[3]
NOWHERE = "software.amazon.awssdk.auth.credentials.SystemPropertyCredentialsProvider"
SLOW = ("hadoop", "hive", "nessie")
S3_FILE_IO = "org.apache.iceberg.aws.s3.S3FileIO"


@pytest.fixture(scope="module")
def rest(tmp_path_factory):
    with rest_catalog(tmp_path_factory.mktemp("rest")) as url:
        yield url


@pytest.fixture(scope="module")
def aws():
    with aws_services() as services:
        yield services


@pytest.fixture(scope="module")
def nessie_url(aws, tmp_path_factory):
    """The URL of a Nessie server; None without the newer Java that it needs."""
    with ExitStack() as stack:
        try:
            url = stack.enter_context(nessie(tmp_path_factory.mktemp("nessie"), aws))
        except JavaNotFoundError:
            url = None
        yield url


def _present(nessie_url):
    return nessie_url or pytest.skip("Nessie needs Java 21 or newer")


@pytest.fixture
def properties(request, tmp_path):
    """The properties of a catalog of each kind; asked for by name, so that only what is used is started."""

    def of(kind):
        if kind == "hadoop":
            return {"type": "hadoop", "warehouse": str(tmp_path)}
        if kind.startswith("rest"):
            more = {"snapshot-loading-mode": "refs"} if kind == "rest-refs" else {}
            return {"type": "rest", "uri": request.getfixturevalue("rest"), **more}
        if kind == "hive":
            uri = servers.enter_context(hive_metastore(tmp_path / "hive"))
            return {"type": "hive", "uri": uri, "warehouse": str(tmp_path)}
        uri = f"{_present(request.getfixturevalue('nessie_url'))}/api/v2"
        return {"type": "nessie", "uri": uri, "ref": "main", "warehouse": str(tmp_path)}

    with ExitStack() as servers:
        yield of


@pytest.fixture
def config_for(make_config, name, spark):
    return lambda properties: make_config(table=f"other_{name}.ns.{name}", catalog_properties=properties)


class DescribeACatalog:
    @pytest.mark.long
    @pytest.mark.parametrize("kind", ["rest-refs", "rest", *SLOW])
    def it_feeds_an_index(self, config_for, properties, kind):
        unread = {"states": ["unknown"] * 3} if kind in SLOW else {}  # PyIceberg reads none of them here
        assert whole_way(config_for(properties(kind))) == {**EXPECTED, **unread}

    def it_shows_a_table_that_was_created_again_although_it_keeps_tables_in_a_cache(self, spark, name, tmp_path):
        for catalog, is_cached in (("plain", "false"), ("cached", "true")):
            prefix = f"spark.sql.catalog.{catalog}_{name}"
            spark.conf.set(prefix, SPARK_CATALOG)
            for key, value in {"type": "hadoop", "warehouse": str(tmp_path), "cache-enabled": is_cached}.items():
                spark.conf.set(f"{prefix}.{key}", value)
        uuids = set()
        for _ in range(2):
            spark.sql(f"CREATE TABLE plain_{name}.ns.t (id INT) USING iceberg")
            uuids.add(IcebergTable(spark, f"cached_{name}.ns.t").table_uuid)
            spark.sql(f"DROP TABLE plain_{name}.ns.t")
        assert len(uuids) == 2


def it_needs_no_request_that_the_role_does_not_have(config_for, rest, sql):
    shown = config_for({"type": "rest", "uri": rest})
    spark = create(shown)
    names = {"{namespace}": shown.table_parts[1], "{table}": shown.table_name}
    allowed, used, refused = allowed_requests("catalog requests", names), set(), []

    def gate(method, path, headers, body):
        rules = [rule for rule in allowed if rule[0] == method and re.fullmatch(rule[1], path.partition("?")[0])]
        used.update(rules)
        if rules:
            return None
        if spark.version.startswith("4.0.") and (method, path.rpartition("/")[2][:8]) == ("GET", "rewrite?"):
            # Iceberg 1.11 first looks for a table of this name; SECURITY.md says so.
            return 404, {"error": {"message": "no such table", "type": "NoSuchTableException", "code": 404}}
        refused.append(f"{method} {path}")
        return 403, {"error": {"message": "not in the role", "type": "ForbiddenException", "code": 403}}

    with loopback_proxy(rest, gate=gate) as proxy:
        properties = {"type": "rest", "uri": proxy.url, "snapshot-loading-mode": "refs"}
        config = shown.replace(table=f"least_{shown.table}", catalog_properties=properties)
        exported = export_table(get_spark(config), config)
        change(spark, shown)
        synced = sync_changes(get_spark(config), config)
        ok = validate_table(get_spark(config), config.replace(repair=True)).ok
    assert (exported.upserts, synced.upserts, synced.deletes, ok) == (3, 2, 1, True)
    assert (refused, [rule for rule in allowed if rule not in used]) == ([], [])


def latest_only(path, body, answer):
    """What a catalog answers that shows only the latest snapshot."""
    metadata = answer.get("metadata", {})
    current = metadata.get("current-snapshot-id")
    for key in ("snapshots", "snapshot-log"):
        if key in metadata:
            metadata[key] = [entry for entry in metadata[key] if entry["snapshot-id"] == current]
    return answer


def it_names_hidden_history_before_anything_is_written_and_by_a_sync(config_for, rest, opensearch, name):
    """A table of four snapshots, as a catalog shows it that hides all but the last."""
    shown = config_for({"type": "rest", "uri": rest})
    change(create(shown), shown)
    with loopback_proxy(rest, spoil=latest_only) as proxy:
        properties = {"type": "rest", "uri": proxy.url}
        config = shown.replace(table=f"hiding_{shown.table}", catalog_properties=properties)
        spark, says = get_spark(config), r"metadata file has more.*catalog_properties\]\. Remedy: .*reexport"
        with pytest.raises(HiddenHistoryError, match=says):
            export_table(spark, config)
        assert list(opensearch.indices.get(index=f"*{name}*")) == []
        export_table(spark, config.replace(on_history_gap="reexport"))
        for read in (lambda: sync_changes(spark, config), lambda: read_changes(spark, config.table, mode="snapshot")):
            with pytest.raises(HiddenHistoryError):
                read()


@pytest.mark.long
class DescribeAws:
    """In a Spark of its own, which get_spark starts with the AWS jars because of the properties.

    It has no extensions of Iceberg: on Databricks an attached library comes too late for them.
    """

    @pytest.fixture(scope="class")
    def results(self, aws, nessie_url, opensearch_url, tmp_path_factory):
        store = {
            "s3.endpoint": aws.url,
            "s3.path-style-access": "true",
            "s3.access-key-id": "env:LAKE_KEY",
            "s3.secret-access-key": "env:LAKE_SECRET",
            "client.region": REGION,
        }
        folder = tmp_path_factory.mktemp("aws")
        jdbc = {"type": "jdbc", "uri": f"jdbc:sqlite:{folder}/c.db", "warehouse": f"s3://{BUCKET}/jdbc", **store}
        glue = {"type": "glue", "glue.endpoint": aws.url, "warehouse": f"s3://{BUCKET}/glue", **store}
        journeys = {
            "glue": ("whole_way", glue),
            "s3": ("whole_way_v3", {"io-impl": S3_FILE_IO, **jdbc}),
            "refused": ("export_only", {**glue, "client.credentials-provider": NOWHERE}),
        }
        if nessie_url:
            journeys["nessie_rest"] = ("whole_way", {"type": "rest", "uri": f"{nessie_url}/iceberg", **store})
        conf = {"spark.master": "local[2]", "spark.log.level": "ERROR", **SPARK_CONF, "spark.sql.extensions": ""}
        shared = {"opensearch_url": opensearch_url, "positions_index": f"positions-aws-{os.getpid()}"}
        shared |= {"identifier_columns": ["id"], "number_of_replicas": 0, "spark_conf": conf}
        asked = []
        for case, (journey, properties) in journeys.items():
            index = f"aws-{case.replace('_', '-')}-{os.getpid()}"
            own = {"table": f"{case}.{'glue' if case == 'refused' else case}.t", "index": index}
            asked.append({"journey": journey, "parameters": {**shared, **own, "catalog_properties": properties}})
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "LAKE_KEY": aws.access_key_id,
            "LAKE_SECRET": aws.secret_access_key,
            # The client of Glue takes its own from the environment.
            "AWS_ACCESS_KEY_ID": aws.access_key_id,
            "AWS_SECRET_ACCESS_KEY": aws.secret_access_key,
        }
        command = [sys.executable, str(ROOT / "tests" / "catalog_journey.py")]
        ended = subprocess.run(
            command, input=json.dumps(asked), capture_output=True, text=True, timeout=400, check=False, env=environment
        )
        assert ended.returncode == 0, ended.stderr[-3000:]
        return dict(zip(journeys, json.loads(ended.stdout.splitlines()[-1]), strict=True))

    @pytest.mark.parametrize("catalog", ["glue", "s3"])
    def it_feeds_an_index(self, results, catalog):
        assert results[catalog] == EXPECTED

    def it_says_that_credentials_are_missing(self, results):
        error, text = results["refused"]["error"], results["refused"]["text"]
        named = [part for part in ("[catalog_properties]", "address and credentials") if part in text]
        assert (error, len(named)) == ("CatalogAuthError", 2), text

    def it_names_nessies_rest_endpoint_which_hides_history(self, results, nessie_url):
        _present(nessie_url)
        error, text = results["nessie_rest"]["error"], results["nessie_rest"]["text"]
        assert (error, "Nessie's REST endpoint shows only the latest snapshot" in text) == ("HiddenHistoryError", True)


def it_names_the_jar_of_aws(spark, config_for):
    config = config_for({"type": "glue", "warehouse": "s3://lake/a"})
    with pytest.raises(DependencyError) as caught:
        export_table(get_spark(config), config)
    package = iceberg_package("iceberg-aws-bundle", pyspark.__version__)
    wanted = (package, "[catalog_properties]", "Databricks", "spark.jars.packages")
    assert [part for part in wanted if part not in str(caught.value)] == []
