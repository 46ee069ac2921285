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


class DescribeIsGone:
    def it_knows_that_a_run_of_this_process_is_alive_while_it_has_a_lock(self, locked):
        assert is_gone(locked, LeaseHolder.this_process("another run")) is False

    def it_knows_that_a_run_of_this_process_ended_although_the_process_lives(self, here):
        assert is_gone(here, here) is True

    def it_cannot_tell_for_another_machine(self, here):
        assert is_gone(replace(here, host="elsewhere"), here) is None

    def it_knows_that_another_process_is_alive(self, here, theirs):
        assert is_gone(theirs, here) is False

    @pytest.mark.parametrize(("age", "gone"), [(59, False), (61, True), (-5, True)])
    def it_treats_a_process_that_does_not_renew_its_lease_as_gone(self, here, theirs, locked, age, gone):
        renewed = time.monotonic() - age
        assert [is_gone(replace(holder, renewed=renewed), here) for holder in (theirs, locked)] == [gone, gone]

    def it_knows_that_a_process_ended(self, here, theirs, other):
        other.communicate(b"\n")
        assert is_gone(theirs, here) is True

    @pytest.mark.skipif(not hasattr(os, "waitid"), reason="the system has no waitid")
    def it_knows_that_a_process_ended_whose_parent_did_not_wait_for_it(self, here, theirs, other):
        other.kill()
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
        assert is_gone(theirs, here) is True

    def it_distinguishes_a_later_process_with_the_same_number(self, here, theirs):
        assert is_gone(replace(theirs, started="1"), here) is True

    @pytest.mark.parametrize("pid", [2**31, 2**63, 2**70])
    def it_treats_a_process_with_an_impossible_number_as_gone(self, here, pid):
        assert is_gone(replace(here, pid=pid, run_id="other run"), here) is True
