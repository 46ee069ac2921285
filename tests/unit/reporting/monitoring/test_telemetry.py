"""Traces and metrics, sent to a real receiver of OTLP on loopback."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from icecdc_core.config import SyncConfig
from icecdc_core.errors import CatalogError, DuplicateIdentifierError
from icecdc_core.logs import log_fields, logging_to
from icecdc_core.reporting import telemetry
from icecdc_core.reporting.instrumentation import publish_run_metrics
from icecdc_core.reporting.metrics import LagMetrics, RunMetrics
from icecdc_core.reporting.observers import (
    BackgroundCalls,
    ObservedRun,
    Observers,
    publish_metrics,
)
from tests.monitoring_receivers import gauges_of, receiver, set_up_telemetry, spans_of, units_of

LABELS = {"table": "lake.ns.t", "index": "t"}
FACTS = {"job": "sync", **LABELS, "state": "ok", "seconds": 2.5, "upserts": 3, "to_snapshot_id": 9223372036854775807}
RUN = ObservedRun("sync", "1" * 32, LABELS, SimpleNamespace(), SimpleNamespace())
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(autouse=True)
def own_background(monkeypatch):
    """The background of this test's own."""
    monkeypatch.delenv("TRACEPARENT", raising=False)
    monkeypatch.setattr(telemetry, "BACKGROUND", BackgroundCalls("OpenTelemetry"))


@pytest.fixture
def collector(monkeypatch):
    """A receiver of OTLP to which the application's providers send."""
    with receiver() as started:
        set_up_telemetry(monkeypatch, started.url)
        yield started


def run(facts=FACTS, error=None, run=RUN, stages=("check", "write")):
    """A run as `JobRun` shows it to its observers."""
    observers = Observers(run)
    with log_fields():
        observers.started()
        try:
            for number, stage in enumerate(stages, 1):
                with observers.stage(stage):
                    if error is not None and number == len(stages):
                        raise error
        except type(error or SystemExit()):
            pass
        observers.ended(facts, error)
        observers.wait()


class DescribeATrace:
    def it_has_a_span_for_the_run_and_one_for_each_stage(self, collector):
        run()
        root, *stages = spans_of(collector.posts)
        shape = [(span.name, span.trace_id, span.parent) for span in (root, *stages)]
        assert shape == [
            ("icecdc sync", root.trace_id, ""),
            ("check", root.trace_id, root.id),
            ("write", root.trace_id, root.id),
        ]

    def it_says_what_was_done_and_how_it_ended(self, collector):
        run()
        root = spans_of(collector.posts)[0]
        assert (root.attributes, root.failed) == (
            {
                "icecdc.job": "sync",
                "icecdc.run_id": "1" * 32,
                "icecdc.table": "lake.ns.t",
                "icecdc.index": "t",
                "icecdc.state": "ok",
                "icecdc.seconds": 2.5,
                "icecdc.upserts": 3,
                "icecdc.to_snapshot_id": "9223372036854775807",
            },
            False,
        )

    def it_names_the_class_of_an_error_and_none_of_its_words(self, collector):
        error = DuplicateIdentifierError("2 rows share {'email': 'jane@example.com'}", value=["jane@example.com"])
        run({**FACTS, "state": "data"}, error)
        root, check, write = spans_of(collector.posts)
        ended = [(span.failed, span.status, span.attributes.get("error.type"), span.events) for span in (root, write)]
        assert (ended, check.failed) == ([(True, "data", "DuplicateIdentifierError", 0)] * 2, False)
        assert not any(b"jane" in span.raw for span in (root, check, write))

    def it_leaves_out_what_a_report_has_beside_names_and_counts(self, collector):
        run({**FACTS, "missing_ids": ["jane@example.com"], "steps": [{"bytes": 1}], "notes": ["jane"]})
        assert not any(b"jane" in span.raw for span in spans_of(collector.posts))

    def it_continues_the_trace_of_the_orchestrator(self, collector, monkeypatch):
        monkeypatch.setenv("TRACEPARENT", PARENT)
        run()
        root = spans_of(collector.posts)[0]
        assert (root.trace_id, root.parent) == (PARENT.split("-")[1], PARENT.split("-")[2])

    def it_gives_the_log_its_id(self, collector, tmp_path):
        with logging_to(str(tmp_path / "log")), log_fields():
            observers = Observers(RUN)
            observers.started()
            telemetry.BACKGROUND._problem = "for a line in the log"
            observers.ended(FACTS, None)
            telemetry.BACKGROUND.wait()
        line = json.loads((tmp_path / "log").read_text().splitlines()[0])
        assert line["trace_id"] == spans_of(collector.posts)[0].trace_id

    def it_has_the_batches_of_an_ingest(self, collector):
        observers = Observers(RUN)
        observers.started()
        with observers.batch(7) as written:
            written["records"] = 5
        observers.ended(FACTS, None)
        observers.wait()
        root, batch = spans_of(collector.posts)
        assert (batch.parent, batch.attributes) == (root.id, {"icecdc.batch": 7, "icecdc.records": 5})

    def it_has_a_trace_of_its_own_for_each_batch_of_an_endless_ingest(self, collector):
        observers = Observers(ObservedRun("ingest", "1" * 32, LABELS, None, SimpleNamespace(trigger="continuous")))
        observers.started()
        with observers.batch(7):
            pass
        observers.ended(FACTS, None)
        observers.wait()
        root, batch = spans_of(collector.posts)
        assert (batch.parent, batch.trace_id != root.trace_id, batch.links) == ("", True, [root.trace_id])


