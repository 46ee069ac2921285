"""When a process started: process ids are used again, an id and a start time together identify one process."""

from __future__ import annotations

import os

import psutil


def started_at(pid: int) -> str:
    """Return when a process started, as text."""
    process = psutil.Process(pid)
    if process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
        raise psutil.ZombieProcess(pid)
    boot, created = psutil.boot_time(), process.create_time()
    if not psutil.LINUX:
        return str(created)
    # Linux counts ticks since the boot. psutil adds the time of the boot, which changes when the clock is set.
    return str(round((created - boot) * os.sysconf("SC_CLK_TCK")))
