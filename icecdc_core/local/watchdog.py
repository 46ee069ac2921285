"""Run a server as a child process that cannot outlive the process that started it. This is a script.

Usage: `python watchdog.py FOLDER COMMAND...`. The server runs until this process gets a SIGTERM. If the starting
process dies, which ends the standard input, FOLDER with its data is removed too. If the server ends by itself, this
process ends with its exit code.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
from types import FrameType

_STOP_SECONDS = 20.0


def main(folder: str, command: list[str]) -> int:
    """Run the command until it, a SIGTERM or the starting process ends it; returns the exit code."""
    stop_requested = False

    def request_stop(_signal: int, _frame: FrameType | None) -> None:
        nonlocal stop_requested
        stop_requested = True

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the starting process gets it too, and decides
    signal.signal(signal.SIGTERM, request_stop)
    starting_process, orphaned = os.getppid(), False
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    while server.poll() is None and not stop_requested and not orphaned:
        # A fork of the starting process may hold the pipe open; a new parent shows that the starting process died.
        orphaned = bool(select.select([0], [], [], 0.2)[0]) or os.getppid() != starting_process
    if server.poll() is not None:
        return server.returncode
    server.terminate()
    try:
        server.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
    if orphaned:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
