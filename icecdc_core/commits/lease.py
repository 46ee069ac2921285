"""Who runs: the identity of a run, and whether the process behind it is still there."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class LeaseHolder:
    """The run that holds a table.

    Attributes:
        run_id: The run.
        host: The machine and process namespace it runs in.
        pid: Its driver process.
        started: When that process started, as the operating system says it; process ids are used again.
        since: When the run took the table (ISO 8601).
        lease_seconds: Seconds after which the run loses the table unless it renews its lease.
        renewed: When it last did, by the monotonic clock that all processes of its machine share.
    """

    run_id: str
    host: str
    pid: int
    started: str
    since: str
    lease_seconds: float = 0.0
    renewed: float = 0.0

    @classmethod
    def this(cls, run_id: str, lease_seconds: float = 0.0) -> LeaseHolder:
        """Return the owner that this process is."""
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        return cls(run_id, _host(), os.getpid(), _started(os.getpid()), now, lease_seconds).renewing()

    def renewing(self) -> LeaseHolder:
        """Return the owner as it renews its lease now."""
        return replace(self, renewed=time.monotonic())


_at_work: set[str] = set()
"""Runs of this process that hold an index."""


def is_gone(holder: Mapping[str, Any], here: LeaseHolder) -> bool | None:
    """Return whether the holder lost the table; None when that cannot be known from this machine.

    On one machine a process that ended loses it at once, and a process that is there but does not renew its lease,
    because it is stopped or does other work, loses it after the holder's ``lease_seconds``. A process outlives its
    runs where it polls: of its own runs it knows itself which still hold an index.
    """
    if holder.get("host") != here.host:
        return None
    if (holder.get("pid"), holder.get("started")) == (here.pid, here.started):
        if holder.get("run_id") not in _at_work:
            return True
    elif not _is_there(holder):
        return True
    lease, renewed = holder.get("lease_seconds"), holder.get("renewed")
    if not isinstance(lease, (int, float)) or not isinstance(renewed, (int, float)) or not lease:
        return None  # an older release does not say when it renewed its lease
    return not 0 <= time.monotonic() - renewed < lease


def begin_work(run_id: str) -> None:
    """Note that a run of this process holds an index."""
    _at_work.add(run_id)


def end_work(run_id: str) -> None:
    """Note that it does so no more."""
    _at_work.discard(run_id)


def _host() -> str:
    parts = [socket.gethostname()]
    for source in (Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid")):
        try:
            parts.append(os.readlink(source) if source.is_symlink() else source.read_text().strip())
        except OSError:
            continue
    return "/".join(parts)


def _is_there(holder: Mapping[str, Any]) -> bool:
    pid = holder.get("pid")
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return _started(pid) == holder.get("started")


def _started(pid: int) -> str:
    try:
        # The name in field 2 may hold spaces, so count from its closing bracket; field 22 is the start time.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "ended" if fields[0] in "ZX" else fields[19]
    except (OSError, IndexError):
        return ""
