"""Traces by OpenTelemetry's API, as the SDK of an application takes them."""

import json
from threading import Thread

import pytest

from icecdc_core.config import SyncConfig
from icecdc_core.ingest.config import IngestConfig
from icecdc_core.reporting.instrumentation import JobRun
from icecdc_core.reporting.reports import RunReport
from tests.servers.monitoring_receivers import set_up_telemetry, spans_of, without_spark

LABELS = {"table": "lake.ns.t", "index": "t"}
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
REPORT = RunReport("sync", **LABELS, upserts=3, to_snapshot_id=9223372036854775807, seconds=2.5, notes=["jane"])
CONFIG = SyncConfig(**LABELS, opensearch_url="http://search:9200")
INGEST = IngestConfig(job="j", topics=["orders"], bootstrap_servers="b:9092", table="lake.ns.t", trigger="continuous")


@pytest.fixture
def telemetry(monkeypatch):
    """What the providers of the application keep."""
    monkeypatch.delenv("TRACEPARENT", raising=False)
    without_spark(monkeypatch)
    return set_up_telemetry(monkeypatch)


def write(run, batch):
    with run.batch(batch) as written:
        written["records"] = 5


def run(error=None, job="sync", config=CONFIG, batch=None):
    with JobRun(job, None, config) as run:
        with run.stage("check"):
            pass
        if batch:
            thread = Thread(target=write, args=(run, batch))  # as Spark calls it
            thread.start()
            thread.join()
        with run.stage("write"):
            if error is not None:
                raise error
        run.finish(REPORT)
    return run


class DescribeATrace:
    def it_continues_the_trace_of_the_orchestrator_and_gives_the_log_its_id(self, telemetry, monkeypatch, tmp_path):
        monkeypatch.setenv("TRACEPARENT", PARENT)
        run(config=CONFIG.replace(log_path=str(tmp_path / "log")))
        root = spans_of(telemetry)[0]
        assert (root.trace_id, root.parent) == (PARENT.split("-")[1], PARENT.split("-")[2])
        lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
        assert {line["trace_id"] for line in lines} == {root.trace_id}

    def it_has_the_batches_of_an_ingest_each_in_a_trace_of_its_own_if_it_is_endless(self, telemetry):
        run_id = run(job="ingest", config=INGEST.replace(trigger="available_now"), batch=7).run_id
        root, _, batch, _ = spans_of(telemetry)
        expected = {"icecdc.batch": 7, "icecdc.records": 5, "icecdc.run_id": run_id}
        assert (batch.parent, batch.attributes) == (root.id, expected)
        run(job="ingest", config=INGEST, batch=7)
        root, _, batch, _ = spans_of(telemetry)[4:]
        assert (batch.parent, batch.trace_id != root.trace_id) == ("", True)
