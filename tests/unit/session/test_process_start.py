"""The start time of a process, which distinguishes it from a later process with the same id."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pytest

from icecdc_core.session.processes import started_at


def it_is_the_same_whenever_it_is_read():
    assert started_at(os.getpid()) == started_at(os.getpid()) != ""


def it_does_not_exist_for_a_process_that_nobody_has_waited_for():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    while psutil.Process(ended.pid).status() != psutil.STATUS_ZOMBIE:
        pass
    with pytest.raises(psutil.NoSuchProcess):
        started_at(ended.pid)
    ended.wait()
