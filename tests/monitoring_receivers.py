"""Servers on loopback that take what a run sends to monitoring systems: OTLP over HTTP, and OpenLineage's API."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

Post = tuple[str, dict[str, str], bytes]


@contextmanager
def receiver(delay: float = 0.0, status: int = 200) -> Iterator[SimpleNamespace]:
    """Run a server that keeps each POST; yields its `url` and the `posts`."""
    posts: list[Post] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            posts.append((self.path, dict(self.headers), body))
            time.sleep(delay)
            self.send_response(status)
            self.end_headers()

        def log_message(self, *arguments: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads, server.block_on_close = True, False
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield SimpleNamespace(url=f"http://127.0.0.1:{server.server_address[1]}", posts=posts)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def set_up_telemetry(monkeypatch: Any, url: str) -> None:
    """Give this process providers of traces and metrics, as an application does; they send to a receiver."""
    from opentelemetry import metrics, trace
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{url}/v1/traces")))
    exporter = OTLPMetricExporter(f"{url}/v1/metrics")
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=math.inf)
    meters = MeterProvider([reader], shutdown_on_exit=False)
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: tracers)
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: meters)


def spans_of(posts: list[Post]) -> list[SimpleNamespace]:
    """The spans that were sent, in the order in which they began."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    found = []
    for path, _, body in posts:
        if path == "/v1/traces":
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                for scope in resource.scope_spans:
                    found += [_span(span) for span in scope.spans]
    return sorted(found, key=lambda span: span.start)


def gauges_of(posts: list[Post]) -> dict[tuple[str, frozenset[tuple[str, Any]]], float]:
    """The gauges that were sent: name and attributes to value."""
    return {key: value for key, (value, _) in _gauges(posts).items()}


def units_of(posts: list[Post]) -> dict[str, str]:
    """The units of the gauges that were sent."""
    return {name: unit for (name, _), (_, unit) in _gauges(posts).items()}


def events_of(posts: list[Post]) -> list[dict[str, Any]]:
    """The events of OpenLineage that were sent."""
    return [json.loads(body) for path, _, body in posts if path == "/api/v1/lineage"]


def _gauges(posts: list[Post]) -> dict[tuple[str, frozenset[tuple[str, Any]]], tuple[float, str]]:
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    found = {}
    for path, _, body in posts:
        if path == "/v1/metrics":
            for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for scope in resource.scope_metrics:
                    for metric in scope.metrics:
                        for point in metric.gauge.data_points:
                            key = metric.name, frozenset(_attributes(point.attributes).items())
                            found[key] = point.as_double or float(point.as_int), metric.unit
    return found


def _span(span: Any) -> SimpleNamespace:
    return SimpleNamespace(
        name=span.name,
        trace_id=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        start=span.start_time_unix_nano,
        seconds=(span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
        attributes=_attributes(span.attributes),
        failed=span.status.code == 2,
        status=span.status.message,
        events=len(span.events),
        links=[link.trace_id.hex() for link in span.links],
        raw=span.SerializeToString(),
    )


def _attributes(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}
