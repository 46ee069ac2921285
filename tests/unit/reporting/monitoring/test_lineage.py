"""Names of datasets, the parent of a run, and what happens without a server of lineage."""

from __future__ import annotations

import json
import os
import threading
import time
from types import SimpleNamespace

import pytest

from icecdc_core.config import SyncConfig
from icecdc_core.errors import CatalogError
from icecdc_core.ingest.config import IngestConfig
from icecdc_core.reporting import lineage
from icecdc_core.reporting.instrumentation import JobRun, lineage_is_configured
from icecdc_core.reporting.lineage import Lineage, index_name, location_name, parent_facet, topic_namespace
from icecdc_core.reporting.reports import RunReport
from tests.monitoring_receivers import events_of, receiver, without_spark

PARENT_ID = "0196aa1d-0a3a-7f5c-9c8a-4d2b6f1e0c3d"


def config(**given):
    return SyncConfig(table="lake.ns.t", index="t", **{"opensearch_url": "http://search:9200", **given})


@pytest.fixture(autouse=True)
def unconfigured(monkeypatch):
    """Nothing is configured at first; the client adds variables of its own, which go in the end."""
    without_spark(monkeypatch)
    monkeypatch.setattr(Lineage, "_was_late", False)
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


def run(error=None, stages=("check", "write"), **given):
    """A run that never opened its table."""
    with JobRun("sync", None, config(**given)) as run:
        for stage in stages:
            with run.stage(stage):
                pass
        if error is not None:
            raise error
        run.finish(RunReport("sync", "lake.ns.t", "t"))
    return run


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
        ("url", "namespace"),
        [
            ("http://search:9200", "opensearch://search:9200"),
            ("https://search.example.com", "opensearch://search.example.com:443"),
            ("https://search.example.com/path", "opensearch://search.example.com:443"),
            ("http://[::1]:9200", "opensearch://[::1]:9200"),
        ],
    )
    def it_names_an_index_by_its_server(self, url, namespace):
        assert index_name(url) == namespace

    @pytest.mark.parametrize("servers", ["b1:9092,b2:9092", "SASL_SSL://b1:9092"])
    def it_names_a_topic_by_its_first_server(self, servers):
        assert topic_namespace(servers) == "kafka://b1:9092"


class DescribeEvents:
    def it_begins_and_completes(self, server):
        run_id = run().run_id
        job = {"namespace": "default", "name": "icecdc.sync.t"}
        found = [
            (each["eventType"], {k: each["job"][k] for k in job}, each["run"]["runId"].replace("-", ""))
            for each in events_of(server.posts)
        ]
        assert found == [("START", job, run_id), ("COMPLETE", job, run_id)]

    @pytest.mark.parametrize(
        ("error", "state", "reason"),
        [
            (CatalogError("jane is away", remedy="start it"), "FAIL", "CatalogError: a service did not answer"),
            (KeyboardInterrupt(), "ABORT", "KeyboardInterrupt: an unexpected error"),
        ],
    )
    def it_fails_with_the_reason_and_no_value(self, server, error, state, reason):
        with pytest.raises(type(error)):
            run(error)
        last = events_of(server.posts)[-1]
        message = last["run"]["facets"]["errorMessage"]["message"]
        assert (last["eventType"], message.startswith(reason), "jane" in message) == (state, True, False)

    @pytest.mark.parametrize(
        ("polls", "expected"), [({}, ["START", "COMPLETE"]), ({"poll_interval_seconds": 5, "max_polls": 0}, [])]
    )
    def it_is_silent_about_a_poll_that_finds_nothing(self, server, polls, expected):
        run(stages=["check"], **polls)
        assert [each["eventType"] for each in events_of(server.posts)] == expected

    def it_names_the_namespace_and_the_parent_of_the_orchestrator(self, server, monkeypatch):
        monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "search")
        monkeypatch.setenv("OPENLINEAGE_PARENT_ID", f"http://airflow:8080/dag.task/{PARENT_ID}")
        run()
        event = events_of(server.posts)[0]
        parent = event["run"]["facets"]["parent"]
        found = (event["job"]["namespace"], parent["job"]["namespace"], parent["job"]["name"], parent["run"]["runId"])
        assert found == ("search", "http://airflow:8080", "dag.task", PARENT_ID)

    def it_reads_the_catalog_of_an_ingest_in_the_background(self, server, monkeypatch):
        answers, readers = threading.Event(), []

        class SlowTable:
            def __init__(self, spark, name):
                readers.append(threading.current_thread().name)
                answers.wait(30)

            def metadata(self):
                return SimpleNamespace(location="s3://lake/orders")

        monkeypatch.setattr(lineage, "IcebergTable", SlowTable)
        ingest = IngestConfig(
            job="j", topics=["orders"], bootstrap_servers="b:9092", table="lake.ns.t", trigger="continuous"
        )
        with JobRun("ingest", None, ingest) as run:
            with run.batch(1) as facts:
                facts |= {"tables": {"lake.ns.t": {"rows": 2, "files": 1, "snapshot_id": 7}}}
            written = len(server.posts)
            answers.set()
        event = events_of(server.posts)[0]
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
            run(log_path=str(tmp_path / "log"))
            seconds = time.monotonic() - began
            began = time.monotonic()
            run()
            assert time.monotonic() - began < 2
        lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
        (problem,) = (line for line in lines if line["level"] == "warning")
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
