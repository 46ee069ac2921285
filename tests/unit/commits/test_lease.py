"""Whether the process behind a run is still there: a truth table, with real processes."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from icecdc_core.commits.lock import active_runs, is_gone
from icecdc_core.commits.position import LeaseHolder
from icecdc_core.session.processes import started_at


@pytest.fixture
def here() -> LeaseHolder:
    return LeaseHolder.this_process("run", 60.0)


@pytest.fixture
def locked(here) -> Iterator[LeaseHolder]:
    active_runs.add(here.run_id)
    yield here
    active_runs.discard(here.run_id)


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    yield process
    process.kill()
    process.communicate()


@pytest.fixture
def theirs(here, other) -> LeaseHolder:
    return replace(here, run_id="other run", pid=other.pid, started=started_at(other.pid))


@pytest.mark.parametrize(
    ("holder", "changes", "gone"),
    [
        ("theirs", {}, False),
        # A run of this process, while it has a lock and after that.
        ("locked", {}, False),
        ("here", {}, True),
        ("here", {"host": "elsewhere"}, None),
        # A lease of a minute that is not renewed.
        *(("theirs", {"age": age}, gone) for age, gone in ((59, False), (61, True), (-5, True))),
        *(("locked", {"age": age}, gone) for age, gone in ((59, False), (61, True), (-5, True))),
        # A later process has the number.
        ("theirs", {"started": "1"}, True),
        # No process can have the number.
        *(("here", {"pid": pid, "run_id": "other run"}, True) for pid in (2**31, 2**63, 2**70)),
    ],
)
def it_knows_whether_a_holder_is_gone(request, here, holder, changes, gone):
    changed = {name: value for name, value in changes.items() if name != "age"}
    if "age" in changes:
        changed["renewed"] = time.monotonic() - changes["age"]
    found = replace(request.getfixturevalue(holder), **changed)
    assert is_gone(found, LeaseHolder.this_process("another run") if holder == "locked" else here) is gone


def it_knows_that_a_process_ended(here, theirs, other):
    other.communicate(b"\n")
    assert is_gone(theirs, here) is True


@pytest.mark.skipif(not hasattr(os, "waitid"), reason="the system has no waitid")
def it_knows_that_a_process_ended_whose_parent_did_not_wait_for_it(here, theirs, other):
    other.kill()
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
    assert is_gone(theirs, here) is True
