"""A server that outlives this process is written down, so that any later process finds it again and can end it."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from icecdc_core.local.processes import end_process, start_time


@dataclass(frozen=True)
class LeftRunning(ABC):
    """A server that was left running: what is needed to find it again, and to be sure that it is ours."""

    pid: int
    started: str
    version: str
    log: str
    data_folder: str

    @property
    def alive(self) -> bool:
        """Whether the process is still the one that was started: ids are used again, start times are not."""
        return start_time(self.pid) == self.started

    @property
    @abstractmethod
    def healthy(self) -> bool:
        """Whether it answers."""


State = TypeVar("State", bound=LeftRunning)


class Place(Generic[State]):
    """Where the one server of a service that is left running is written down: a folder of the user's.

    Args:
        service: Name of the folder.
        kind: What is known of such a server.
    """

    def __init__(self, service: str, kind: type[State]) -> None:
        self._service = service
        self._kind = kind

    def status(self) -> State | None:
        """The server that is left running; None if there is none."""
        try:
            state = self._kind(**json.loads(self._file().read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None
        return state if state.alive else None

    def running(self, start: Callable[[Path], State]) -> State:
        """The server that is left running; else one is started in the folder and written down."""
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
        """Stop the server that is left running, and no other; says whether there was one."""
        state = self.status()
        if state is not None:
            end_process(state.pid, state.started)
        if remove_data:
            for data in self._file().parent.glob("data*"):
                shutil.rmtree(data, ignore_errors=True)
        self._file().unlink(missing_ok=True)
        return state is not None

    def _file(self) -> Path:
        base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        return Path(base) / "icecdc" / self._service / "server.json"


def identity(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """What a process is known by later: `pid` and `started`."""
    return {"pid": process.pid, "started": start_time(process.pid) or ""}
