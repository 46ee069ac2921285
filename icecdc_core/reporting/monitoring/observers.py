"""Observers of a run: OpenTelemetry and OpenLineage, each only where the environment asks for it.

Observers are notified when a run begins, what it reads, when stages begin and end, and how the run ended. What fails in
an observer is logged and never reaches the run. Nothing of an observer is imported unless it is configured.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from icecdc_core.logs import event
from icecdc_core.reporting.monitoring.background import LONGEST_WAIT, BackgroundCalls
from icecdc_core.secrets import mask_secrets, shorten

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from icecdc_core.config.model import ParameterModel
    from icecdc_core.reporting.metrics import RunMetrics
    from icecdc_core.table.source import Source

_OTLP_ENDPOINTS = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
)


@dataclass(frozen=True)
class ObservedRun:
    """The run that is observed."""

    job: str
    run_id: str
    labels: Mapping[str, str]
    spark: SparkSession
    config: ParameterModel


class Observer:
    """Receives what happens in a run; by default it ignores everything."""

    background: BackgroundCalls

    def started(self, run: ObservedRun) -> None:
        """The run began."""

    def opened(self, source: Source) -> None:
        """The run opened the table that it reads."""

    def stage_started(self, name: str) -> None:
        """A stage began."""

    def stage_ended(self, error: BaseException | None) -> None:
        """The innermost stage ended."""

    def batch_started(self, number: int) -> None:
        """A batch of an ingest began, in a thread of Spark."""

    def batch_ended(self, facts: Mapping[str, Any], error: BaseException | None) -> None:
        """A batch of an ingest ended, in the same thread."""

    def ended(self, facts: Mapping[str, Any], error: BaseException | None) -> None:
        """The run ended."""


class Observers:
    """All observers of a run. Without any, each method returns at once."""

    def __init__(self, run: ObservedRun) -> None:
        self._run = run
        self._observers: list[Observer] = []

    def started(self) -> None:
        """Notify that the run began."""
        for name, is_configured, make in _KINDS:
            try:
                if is_configured():
                    self._observers.append(make())
            except ImportError as missing:
                remedy = f"pip install 'icecdc[{name}]'"
                event(f"a package for monitoring is missing: {missing.name}", logging.WARNING, remedy=remedy)
            except Exception as error:  # a wrong setting of the environment, in the client's own words
                event(f"tracing or lineage is off for this run: {name}: {_in_short(error)}", logging.WARNING)
        self._notify(lambda observer: observer.started(self._run))

    def opened(self, source: Source) -> None:
        """Notify which table is read."""
        self._notify(lambda observer: observer.opened(source))

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Notify that a stage begins and ends."""
        if not self._observers:
            yield
            return
        self._notify(lambda observer: observer.stage_started(name))
        with self._notifying(lambda observer, error: observer.stage_ended(error)):
            yield

    @contextmanager
    def batch(self, number: int) -> Iterator[dict[str, Any]]:
        """Notify that a batch of an ingest begins and ends; yields a mapping for what it wrote."""
        facts: dict[str, Any] = {}
        self._notify(lambda observer: observer.batch_started(number))
        with self._notifying(lambda observer, error: observer.batch_ended(facts, error)):
            yield facts

    def ended(self, facts: Mapping[str, Any], error: BaseException | None) -> None:
        """Notify how the run ended."""
        self._notify(lambda observer: observer.ended(facts, error))

    def wait(self) -> None:
        """Wait until the observers have sent everything, all of them together at most `LONGEST_WAIT` seconds."""
        deadline = time.monotonic() + LONGEST_WAIT
        self._notify(lambda observer: observer.background.wait(max(0.1, deadline - time.monotonic())))

    @contextmanager
    def _notifying(self, notify: Callable[[Observer, BaseException | None], None]) -> Iterator[None]:
        try:
            yield
        except BaseException as failed:
            error = failed
            self._notify(lambda observer: notify(observer, error))
            raise
        self._notify(lambda observer: notify(observer, None))

    def _notify(self, notify: Callable[[Observer], None]) -> None:
        for observer in self._observers:
            try:
                notify(observer)
            except Exception as error:  # an observer must never fail a run
                # Another thread may leave it out at the same time.
                self._observers = [each for each in self._observers if each is not observer]
                name = type(observer).__name__
                event(f"tracing or lineage is off for this run: {name}: {_in_short(error)}", logging.WARNING)


def publish_metrics(metrics: RunMetrics) -> None:
    """Send metrics to OpenTelemetry if it is configured."""
    if telemetry_is_configured():
        try:
            from icecdc_core.reporting.monitoring import telemetry

            telemetry.send_gauges(metrics)
        except Exception as error:  # the run has said why already
            event(f"the metrics were not published: {_in_short(error)}", logging.WARNING)


def telemetry_is_configured() -> bool:
    """Whether the application set OpenTelemetry up, or the environment names where to send traces or metrics."""
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    if any(os.environ.get(name) for name in _OTLP_ENDPOINTS):
        return True
    api = sys.modules.get("opentelemetry.trace")
    return api is not None and type(api.get_tracer_provider()).__name__ not in (
        "ProxyTracerProvider",
        "NoOpTracerProvider",
    )


def lineage_is_configured() -> bool:
    """Whether the environment names where to send lineage."""
    if os.environ.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return False
    named = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG")
    return any(map(os.environ.get, named)) or any(name.startswith("OPENLINEAGE__TRANSPORT") for name in os.environ)


def _in_short(error: Exception) -> str:
    return shorten(mask_secrets(f"{type(error).__name__}: {error}"), 300)


def _telemetry() -> Observer:
    from icecdc_core.reporting.monitoring.telemetry import Telemetry

    return Telemetry()


def _lineage() -> Observer:
    from icecdc_core.reporting.monitoring.lineage import Lineage

    return Lineage()


_KINDS: tuple[tuple[str, Callable[[], bool], Callable[[], Observer]], ...] = (
    ("otel", telemetry_is_configured, _telemetry),
    ("openlineage", lineage_is_configured, _lineage),
)
