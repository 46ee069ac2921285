"""Records of servers that outlive this process, so that later processes find them again and can stop them."""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from icecdc_core.local.processes import end_process, start_time
from icecdc_core.user_folders import user_folder


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
