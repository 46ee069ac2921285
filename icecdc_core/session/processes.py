"""Processes: which one it is, whether it still runs, and how a signal asks it to stop."""

import fcntl
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import psutil

from icecdc_core.errors import unwritable_error


def started_at(pid: int) -> str:
    """Return when a process started, as text; process ids are used again, both together identify one process."""
    process = psutil.Process(pid)
    if process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
        raise psutil.ZombieProcess(pid)
    boot, created = psutil.boot_time(), process.create_time()
    if not psutil.LINUX:
        return str(created)
    # Linux counts ticks since the boot. psutil adds the time of the boot, which changes when the clock is set.
    return str(round((created - boot) * os.sysconf("SC_CLK_TCK")))


def host_name() -> str:
    """Return the machine, its boot and the process namespace: within all three, a process id means one process."""
    # Containers share host names and start with the same process ids.
    parts = [socket.gethostname()]
    for source in (Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid")):
        with suppress(OSError):
            parts.append(os.readlink(source) if source.is_symlink() else source.read_text().strip())
    return "/".join(parts)


def is_running(pid: int, started: str) -> bool:
    try:
        return started_at(pid) == started
    except psutil.AccessDenied:
        return True  # the process of another user: only its lease can show that it is gone
    except psutil.NoSuchProcess:
        return False


@contextmanager
def one_process_at_a_time(lock: Path, variable: str) -> Iterator[None]:
    """Run the block in one process of this user at a time; the operating system frees the lock of one that dies."""
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        file = lock.open("w")
    except OSError as error:
        raise unwritable_error(variable, str(lock.parent), error) from error
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class Stopped(Exception):  # noqa: N818 (it is no error)
    """The run was asked to stop before its next part began."""


class StopRequest:
    requested = False

    def wait(self, seconds: float) -> None:
        # Not an Event: the code that the signal interrupts may hold its lock.
        deadline = time.monotonic() + seconds
        while not self.requested and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(0.1, left))


# Signals reach the process, so all runs in it share one request: those of other threads too.
_stops: list[StopRequest] = []


@contextmanager
def stop_on_sigterm(or_interrupt: bool = False) -> Iterator[StopRequest]:
    """Let a SIGTERM in the block ask the run to stop; a second one has its usual effect.

    A handler of the application is called too. Inside such a block of the main thread, blocks of any thread yield the
    same request; other threads, and a SIGTERM that is ignored or handled outside of Python, change nothing.
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
