"""Traces and metrics of a run by OpenTelemetry, lineage by OpenLineage.

In: the beginning, stages, batches and end of a run. Out: what the environment asks for, sent in the background.
"""

from __future__ import annotations

import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from icecdc_core.logs import event
from icecdc_core.secrets import mask_secrets, shorten

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from icecdc_core.config.model import ParameterModel
    from icecdc_core.reporting.metrics import RunMetrics
    from icecdc_core.table.source import Source


LONGEST_WAIT = 3.0
"""Seconds that a run waits at its end for one monitoring system."""

_SHORT_WAIT = 0.1
_WAITING_CALLS = 1000
_LONGEST_PROBLEM = 300


class BackgroundCalls:
    """Makes the calls to one monitoring system; none of them fails a run.

    A system that did not answer in time is waited for only briefly, until it answers again. So a polling run does not
    lose seconds at every poll.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: queue.Queue[Callable[[], object]] = queue.Queue(_WAITING_CALLS)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._problem = ""
        self._is_late = False

    def call(self, function: Callable[[], object]) -> None:
        """Call a function after those before it; what it raises is logged by `wait`."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():  # a forked process has no threads
                # A daemon, because the end of the process waits for other threads.
                self._thread = threading.Thread(target=self._work, name=f"icecdc-{self._name}", daemon=True)
                self._thread.start()
        try:
            self._calls.put_nowait(function)
        except queue.Full:
            self._problem = "too many calls wait for it"

    def wait(self, seconds: float = LONGEST_WAIT) -> None:
        """Wait until all calls are made, and log what went wrong since the last time."""
        was_late, done = self._is_late, threading.Event()
        self.call(done.set)
        self._is_late = not done.wait(_SHORT_WAIT if was_late else seconds)
        problem, self._problem = self._problem, ""
        if self._is_late and not was_late:
            problem = problem or f"no answer within {seconds:.1f} s"
        if problem:
            event(f"cannot reach a monitoring system: {self._name}: {problem}", logging.WARNING)

    def _work(self) -> None:
        while True:
            function = self._calls.get()
            try:
                function()
            except Exception as error:  # whatever a client raises must not end the thread
                self._problem = shorten(mask_secrets(f"{type(error).__name__}: {error}"), _LONGEST_PROBLEM)


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
            from icecdc_core.reporting import telemetry

            telemetry.send_gauges(metrics)
        except Exception as error:  # the run has said why already
            event(f"the metrics were not published: {_in_short(error)}", logging.WARNING)


def telemetry_is_configured() -> bool:
    """Whether the application loaded OpenTelemetry, which does nothing unless it has providers."""
    return any(name in sys.modules for name in ("opentelemetry.trace", "opentelemetry.metrics"))


def lineage_is_configured() -> bool:
    """Whether the environment names where to send lineage."""
    if os.environ.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return False
    named = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG")
    return any(map(os.environ.get, named)) or any(name.startswith("OPENLINEAGE__TRANSPORT") for name in os.environ)


def _in_short(error: Exception) -> str:
    return shorten(mask_secrets(f"{type(error).__name__}: {error}"), 300)


def _telemetry() -> Observer:
    from icecdc_core.reporting.telemetry import Telemetry

    return Telemetry()


def _lineage() -> Observer:
    from icecdc_core.reporting.lineage import Lineage

    return Lineage()


_KINDS: tuple[tuple[str, Callable[[], bool], Callable[[], Observer]], ...] = (
    ("otel", telemetry_is_configured, _telemetry),
    ("openlineage", lineage_is_configured, _lineage),
)
