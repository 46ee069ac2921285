"""Recognise a process again and end it: an id alone may belong to somebody else by now."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path


def start_time(pid: int) -> str | None:
    """When the process started, in the system's own words; None if it does not run (any more).

    Id and start time together name a process for good, over a reboot too.
    """
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)  # a child of ours that ended would otherwise still be listed
    stat = Path(f"/proc/{pid}/stat")
    if Path("/proc/self/stat").exists():
        try:
            # The name before the last ")" may hold blanks; after it come the state and, 20th, the start in clock ticks.
            fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        except OSError:
            return None
        return None if fields[0] in "ZX" else f"{boot}/{fields[19]}"
    command = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
    listed = subprocess.run(command, capture_output=True, text=True, check=False, env={"LC_ALL": "C", **os.environ})
    state, _, started = listed.stdout.strip().partition(" ")
    return started.strip() if state and not state.startswith("Z") else None


def end_process(pid: int, started: str, seconds: float = 20.0) -> None:
    """Ask the process to end, and after the given time end it, as long as it is the one that started then."""
    for ending_signal, patience in ((signal.SIGTERM, seconds), (signal.SIGKILL, 5.0)):
        if start_time(pid) != started:
            return
        with suppress(ProcessLookupError):
            os.kill(pid, ending_signal)
        deadline = time.monotonic() + patience
        while start_time(pid) == started and time.monotonic() < deadline:
            time.sleep(0.1)
