"""Start a server's process, recognise it again although process ids are used again, and end it."""

from __future__ import annotations

import errno
import fcntl
import json
import random
import re
import shutil
import socket
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import psutil

from icecdc_core.errors import ConfigError, DiskFullError, ServiceStartError
from icecdc_core.local import watchdog
from icecdc_core.session.processes import started_at
from icecdc_core.user_folders import user_folder

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


DEFAULT_PORT = 9200
_LARGEST_PORT = 9299  # the embedded server refuses ports above


def candidate_ports(port: int = 0, first: int = 0) -> list[int]:
    """Return the ports to try."""
    if port:
        if not 1024 <= port <= _LARGEST_PORT:
            raise ConfigError(
                "The embedded OpenSearch cannot use this port",
                subject="port",
                value=port,
                remedy=f"use one from 1024 to {_LARGEST_PORT}, or none: then a free one is found",
            )
        return [port]
    others = list(range(DEFAULT_PORT + 1, _LARGEST_PORT + 1))
    lower = list(range(8200, DEFAULT_PORT))
    random.shuffle(others)
    random.shuffle(lower)
    return [first] * bool(first) + others + lower


def free_ports(ports: list[int]) -> Iterator[int]:
    """Yield the ports on which nothing listens at that moment."""
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        yield port


@contextmanager
def folder_errors(data_folder: Path, service: str) -> Iterator[None]:
    """Turn the errors of the operating system in the block into typed errors."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise disk_full_error(data_folder, service) from error
        raise ServiceStartError(
            f"The folder of the embedded {service} cannot be used: {error}",
            subject="data_folder",
            value=str(data_folder),
            remedy="give a folder you may write to",
        ) from error


def disk_full_error(data_folder: Path, service: str) -> DiskFullError:
    """The error of a full disk."""
    return DiskFullError(
        f"No room left for the data of the embedded {service}",
        subject="data_folder",
        value=str(data_folder),
        remedy="free some space, or give a data_folder on another disk (the default one follows TMPDIR)",
    )


@dataclass(frozen=True)
class LeftRunning(ABC):
    """A server that runs in the background, with what identifies its process."""

    pid: int
    started: str
    version: str
    log: str
    data_folder: str

    @property
    def alive(self) -> bool:
        """Whether the process is still the one that was started: process ids are used again, start times are not."""
        return start_time(self.pid) == self.started

    @property
    @abstractmethod
    def healthy(self) -> bool:
        """Whether the server answers."""


State = TypeVar("State", bound=LeftRunning)


class Place(Generic[State]):
    """The record of a service's server in the background: a file in the user's state folder."""

    def __init__(self, service: str, kind: type[State]) -> None:
        self._service = service
        self._kind = kind

    def status(self) -> State | None:
        """The server that runs in the background; None if there is none."""
        try:
            state = self._kind(**json.loads(self._file().read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None
        return state if state.alive else None

    def running(self, start: Callable[[Path], State]) -> State:
        """Return the server that runs in the background; else start one in the folder and record it."""
        folder = self._file().parent
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            found = self.status()
            if found is not None and found.healthy:
                return found
            if found is not None:
                self.stop()
            state = start(folder)
            unfinished = self._file().with_suffix(".new")
            unfinished.write_text(json.dumps(asdict(state), indent=2), encoding="utf-8")
            unfinished.replace(self._file())
            return state

    def stop(self, *, remove_data: bool = False) -> bool:
        """Stop the server that runs in the background, and no other; returns whether there was one."""
        state = self.status()
        if state is not None:
            end_process(state.pid, state.started)
        if remove_data:
            for data in self._file().parent.glob("data*"):
                shutil.rmtree(data, ignore_errors=True)
        self._file().unlink(missing_ok=True)
        return state is not None

    def _file(self) -> Path:
        return user_folder("XDG_STATE_HOME", ".local/state") / self._service / "server.json"


def identity(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """What identifies a process later: `pid` and `started`."""
    return {"pid": process.pid, "started": start_time(process.pid) or ""}
