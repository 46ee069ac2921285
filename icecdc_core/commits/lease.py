"""The lease of a lock: which run holds it, and whether that run still renews it."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from icecdc_core.config.values import MAX_LEASE_SECONDS
from icecdc_core.session.processes import host_name, is_running, started_at


@dataclass(frozen=True)
class LeaseHolder:
    """The run that holds the lock of an index."""

    run_id: str
    host: str
    pid: int
    started: str
    since: str
    lease_seconds: float = 0.0
    renewed: float = 0.0

    @classmethod
    def this_process(cls, run_id: str, lease_seconds: float = 0.0) -> LeaseHolder:
        """Return this process as the holder."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(run_id, host_name(), os.getpid(), started_at(os.getpid()), now, lease_seconds).renewed_now()

    def renewed_now(self) -> LeaseHolder:
        """Return the holder with a renewal now."""
        return replace(self, renewed=time.monotonic())


_active_runs: set[str] = set()
"""Runs of this process that hold a lock."""


def is_gone(holder: Mapping[str, Any], here: LeaseHolder) -> bool | None:
    """Return whether a holder lost its lock; None if this machine cannot know.

    On the same machine, a process that ended loses its lock at once. A process that exists but does not renew its
    lease, because it is stopped or hangs, loses the lock after its ``lease_seconds``. A process that polls outlives its
    runs; it knows which of its own runs still hold a lock.
    """
    if holder.get("host") != here.host:
        return None
    if (holder.get("pid"), holder.get("started")) == (here.pid, here.started):
        if holder.get("run_id") not in _active_runs:
            return True
    elif not is_running(holder):
        return True
    lease, renewed = holder.get("lease_seconds"), holder.get("renewed")
    if not isinstance(lease, (int, float)) or not isinstance(renewed, (int, float)) or not lease:
        return None  # an older release does not store when it renewed its lease
    return not 0 <= time.monotonic() - renewed < lease


def lease_seconds_of(holder: Mapping[str, Any], fallback: float) -> float:
    """Return the lease of a holder in seconds."""
    lease = holder.get("lease_seconds")
    return float(lease) if isinstance(lease, (int, float)) and 0 < lease <= MAX_LEASE_SECONDS else fallback


def register_active_run(run_id: str) -> None:
    """Record that a run of this process holds a lock."""
    _active_runs.add(run_id)


def unregister_active_run(run_id: str) -> None:
    """Record that a run of this process no longer holds a lock."""
    _active_runs.discard(run_id)
