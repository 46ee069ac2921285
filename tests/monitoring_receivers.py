"""Servers on loopback that take what a run sends to monitoring systems: OTLP over HTTP, and OpenLineage's API."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
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


def spans_of(posts: list[Post]) -> list[SimpleNamespace]:
    """The spans that were sent, in the order in which they began, with their resource."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    found = []
    for path, _, body in posts:
        if path == "/v1/traces":
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                for scope in resource.scope_spans:
                    found += [_span(span, _attributes(resource.resource.attributes)) for span in scope.spans]
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


def within(seconds: float, is_true: Callable[[], bool]) -> bool:
    """Whether something becomes true in time."""
    deadline = time.monotonic() + seconds
    while not is_true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


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


def _span(span: Any, resource: dict[str, Any]) -> SimpleNamespace:
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
        resource=resource,
        raw=span.SerializeToString(),
    )


def _attributes(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}
