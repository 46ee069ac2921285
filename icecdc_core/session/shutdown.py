"""SIGTERM asks a run to stop: it stops at the next safe point and still writes its report."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_LOOK_SECONDS = 0.1


class Stopped(Exception):  # noqa: N818 (it is no error)
    """The run was asked to stop before its next part began."""


class StopRequest:
    """Whether the run was asked to stop."""

    requested = False

    def wait(self, seconds: float) -> None:
        """Wait for this time, or until the run is asked to stop."""
        # Not an Event: the code that the signal interrupts may hold its lock.
        deadline = time.monotonic() + seconds
        while not self.requested and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(_LOOK_SECONDS, left))


# Signals reach the process, so all runs in it share one request: those of other threads too.
_stops: list[StopRequest] = []


@contextmanager
def stop_on_sigterm(or_interrupt: bool = False) -> Iterator[StopRequest]:
    """Let a SIGTERM in the block ask the run to stop; a second one has its usual effect.

    A handler of the application is called too. Inside such a block of the main thread, blocks of any thread yield the
    same request. Otherwise nothing changes in a thread other than the main one (Python delivers signals there), or when
    SIGTERM is ignored or handled outside of Python.
    """
    if _stops:
        yield _stops[0]
        return
    stop = StopRequest()
    numbers = (signal.SIGTERM, signal.SIGINT) if or_interrupt else (signal.SIGTERM,)
    before = {number: signal.getsignal(number) for number in numbers}
    before = {number: handler for number, handler in before.items() if handler not in (None, signal.SIG_IGN)}
    if threading.current_thread() is not threading.main_thread() or not before:
        yield stop
        return

    def request(number: int, frame: FrameType | None) -> None:
        stop.requested = True
        handler = before[signal.Signals(number)]
        signal.signal(number, handler)
        if callable(handler) and number != signal.SIGINT:  # the usual handler of an interrupt ends the run at once
            handler(number, frame)

    for number in before:
        signal.signal(number, request)
    _stops.append(stop)
    try:
        yield stop
    finally:
        _stops.remove(stop)
        for number, handler in before.items():
            signal.signal(number, handler)
