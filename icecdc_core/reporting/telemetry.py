"""OpenTelemetry: a trace for each run, with a span for each stage, and the metrics of `metrics.py`.

The application or `opentelemetry-instrument` says where they go. Only the API is used here, and only if it is loaded.
Spans say what was done and how it ended. They never have a value of a row, a secret or the text of an error.
"""

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPException
from typing import Any

from icecdc_core.config.model import ParameterModel
from icecdc_core.dependencies import installed_version
from icecdc_core.logs import event, set_fields
from icecdc_core.reporting.exit_states import state_of
from icecdc_core.reporting.metrics import RunMetrics, push_metrics, write_metrics


def is_loaded() -> bool:
    """Whether the application loaded OpenTelemetry, which does nothing unless it has providers."""
    return "opentelemetry.trace" in sys.modules


@contextmanager
def span(name: str, attributes: Mapping[str, Any] | None = None, parent: Any = None) -> Iterator[dict[str, Any]]:
    """Open a span; yields a mapping for what is known when it ends."""
    facts: dict[str, Any] = {}
    if not is_loaded():
        yield facts
        return
    from opentelemetry import trace

    tracer = trace.get_tracer_provider().get_tracer("icecdc", installed_version("icecdc"))
    with tracer.start_as_current_span(
        name, parent, attributes=dict(attributes or {}), record_exception=False, set_status_on_exception=False
    ) as opened:
        try:
            yield facts
        except BaseException as error:
            opened.set_attribute("error.type", type(error).__name__)
            facts.setdefault("state", state_of(error))
            raise
        finally:
            for each, value in facts.items():
                if each in ("state", "strategy") or isinstance(value, int | float):
                    # As a text: most tools that show traces lose the last digits of a number this long.
                    opened.set_attribute(f"icecdc.{each}", str(value) if each.endswith("snapshot_id") else value)
            if facts.get("state", "ok") != "ok":
                opened.set_status(trace.Status(trace.StatusCode.ERROR, facts["state"]))


def trace_of_run() -> Any:
    """Return the context of the run's span, for other threads, and give the log its id."""
    if not is_loaded():
        return None
    from opentelemetry import context, trace

    current = trace.get_current_span().get_span_context()
    if current.is_valid:
        set_fields(trace_id=trace.format_trace_id(current.trace_id))
    return context.get_current()


def orchestrator() -> Any:
    """Return the context of the orchestrator's span (`TRACEPARENT`); None: that of the application is used."""
    if not is_loaded():
        return None
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    if trace.get_current_span().get_span_context().is_valid:
        return None
    carrier = {name: os.environ[name.upper()] for name in ("traceparent", "tracestate") if name.upper() in os.environ}
    return TraceContextTextMapPropagator().extract(carrier)


def send_gauges(run_metrics: RunMetrics) -> None:
    if not is_loaded():
        return
    from opentelemetry import metrics

    meter = metrics.get_meter_provider().get_meter("icecdc", installed_version("icecdc"))
    for family in run_metrics.collect():
        gauge = meter.create_gauge(family.name, description=family.documentation)
        for sample in family.samples:
            gauge.set(sample.value, dict(sample.labels))


def publish_run_metrics(metrics: RunMetrics, config: ParameterModel) -> None:
    """Write, push and send the metrics; a problem here is logged and does not change how the run ended."""
    if getattr(config, "dry_run", False):  # it would count as a success, although nothing was written
        return
    for send, target in ((write_metrics, config.metrics_folder), (push_metrics, config.metrics_url)):
        try:
            if target:
                send(metrics, target)
        except (OSError, ValueError, RuntimeError, HTTPException) as error:
            event(f"the metrics were not published: {type(error).__name__}: {error}", logging.WARNING)
    send_gauges(metrics)
