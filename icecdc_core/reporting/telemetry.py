"""OpenTelemetry: a trace for each run, with a span for each stage, and the metrics of `metrics.py`.

The application or `opentelemetry-instrument` says where they go; only the API is used here.
Spans say what was done and how it ended. They never have a value of a row, a secret or the text of an error.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from opentelemetry import context, metrics, trace
from opentelemetry.context import Context
from opentelemetry.metrics import Meter, MeterProvider
from opentelemetry.trace import Link, Span, Status, StatusCode, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from icecdc_core.dependencies import installed_version
from icecdc_core.logs import set_fields
from icecdc_core.opensearch.counts import COUNTERS
from icecdc_core.reporting.exit_states import state_of
from icecdc_core.reporting.metrics import METRICS, RunMetrics
from icecdc_core.reporting.observers import BackgroundCalls, ObservedRun, Observer

_SNAPSHOTS = ("from_snapshot_id", "to_snapshot_id", "snapshot_id", "position_snapshot_id")
_FACTS = (
    *("state", "strategy", "seconds", "dry_run", "stopped", "epoch", "lag_snapshots", "lag_seconds"),
    *COUNTERS,
    *("source_rows", "index_documents", "missing", "extra", "stale", "repaired"),
    *("batches", "records", "rows_written", "dead_letters", "files", "tables_behind"),
)
"""The fields of a report that a span has: names and counts."""

# An unknown unit becomes an annotation. OTel's Prometheus exporters append a unit to a name unless it ends with it.
_UNITS = {"seconds": "s", "seconds since 1970": "s", "bytes": "By"}

BACKGROUND = BackgroundCalls("OpenTelemetry")


class Telemetry(Observer):
    """The trace of one run."""

    def __init__(self) -> None:
        self.background = BACKGROUND
        self._provider = trace.get_tracer_provider()
        self._tracer = self._provider.get_tracer("icecdc", installed_version("icecdc"))
        self._open: list[tuple[Span, Any]] = []
        self._batch: tuple[Span, Any] | None = None
        self._is_endless = False

    def started(self, run: ObservedRun) -> None:
        """Begin the span of the run; it continues the trace of the application, or else that of `TRACEPARENT`."""
        attributes = {"icecdc.job": run.job, "icecdc.run_id": run.run_id}
        attributes |= {f"icecdc.{name}": value for name, value in run.labels.items()}
        span = self._tracer.start_span(f"icecdc {run.job}", _parent(), attributes=attributes)
        self._begin(span)
        self._is_endless = getattr(run.config, "trigger", "") == "continuous"
        if span.get_span_context().is_valid:
            set_fields(trace_id=trace.format_trace_id(span.get_span_context().trace_id))

    def stage_started(self, name: str) -> None:
        """Begin the span of a stage."""
        self._begin(self._tracer.start_span(name))

    def stage_ended(self, error: BaseException | None) -> None:
        """End it."""
        self._end(self._open.pop(), error)

    def batch_started(self, number: int) -> None:
        """Begin the span of a batch: in a trace of its own, with a link, if the run has no natural end."""
        run = self._open[0][0]
        links = [Link(run.get_span_context())] if self._is_endless else None
        parent = Context() if self._is_endless else trace.set_span_in_context(run)
        span = self._tracer.start_span("batch", parent, attributes={"icecdc.batch": number}, links=links)
        self._batch = span, context.attach(trace.set_span_in_context(span))

    def batch_ended(self, facts: Mapping[str, Any], error: BaseException | None) -> None:
        """End it."""
        if self._batch is not None:
            self._batch[0].set_attributes(_attributes(facts))
            self._end(self._batch, error)
            self._batch = None

    def ended(self, facts: Mapping[str, Any], error: BaseException | None) -> None:
        """End the span of the run and send the trace."""
        while len(self._open) > 1:
            self._end(self._open.pop(), error)
        root, token = self._open.pop()
        state = str(facts.get("state") or state_of(error))
        root.set_attributes({**_attributes(facts), "icecdc.state": state})
        if state != "ok":
            root.set_status(Status(StatusCode.ERROR, state))
        self._end((root, token), error)
        self.background.call(lambda: flush(self._provider))

    def _begin(self, span: Span) -> None:
        self._open.append((span, context.attach(trace.set_span_in_context(span))))

    def _end(self, opened: tuple[Span, Any], error: BaseException | None) -> None:
        span, token = opened
        if error is not None:
            span.set_attribute("error.type", type(error).__name__)
            span.set_status(Status(StatusCode.ERROR, state_of(error)))
        span.end()
        context.detach(token)


def send_gauges(run_metrics: RunMetrics) -> None:
    """Set the gauges of `metrics.METRICS` and send them."""
    provider = metrics.get_meter_provider()
    meter = provider.get_meter("icecdc", installed_version("icecdc"))
    for family in run_metrics.collect():
        for sample in family.samples:
            _gauge(meter, family.name).set(sample.value, dict(sample.labels))
    BACKGROUND.call(lambda: flush(provider))
    BACKGROUND.wait()


def flush(provider: TracerProvider | MeterProvider) -> None:
    """Send what a provider has, if it has a way to."""
    force_flush = getattr(provider, "force_flush", None)
    if force_flush is not None:
        force_flush()


def _gauge(meter: Meter, name: str) -> Any:
    metric = next(metric for metric in METRICS if metric.name == name)
    unit = _UNITS.get(metric.unit, "" if metric.unit.startswith("0 or 1") else f"{{{metric.unit}}}")
    return meter.create_gauge(name, unit, metric.help)


def _parent() -> Context | None:
    """The context of the orchestrator's span; None: the current context of the application is used."""
    if trace.get_current_span().get_span_context().is_valid:
        return None
    carrier = {name: os.environ[name.upper()] for name in ("traceparent", "tracestate") if name.upper() in os.environ}
    return TraceContextTextMapPropagator().extract(carrier)


def _attributes(facts: Mapping[str, Any]) -> dict[str, str | int | float | bool]:
    known = {f"icecdc.{name}": facts[name] for name in _FACTS if facts.get(name) is not None}
    # As texts: most tools that show traces lose the last digits of a number this long.
    ids = {f"icecdc.{name}": str(facts[name]) for name in _SNAPSHOTS if facts.get(name) is not None}
    return {**known, **ids}
