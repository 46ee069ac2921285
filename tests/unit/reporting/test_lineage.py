"""Names of datasets, the events of a run, and what happens without a server of lineage."""

import json
import os
import time

import pytest

from icecdc_core.config import SyncConfig
from icecdc_core.errors import CatalogError
from icecdc_core.ingest.config import IngestConfig
from icecdc_core.reporting.instrumentation import JobRun
from icecdc_core.reporting.lineage import table_name
from icecdc_core.reporting.reports import RunReport
from tests.servers.monitoring_receivers import events_of, receiver, without_spark

PARENT_ID = "0196aa1d-0a3a-7f5c-9c8a-4d2b6f1e0c3d"
INGEST = IngestConfig(job="j", topics=["orders"], bootstrap_servers="b:9092", table="lake.ns.t")


@pytest.fixture(autouse=True)
def unconfigured(monkeypatch):
    without_spark(monkeypatch)
    for name in [name for name in os.environ if name.startswith("OPENLINEAGE")]:
        monkeypatch.delenv(name)


@pytest.fixture
def server(monkeypatch):
    with receiver() as started:
        monkeypatch.setenv("OPENLINEAGE_URL", started.url)
        yield started


def run(error=None, stages=("check", "write"), **given):
    """A run that never opened its table."""
    config = SyncConfig(table="lake.ns.t", index="t", **{"opensearch_url": "http://search:9200", **given})
    with JobRun("sync", None, config) as run:
        for stage in stages:
            with run.stage(stage):
                pass
        if error is not None:
            raise error
        run.finish(RunReport("sync", "lake.ns.t", "t"))
    return run


class DescribeNames:
    def it_names_a_table_by_its_location(self):
        azure = "box@account.dfs.core.windows.net"
        for location, *expected in (
            ("s3://lake/shop/orders", "s3://lake", "shop/orders"), ("s3a://lake/orders/", "s3://lake", "orders"),
            ("gs://lake/orders", "gs://lake", "orders"), ("s3://key:secret@lake/orders", "s3://lake", "orders"),
            (f"abfs://{azure}/shop/orders", f"abfss://{azure}", "shop/orders"),
            ("hdfs://node:8020/lake/orders", "hdfs://node:8020", "/lake/orders"),
            ("file:/data/orders", "file", "/data/orders"), ("/data/orders", "file", "/data/orders"),
        ):  # fmt: skip
            assert table_name(location) == tuple(expected)

    def it_names_an_index_by_its_server(self, server):
        for url in ("http://search:9200", "https://search.example.com/path", "http://[::1]:9200"):
            run(opensearch_url=url)
        names = [each["outputs"][0]["namespace"] for each in events_of(server.posts)[::2]]
        assert names == [f"opensearch://{each}" for each in ("search:9200", "search.example.com:443", "[::1]:9200")]


class DescribeEvents:
    def it_fails_with_the_reason_and_no_value(self, server):
        for error, state, reason in (
            (CatalogError("jane is away", remedy="start it"), "FAIL", "CatalogError: a service did not answer"),
            (KeyboardInterrupt(), "ABORT", "KeyboardInterrupt: an unexpected error"),
        ):
            with pytest.raises(type(error)):
                run(error)
            last = events_of(server.posts)[-1]
            message = last["run"]["facets"]["errorMessage"]["message"]
            assert (last["eventType"], message.startswith(reason), "jane" in message) == (state, True, False)

    def it_is_silent_about_a_poll_that_finds_nothing(self, server):
        run(stages=["check"], poll_interval_seconds=5, max_polls=0)
        assert server.posts == []
        run(stages=["check"])
        assert [each["eventType"] for each in events_of(server.posts)] == ["START", "COMPLETE"]

    def it_names_the_namespace_the_parent_and_the_key_of_the_environment(self, server, monkeypatch):
        monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "search")
        monkeypatch.setenv("OPENLINEAGE_API_KEY", "k\n")
        monkeypatch.setenv("OPENLINEAGE_PARENT_ID", f"http://airflow:8080/dag.task/{PARENT_ID}")
        run()
        event, parent = (found := events_of(server.posts)[0]), found["run"]["facets"]["parent"]
        names = (event["job"]["namespace"], parent["job"]["namespace"], parent["job"]["name"], parent["run"]["runId"])
        assert names == ("search", "http://airflow:8080", "dag.task", PARENT_ID)
        assert server.posts[0][1]["Authorization"] == "Bearer k"

    def it_has_no_output_for_a_dry_run_and_sends_nothing_of_an_ingest_or_if_it_is_disabled(self, server, monkeypatch):
        run(dry_run=True)
        with JobRun("ingest", None, INGEST) as ingest, ingest.stage("batches"):
            pass
        monkeypatch.setenv("OPENLINEAGE_DISABLED", "true")
        run()
        assert [each["outputs"] for each in events_of(server.posts)] == [[], []]


@pytest.mark.parametrize("kind", ["refuses connections", "does not answer", "answers with an error", "has a password"])
def it_neither_fails_nor_delays_a_run_without_a_server(monkeypatch, tmp_path, kind):
    delay, status = (20, 200) if kind == "does not answer" else (0, 400)
    with receiver(delay, status) as server:
        urls = {"refuses connections": "http://127.0.0.1:1", "has a password": "http://ann:hunter2@127.0.0.1:1"}
        monkeypatch.setenv("OPENLINEAGE_URL", urls.get(kind, server.url))
        began = time.monotonic()
        run(log_path=str(tmp_path / "log"))
        assert time.monotonic() - began < 4
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    (problem,) = (line for line in lines if line["level"] == "warning")
    assert ("monitoring system: OpenLineage" in problem["message"], "hunter2" in str(lines)) == (True, False)
