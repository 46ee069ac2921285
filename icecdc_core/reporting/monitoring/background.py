"""Calls to monitoring systems, made one after the other in a background thread; a run waits for them a bounded time."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

from icecdc_core.logs import event
from icecdc_core.secrets import mask_secrets, shorten

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
