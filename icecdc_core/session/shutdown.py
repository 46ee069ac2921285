"""SIGTERM asks a run to stop: it stops at the next safe point and still writes its report."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_LOOK_SECONDS = 0.1


class Stop:
    """Whether the run was asked to stop."""

    requested = False

    def wait(self, seconds: float) -> None:
        """Wait for this time, or until the run is asked to stop."""
        # Not an Event: the code that the signal interrupts may hold its lock.
        deadline = time.monotonic() + seconds
        while not self.requested and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(_LOOK_SECONDS, left))


@contextmanager
def stop_on_sigterm() -> Iterator[Stop]:
    """Let a SIGTERM in the block ask the run to stop; a second one has its usual effect.

    A handler of the application is called too. Nothing changes in a thread other than the main one (Python delivers
    signals there), or when SIGTERM is ignored or handled outside of Python.
    """
    stop = Stop()
    before = signal.getsignal(signal.SIGTERM)
    if threading.current_thread() is not threading.main_thread() or before in (None, signal.SIG_IGN):
        yield stop
        return

    def request(number: int, frame: FrameType | None) -> None:
        stop.requested = True
        signal.signal(signal.SIGTERM, before)
        if callable(before):
            before(number, frame)

    signal.signal(signal.SIGTERM, request)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGTERM, before)
