"""SIGTERM asks a run to end: it does so where nothing is left half done, and leaves its report."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_LOOK_SECONDS = 0.1


class Stop:
    """Whether the run was asked to end."""

    requested = False

    def wait(self, seconds: float) -> None:
        """Wait so long, or until the run is asked to end."""
        # Not an Event: its lock may be held by the very code that the signal interrupts.
        deadline = time.monotonic() + seconds
        while not self.requested and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(_LOOK_SECONDS, left))


@contextmanager
def stop_on_sigterm() -> Iterator[Stop]:
    """Let SIGTERM ask for an end in the block; a second one does what it did before, as does one after the block.

    A handler that the application has set is called too. Python gives signals to the main thread: in another one, and
    where SIGTERM is ignored or handled outside of Python, nothing changes.
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
