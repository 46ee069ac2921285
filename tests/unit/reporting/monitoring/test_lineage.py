"""Names of datasets, the parent of a run, and what happens without a server of lineage."""

from __future__ import annotations

import json
import os
import threading
import time
from types import SimpleNamespace

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, NestedField, StringType, StructType

from icecdc_core.config import SyncConfig
from icecdc_core.errors import CatalogError
from icecdc_core.ingest.config import IngestConfig
from icecdc_core.logs import logging_to
from icecdc_core.reporting import lineage
from icecdc_core.reporting.lineage import index_dataset, location_name, parent_facet, table_dataset, topic_datasets
from icecdc_core.reporting.observers import BackgroundCalls, ObservedRun, Observers, lineage_is_configured
from tests.monitoring_receivers import events_of, receiver

RUN_ID = "0196aa1d0a3a7f5c9c8a4d2b6f1e0c3d"


def config(**given):
    return SyncConfig(table="lake.ns.t", index="t", **{"opensearch_url": "http://search:9200", **given})


@pytest.fixture(autouse=True)
def unconfigured(monkeypatch):
    """Nothing is configured at first; the client adds variables of its own, which go in the end."""
    monkeypatch.setattr(lineage, "BACKGROUND", BackgroundCalls("OpenLineage"))
    with monkeypatch.context() as inside:
        for name in [name for name in os.environ if name.startswith("OPENLINEAGE")]:
            inside.delenv(name)
        yield
        for name in [name for name in os.environ if name.startswith("OPENLINEAGE__")]:
            del os.environ[name]


@pytest.fixture
def server(monkeypatch):
    """A receiver of events that the environment names."""
    with receiver() as started:
        monkeypatch.setenv("OPENLINEAGE_URL", started.url)
        yield started


def run(error=None, facts=None, stages=("check", "write"), job="sync", **given):
    """A run that never opened its table."""
    observers = Observers(ObservedRun(job, RUN_ID, {"index": "t"}, SimpleNamespace(version="4.1.4"), config(**given)))
    observers.started()
    for stage in stages:
        with observers.stage(stage):
            pass
    observers.ended(facts or {"state": "ok"}, error)
    observers.wait()


class DescribeNames:
    @pytest.mark.parametrize(
        ("location", "expected"),
        [
            ("s3://lake/shop/orders", ("s3://lake", "shop/orders")),
            ("s3a://lake/shop/orders/", ("s3://lake", "shop/orders")),
            ("gs://lake/orders", ("gs://lake", "orders")),
            (
                "abfs://box@account.dfs.core.windows.net/shop/orders",
                ("abfss://box@account.dfs.core.windows.net", "shop/orders"),
            ),
            ("s3://key:secret@lake/orders", ("s3://lake", "orders")),
            ("hdfs://node:8020/lake/orders", ("hdfs://node:8020", "/lake/orders")),
            ("file:/data/orders", ("file", "/data/orders")),
            ("/data/orders", ("file", "/data/orders")),
        ],
    )
    def it_names_a_table_by_its_location(self, location, expected):
        assert location_name(location) == expected

    @pytest.mark.parametrize(
        ("properties", "namespace", "kind"),
        [
            ({"type": "rest", "uri": "https://catalog/api"}, "https://catalog/api", "rest"),
            ({"type": "hive", "uri": "thrift://metastore:9083"}, "hive://metastore:9083", "hive"),
            ({"type": "glue", "warehouse": "s3://lake/warehouse"}, "s3://lake/warehouse", "glue"),
            ({"type": "hadoop", "warehouse": "/data/lake"}, "file:/data/lake", "hadoop"),
            ({"type": "jdbc", "uri": "env:URI"}, "lake", "jdbc"),
            ({"type": "rest", "uri": "https://catalog/api?key=hunter2"}, "lake", "rest"),
            ({"type": "rest", "uri": "https://catalog/api;password=hunter2"}, "lake", "rest"),
            ({"catalog-impl": "com.example.Catalog"}, "lake", "custom"),
        ],
    )
    def it_distinguishes_tables_of_one_name_by_their_catalog(self, properties, namespace, kind):
        metadata = SimpleNamespace(location="s3://lake/orders", schema=lambda: Schema())
        dataset = table_dataset("lake.ns.`t.1`", metadata, config(catalog_properties=properties), 7)
        (symlink,) = dataset.facets["symlinks"].identifiers
        found = (
            symlink.namespace,
            symlink.name,
            dataset.facets["catalog"].type,
            dataset.facets["version"].datasetVersion,
        )
        assert found == (namespace, "ns.t.1", kind, "7")

    def it_describes_nested_columns(self):
        struct = StructType(NestedField(3, "city", StringType()))
        schema = Schema(NestedField(1, "places", ListType(2, struct), doc="where"), NestedField(4, "n", LongType()))
        metadata = SimpleNamespace(location="s3://lake/orders", schema=lambda: schema)
        places, number = table_dataset("lake.ns.t", metadata, config(), None).facets["schema"].fields
        inner = places.fields[0].fields[0]
        described = [(field.name, field.type, field.description) for field in (places, inner, number)]
        assert described == [("places", "array", "where"), ("city", "string", None), ("n", "long", None)]

    @pytest.mark.parametrize(
        ("url", "namespace"),
        [
            ("http://search:9200", "opensearch://search:9200"),
            ("https://search.example.com", "opensearch://search.example.com:443"),
            ("https://search.example.com/path", "opensearch://search.example.com:443"),
            ("http://[::1]:9200", "opensearch://[::1]:9200"),
        ],
    )
    def it_names_an_index_by_its_server(self, url, namespace):
        dataset = index_dataset(config(opensearch_url=url))
        assert (dataset.namespace, dataset.name) == (namespace, "t")

    @pytest.mark.parametrize("servers", ["b1:9092,b2:9092", "SASL_SSL://b1:9092"])
    def it_names_a_topic_by_its_first_server(self, servers):
        (dataset,) = topic_datasets(servers, ["orders"])
        assert (dataset.namespace, dataset.name) == ("kafka://b1:9092", "orders")


