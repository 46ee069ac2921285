"""OpenTelemetry's providers for a process whose application has none: OTLP over HTTP, as the environment says."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from functools import cache

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult

from icecdc_core.dependencies import installed_version

# Without a handler of the application each retry would be a line on the standard error; the log of icecdc has one.
logging.getLogger("opentelemetry.exporter").addHandler(logging.NullHandler())


class _Spans(OTLPSpanExporter):
    """An exporter that remembers whether the collector took the last spans, because a flush does not say it."""

    failed = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.failed = True  # also if it raises, as some releases do
        result = super().export(spans)
        self.failed = result is not SpanExportResult.SUCCESS
        return result


class _Metrics(OTLPMetricExporter):
    """The same for metrics."""

    failed = False

    def export(
        self, metrics_data: MetricsData, timeout_millis: float | None = 10_000, **arguments: object
    ) -> MetricExportResult:
        self.failed = True
        result = super().export(metrics_data, timeout_millis, **arguments)
        self.failed = result is not MetricExportResult.SUCCESS
        return result


class OwnTracerProvider(TracerProvider):
    """Sends spans in the background while a run works, and the rest when it is flushed."""

    def __init__(self) -> None:
        # Every run flushes, so the end of the process has nothing to wait for.
        super().__init__(resource=_resource(), shutdown_on_exit=False)
        self._spans = _Spans()
        self.add_span_processor(BatchSpanProcessor(self._spans))

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Send what waits."""
        flushed = super().force_flush(timeout_millis)
        if self._spans.failed:
            raise ConnectionError("the collector did not take the traces")
        return flushed


class OwnMeterProvider(MeterProvider):
    """Sends metrics when it is flushed: they are those of the last run, so there is nothing to send in between."""

    def __init__(self) -> None:
        self._exporter = _Metrics()
        reader = PeriodicExportingMetricReader(self._exporter, export_interval_millis=math.inf)
        super().__init__([reader], _resource(), shutdown_on_exit=False)

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """Send what waits."""
        flushed = super().force_flush(timeout_millis)
        if self._exporter.failed:
            raise ConnectionError("the collector did not take the metrics")
        return flushed


@cache
def own_tracer_provider() -> OwnTracerProvider:
    """The provider of traces, one for the process."""
    return OwnTracerProvider()


@cache
def own_meter_provider() -> OwnMeterProvider:
    """The provider of metrics, one for the process."""
    return OwnMeterProvider()


def _resource() -> Resource:
    resource = Resource.create({SERVICE_VERSION: installed_version("icecdc")})
    if str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: "icecdc"}))
    return resource
