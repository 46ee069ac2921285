"""Processes: which one a process id means, and whether it still runs."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from icecdc_core.session.process_start import started_at


def host_name() -> str:
    """Return the machine, its boot and the process namespace: within all three, a process id means one process.

    psutil knows neither the boot id nor the namespace. Containers share host names and start with the same process ids.
    """
    parts = [socket.gethostname()]
    for source in (Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid")):
        try:
            parts.append(os.readlink(source) if source.is_symlink() else source.read_text().strip())
        except OSError:
            continue
    return "/".join(parts)


def is_running(holder: Mapping[str, Any]) -> bool:
    """Return whether the process of a holder still runs; it is a process of this host."""
    pid = holder.get("pid")
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        # Where there is no /proc, an older release stored no start time.
        return holder.get("started") in ("", started_at(pid))
    except psutil.AccessDenied:
        return True  # the process of another user: only its lease can show that it is gone
    except psutil.NoSuchProcess:
        return False
