"""What takes the data that a run sends to monitoring systems: OpenTelemetry's SDK in memory, and OpenLineage's API."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

from tests.servers.http_server import Answer, Request, http_server

Post = tuple[str, dict[str, str], bytes]


@contextmanager
def receiver(delay: float = 0.0, status: int = 200) -> Iterator[SimpleNamespace]:
    """Run a server that keeps each POST; yields its `url` and the `posts`."""
    posts: list[Post] = []

    def answer(request: Request) -> Answer:
        posts.append((request.path, dict(request.headers), request.body))
        time.sleep(delay)
        return status, b""

    with http_server(answer) as url:
        yield SimpleNamespace(url=url, posts=posts)


def set_up_telemetry(monkeypatch: Any) -> SimpleNamespace:
    """Give this process providers of traces and metrics, as an application does; returns what they keep."""
    from opentelemetry import metrics, trace
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers, meters = TracerProvider(shutdown_on_exit=False), MeterProvider([reader], shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: tracers)
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: meters)
    return SimpleNamespace(exporter=exporter, reader=reader)


def without_spark(monkeypatch: Any) -> None:
    from icecdc_core.reporting import instrumentation

    monkeypatch.setattr(instrumentation, "job_session", nullcontext)
    monkeypatch.setattr(instrumentation, "require_catalog", lambda *_: None)


def spans_of(telemetry: SimpleNamespace) -> list[SimpleNamespace]:
    """The spans that ended, in the order in which they began."""
    return [
        SimpleNamespace(
            name=span.name,
            trace_id=f"{span.context.trace_id:032x}",
            id=f"{span.context.span_id:016x}",
            parent=f"{span.parent.span_id:016x}" if span.parent else "",
            seconds=(span.end_time - span.start_time) / 1e9,
            attributes=dict(span.attributes),
            failed=span.status.status_code.name == "ERROR",
            raw=span.to_json(),
        )
        for span in sorted(telemetry.exporter.get_finished_spans(), key=lambda span: span.start_time)
    ]


def gauges_of(telemetry: SimpleNamespace) -> dict[tuple[str, frozenset[tuple[str, Any]]], float]:
    data = telemetry.reader.get_metrics_data()
    scopes = [scope for resource in (data.resource_metrics if data else ()) for scope in resource.scope_metrics]
    points = [(metric.name, point) for scope in scopes for metric in scope.metrics for point in metric.data.data_points]
    return {(name, frozenset(point.attributes.items())): point.value for name, point in points}


def events_of(posts: list[Post]) -> list[dict[str, Any]]:
    return [json.loads(body) for path, _, body in posts if path == "/api/v1/lineage"]
