"""Run a server as a child that cannot outlive the process that asked for it. A script of its own.

Usage: `python watchdog.py FOLDER COMMAND...`. The server lives until standard input ends, which happens when the asking
process closes it or dies in whatever way. Then the server is stopped and FOLDER, which holds its data, is removed,
unless something was written to standard input before: that means "keep the folder". If the server ends by itself, so
does this process, with its exit code, and the folder stays.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import time
from types import FrameType

_STOP_SECONDS = 20.0


def main(folder: str, command: list[str]) -> int:
    """Run the command until it ends or standard input does; returns the exit code."""
    stop_requested = False

    def request_stop(_signal: int, _frame: FrameType | None) -> None:
        nonlocal stop_requested
        stop_requested = True

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the asking process gets it too, and decides
    signal.signal(signal.SIGTERM, request_stop)
    asking_process = os.getppid()
    keep = False
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    while server.poll() is None:
        readable, _, _ = select.select([0], [], [], 0.5)
        if readable:
            if not os.read(0, 64):
                break
            keep = True
        # A process forked by the asking one may still hold the pipe open: then a new parent is the sign.
        if stop_requested or os.getppid() != asking_process:
            break
    if server.poll() is not None:
        return server.returncode
    stop(server)
    if not keep:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def stop(server: subprocess.Popen[bytes], seconds: float = _STOP_SECONDS) -> None:
    """Ask the server to end; after the given time, end it."""
    server.terminate()
    deadline = time.monotonic() + seconds
    while server.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    if server.poll() is None:
        server.kill()
    server.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