class DescribeMetrics:
    def it_sends_those_that_prometheus_gets(self, collector):
        metrics = RunMetrics(FACTS, 100.0)
        publish_metrics(metrics)
        expected = {
            (family.name, frozenset(sample.labels.items())): sample.value
            for family in metrics.collect()
            for sample in family.samples
        }
        assert (gauges_of(collector.posts), len(expected) > 10) == (expected, True)

    def it_sends_none_of_a_dry_run(self, collector):
        config = SyncConfig(table="lake.ns.t", opensearch_url="http://search:9200", dry_run=True)
        publish_run_metrics(RunMetrics(FACTS, 100.0), config)
        telemetry.BACKGROUND.wait()
        assert gauges_of(collector.posts) == {}

    def it_sends_those_of_a_poll(self, collector):
        publish_metrics(LagMetrics({"job": "sync", **LABELS}, 10.0, 2.5, 60.0, 1.5))
        assert {name for name, _ in gauges_of(collector.posts)} == {
            *("icecdc_target_lag_seconds", "icecdc_lag_achieved_seconds"),
            *("icecdc_target_lag_kept_seconds", "icecdc_target_lag_missed_seconds"),
        }

    def it_gives_units_that_leave_the_names_as_they_are_in_prometheus(self, collector):
        publish_metrics(RunMetrics({**FACTS, "bytes": 10}, 100.0))
        units = units_of(collector.posts)
        suffix = {"s": "_seconds", "By": "_bytes"}
        assert all(name.endswith(suffix[unit]) for name, unit in units.items() if unit in suffix)
        assert {unit for unit in units.values() if unit not in suffix and not unit.startswith("{")} == {""}


class DescribeAnApplication:
    def it_is_used_if_it_has_set_up_its_own_provider(self):
        # In a process of its own, because a provider can be set only once.
        code = """
from types import SimpleNamespace
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
from icecdc_core.reporting.observers import ObservedRun, Observers
observers = Observers(ObservedRun("sync", "1" * 32, {"table": "a.b.c", "index": "c"}, None, SimpleNamespace()))
with trace.get_tracer("app").start_as_current_span("task") as task:
    observers.started()
    with observers.stage("write"):
        trace.get_tracer("app").start_span("inside").end()
    observers.ended({"state": "ok"}, None)
spans = {span.name: span for span in exporter.get_finished_spans()}
parents = {name: span.parent.span_id if span.parent else 0 for name, span in spans.items()}
names = {span.context.span_id: name for name, span in spans.items()} | {0: ""}
print({name: names[parent] for name, parent in parents.items()})
"""
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        expected = {"inside": "write", "write": "icecdc sync", "icecdc sync": "task", "task": ""}
        assert (eval(result.stdout), result.stderr) == (expected, "")


class DescribeACollectorThatIsAway:
    @pytest.mark.parametrize("kind", ["refuses connections", "does not answer"])
    def it_neither_fails_nor_delays_a_run(self, monkeypatch, tmp_path, kind):
        with receiver(delay=20) as silent:
            address = silent.url if kind == "does not answer" else "http://127.0.0.1:1"
            set_up_telemetry(monkeypatch, address)
            began = time.monotonic()
            with logging_to(str(tmp_path / "log")):
                run()
                publish_metrics(RunMetrics(FACTS, 100.0))
            seconds = time.monotonic() - began
            began = time.monotonic()
            run()
            again = time.monotonic() - began
        message = json.loads((tmp_path / "log").read_text().splitlines()[0])["message"]
        assert "cannot reach a monitoring system: OpenTelemetry" in message
        assert (seconds < 8, again < 2) == (True, True)  # the exporter alone would try for 20 s


class DescribeWithoutConfiguration:
    def it_imports_nothing(self):
        code = """
import sys
from types import SimpleNamespace
import icecdc_core, icecdc_core.jobs.sync, icecdc_core.ingest
from icecdc_core.reporting.metrics import RunMetrics
from icecdc_core.reporting.observers import ObservedRun, Observers, publish_metrics
labels = {"table": "a.b.c", "index": "c"}
observers = Observers(ObservedRun("sync", "1" * 32, labels, None, SimpleNamespace()))
observers.started()
with observers.stage("write"):
    pass
observers.ended({}, None)
observers.wait()
publish_metrics(RunMetrics({"job": "sync", **labels, "state": "ok"}, 1.0))
print(sorted(name for name in sys.modules if name.split(".")[0] in ("opentelemetry", "openlineage") or
      name.startswith(("icecdc_core.reporting.telemetry", "icecdc_core.reporting.lineage"))))
"""
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert result.stdout == "[]\n"


class DescribeObservers:
    def it_leaves_out_one_that_fails_and_says_so(self, collector, tmp_path, monkeypatch):
        def fails(*arguments):
            raise KeyError("broken")

        monkeypatch.setattr(telemetry.Telemetry, "stage_started", fails)
        with logging_to(str(tmp_path / "log")):
            run(error=CatalogError("away"))
        assert "tracing or lineage is off for this run: Telemetry: KeyError: 'broken'" in (tmp_path / "log").read_text()
