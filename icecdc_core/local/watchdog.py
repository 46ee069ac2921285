"""Run a server as a child process that cannot outlive the process that started it. This is a script.

Usage: `python watchdog.py FOLDER COMMAND...`. The server runs until the standard input ends, which happens when the
starting process closes it or dies in any way. Then the server is stopped, and FOLDER with its data is removed, unless
something was written to the standard input before: that means "keep the folder". If the server ends by itself, this
process ends with its exit code, and the folder stays.
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
    """Run the command until it or the standard input ends; returns the exit code."""
    stop_requested = False

    def request_stop(_signal: int, _frame: FrameType | None) -> None:
        nonlocal stop_requested
        stop_requested = True

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the starting process gets it too, and decides
    signal.signal(signal.SIGTERM, request_stop)
    starting_process = os.getppid()
    keep = False
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    while server.poll() is None:
        readable, _, _ = select.select([0], [], [], 0.5)
        if readable:
            if not os.read(0, 64):
                break
            keep = True
        # A fork of the starting process may hold the pipe open; a new parent shows that the starting process died.
        if stop_requested or os.getppid() != starting_process:
            break
    if server.poll() is not None:
        return server.returncode
    stop(server)
    if not keep:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def stop(server: subprocess.Popen[bytes], seconds: float = _STOP_SECONDS) -> None:
    """Ask the server to stop; kill it after the given time."""
    server.terminate()
    deadline = time.monotonic() + seconds
    while server.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    if server.poll() is None:
        server.kill()
    server.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
