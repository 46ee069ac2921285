"""Start a server's process, recognise it again although process ids are used again, and end it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from icecdc_core.local import watchdog
from icecdc_core.session.process_start import started_at

Spawn = Callable[[list[str], Path], "subprocess.Popen[bytes]"]
"""Starts a command with a file as its output."""

_KILL_SECONDS = 5.0
LOGGING = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d{ISO8601}][%-5p][%c{1.}] %m%n
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
"""
"""Log4j settings of a server: it logs to its output, in the form that `log_tail` reads."""


def guarded(folder: Path) -> Spawn:
    """Start servers under `watchdog`: the server ends with this process, and then the folder is removed."""

    def spawn(command: list[str], log: Path) -> subprocess.Popen[bytes]:
        guard = [sys.executable, str(Path(watchdog.__file__)), str(folder)]
        with log.open("wb") as output:
            return subprocess.Popen(
                [*guard, *command], stdin=subprocess.PIPE, stdout=output, stderr=output, start_new_session=True
            )

    return spawn


def detached(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    """Start a server that outlives this process."""
    with log.open("wb") as output:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)


def end(process: subprocess.Popen[bytes], seconds: float = 30.0) -> None:
    """End a process that was started here; kill it when it does not end in time."""
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
    """The last lines of a log: those with errors when there are any, else all kinds."""
    text = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.is_file() else []
    errors = [line for line in text if re.search(r"\[(ERROR|FATAL)|Exception|Error:|Caused by", line)]
    return "\n".join((errors or text)[-lines:])


def start_time(pid: int) -> str | None:
    """When the process started, as text, see `started_at`; None if it does not run any more."""
    try:
        return started_at(pid)
    except psutil.Error:
        return None


def end_process(pid: int, started: str, seconds: float = 20.0) -> None:
    """Ask a process to end, and kill it after the given time; only the process that started then."""
    if start_time(pid) != started:
        return
    with suppress(psutil.NoSuchProcess, psutil.TimeoutExpired):
        process = psutil.Process(pid)
        process.terminate()
        try:
            process.wait(seconds)
        except psutil.TimeoutExpired:
            process.kill()
            process.wait(_KILL_SECONDS)