class DescribeEvents:
    def it_begins_and_completes(self, server):
        run()
        events = events_of(server.posts)
        job = {"namespace": "default", "name": "icecdc.sync.t"}
        found = [
            (each["eventType"], {k: each["job"][k] for k in job}, each["run"]["runId"].replace("-", ""))
            for each in events
        ]
        assert found == [("START", job, RUN_ID), ("COMPLETE", job, RUN_ID)]

    def it_fails_with_the_reason(self, server):
        run(CatalogError("The catalog is away", remedy="start it"), {"state": "retry"})
        last = events_of(server.posts)[-1]
        message = last["run"]["facets"]["errorMessage"]["message"]
        assert (last["eventType"], message) == ("FAIL", "CatalogError: The catalog is away. Remedy: start it")

    def it_aborts_when_somebody_stops_it(self, server):
        run(KeyboardInterrupt(), {"state": "failed"})
        assert events_of(server.posts)[-1]["eventType"] == "ABORT"

    def it_is_silent_about_a_poll_that_finds_nothing(self, server):
        run(stages=["check"], poll_interval_seconds=5, max_polls=0)
        assert server.posts == []

    def it_reports_a_scheduled_run_that_finds_nothing(self, server):
        run(stages=["check"])
        assert [each["eventType"] for each in events_of(server.posts)] == ["START", "COMPLETE"]

    def it_names_the_namespace_and_the_parent_of_the_orchestrator(self, server, monkeypatch):
        monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "search")
        monkeypatch.setenv("OPENLINEAGE_PARENT_ID", f"http://airflow:8080/dag.task/{RUN_ID}")
        run()
        event = events_of(server.posts)[0]
        parent = event["run"]["facets"]["parent"]
        expected = {"namespace": "http://airflow:8080", "name": "dag.task"}
        found = {name: parent["job"][name] for name in expected}
        assert (event["job"]["namespace"], found, parent["run"]["runId"]) == ("search", expected, RUN_ID)

    def it_reads_the_catalog_of_an_ingest_in_the_background(self, server, monkeypatch):
        answers, readers = threading.Event(), []

        class SlowTable:
            def __init__(self, spark, name):
                readers.append(threading.current_thread().name)
                answers.wait(30)

            def metadata(self):
                return SimpleNamespace(location="s3://lake/orders", schema=lambda: Schema())

        monkeypatch.setattr(lineage, "IcebergTable", SlowTable)
        ingest = IngestConfig(
            job="j", topics=["orders"], bootstrap_servers="b:9092", table="lake.ns.t", trigger="continuous"
        )
        observers = Observers(ObservedRun("ingest", RUN_ID, {"index": "j"}, SimpleNamespace(version="4.1.4"), ingest))
        observers.started()
        with observers.batch(1) as facts:
            facts |= {"tables": {"lake.ns.t": {"rows": 2, "files": 1, "snapshot_id": 7}}}
        written = len(server.posts)
        answers.set()
        observers.wait()
        (event,) = events_of(server.posts)
        (table,) = event["outputs"]
        assert (written, readers) == (0, ["icecdc-OpenLineage"])
        assert (event["eventType"], table["name"], table["outputFacets"]["outputStatistics"]["rowCount"]) == (
            *("RUNNING", "orders"),
            2,
        )

    def it_has_no_output_for_a_dry_run(self, server):
        run(dry_run=True)
        assert [each["outputs"] for each in events_of(server.posts)] == [[], []]


class DescribeTheParent:
    @pytest.mark.parametrize("parent_id", ["", "job", "ns/job/no-uuid"])
    def it_is_absent_without_a_usable_id(self, parent_id):
        assert parent_facet(parent_id) is None


class DescribeAServerThatIsAway:
    @pytest.mark.parametrize("kind", ["refuses connections", "does not answer", "answers with an error"])
    def it_neither_fails_nor_delays_a_run(self, monkeypatch, tmp_path, kind):
        delay, status = (20, 200) if kind == "does not answer" else (0, 400)
        with receiver(delay, status) as server:
            monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:1" if kind == "refuses connections" else server.url)
            began = time.monotonic()
            with logging_to(str(tmp_path / "log")):
                run()
            seconds = time.monotonic() - began
        (line,) = (tmp_path / "log").read_text().splitlines()
        problem = json.loads(line)
        assert (problem["level"], "monitoring system: OpenLineage" in problem["message"], seconds < 5) == (
            "warning",
            True,
            True,
        )


class DescribeWithoutConfiguration:
    @pytest.mark.parametrize(
        ("variables", "expected"),
        [
            ({}, False),
            ({"OPENLINEAGE_URL": "http://marquez:5000"}, True),
            ({"OPENLINEAGE_CONFIG": "/etc/openlineage.yml"}, True),
            ({"OPENLINEAGE__TRANSPORT__TYPE": "console"}, True),
            ({"OPENLINEAGE_URL": "http://marquez:5000", "OPENLINEAGE_DISABLED": "true"}, False),
            ({"OPENLINEAGE_NAMESPACE": "search"}, False),
        ],
    )
    def it_is_off(self, monkeypatch, variables, expected):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        assert lineage_is_configured() is expected
