"""Spawn a server's process, recognise it again (an id alone may belong to somebody else by now), and end it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from icecdc_core.local import watchdog

Spawn = Callable[[list[str], Path], "subprocess.Popen[bytes]"]
"""Starts a command with a file as its output."""

LOGGING = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d{ISO8601}][%-5p][%c{1.}] %m%n
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
"""
"""Log4j's configuration for a server: to its output, in the form that `log_tail` reads."""


def guarded(folder: Path) -> Spawn:
    """Spawns under `watchdog`: the server ends with this process, and the folder is removed then."""

    def spawn(command: list[str], log: Path) -> subprocess.Popen[bytes]:
        guard = [sys.executable, str(Path(watchdog.__file__)), str(folder)]
        with log.open("wb") as output:
            return subprocess.Popen(
                [*guard, *command], stdin=subprocess.PIPE, stdout=output, stderr=output, start_new_session=True
            )

    return spawn


def detached(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    """Spawns a server that outlives this process."""
    with log.open("wb") as output:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)


def end(process: subprocess.Popen[bytes], seconds: float = 30.0) -> None:
    """End a process that was spawned here, by force if it does not within the given time."""
    if process.stdin:
        process.stdin.close()
    else:
        process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def log_tail(log: Path, lines: int = 12) -> str:
    """The last lines of a log, those with errors first of all."""
    text = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.is_file() else []
    errors = [line for line in text if re.search(r"\[(ERROR|FATAL)|Exception|Error:|Caused by", line)]
    return "\n".join((errors or text)[-lines:])


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
