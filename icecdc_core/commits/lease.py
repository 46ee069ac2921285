"""The lease of a lock: which run holds it, and whether that run still renews it."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import psutil

from icecdc_core.config.values import MAX_LEASE_SECONDS


@dataclass(frozen=True)
class LeaseHolder:
    """The run that holds the lock of an index.

    Attributes:
        run_id: The run.
        host: The machine and process namespace it runs in.
        pid: Its driver process.
        started: When that process started, as text; a process id alone may belong to a later process.
        since: When the run acquired the lock (ISO 8601).
        lease_seconds: Seconds without a renewal after which the lock expires.
        renewed: The time of the last renewal by the monotonic clock that all processes of the machine share.
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
        """Return this process as the holder.

        Args:
            run_id: The run.
            lease_seconds: Seconds without a renewal after which its lock expires.
        """
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        return cls(run_id, _host(), os.getpid(), _started(os.getpid()), now, lease_seconds).renewing()

    def renewing(self) -> LeaseHolder:
        """Return the holder with a renewal now."""
        return replace(self, renewed=time.monotonic())


_active_runs: set[str] = set()
"""Runs of this process that hold a lock."""


def is_gone(holder: Mapping[str, Any], here: LeaseHolder) -> bool | None:
    """Return whether a holder lost its lock; None if this machine cannot know.

    On the same machine, a process that ended loses its lock at once. A process that exists but does not renew its
    lease, because it is stopped or hangs, loses the lock after its ``lease_seconds``. A process that polls outlives its
    runs; it knows which of its own runs still hold a lock.

    Args:
        holder: The holder as stored in the position.
        here: A holder of this process.
    """
    if holder.get("host") != here.host:
        return None
    if (holder.get("pid"), holder.get("started")) == (here.pid, here.started):
        if holder.get("run_id") not in _active_runs:
            return True
    elif not _exists(holder):
        return True
    lease, renewed = holder.get("lease_seconds"), holder.get("renewed")
    if not isinstance(lease, (int, float)) or not isinstance(renewed, (int, float)) or not lease:
        return None  # an older release does not store when it renewed its lease
    return not 0 <= time.monotonic() - renewed < lease


def lease_of(holder: Mapping[str, Any], fallback: float) -> float:
    """Return the lease of a holder in seconds.

    Args:
        holder: The holder as stored in the position.
        fallback: The lease of a holder whose own is missing or none that a run may ask for.
    """
    lease = holder.get("lease_seconds")
    return float(lease) if isinstance(lease, (int, float)) and 0 < lease <= MAX_LEASE_SECONDS else fallback


def begin_work(run_id: str) -> None:
    """Record that a run of this process holds a lock."""
    _active_runs.add(run_id)


def end_work(run_id: str) -> None:
    """Record that a run of this process no longer holds a lock."""
    _active_runs.discard(run_id)


def _host() -> str:
    """The machine, its boot and the process namespace: within all three, a process id means one process.

    psutil knows neither the boot id nor the namespace. Containers share host names and start with the same process ids.
    """
    parts = [socket.gethostname()]
    for source in (Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid")):
        try:
            parts.append(os.readlink(source) if source.is_symlink() else source.read_text().strip())
        except OSError:
            continue
    return "/".join(parts)


def _exists(holder: Mapping[str, Any]) -> bool:
    pid = holder.get("pid")
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        # Where there is no /proc, an older release stored no start time.
        return holder.get("started") in ("", _started(pid))
    except psutil.AccessDenied:
        return True  # the process of another user: only its lease can show that it is gone
    except psutil.NoSuchProcess:
        return False


def _started(pid: int) -> str:
    """When a process started, as text.

    Raises:
        psutil.NoSuchProcess: There is no such process, or it ended and its parent did not wait for it yet.
        psutil.AccessDenied: Its details are hidden from this user.
    """
    process = psutil.Process(pid)
    if process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
        raise psutil.ZombieProcess(pid)
    boot, created = psutil.boot_time(), process.create_time()
    if not psutil.LINUX:
        return str(created)
    # Linux counts ticks since the boot. psutil adds the time of the boot, which changes when the clock is set.
    return str(round((created - boot) * os.sysconf("SC_CLK_TCK")))
