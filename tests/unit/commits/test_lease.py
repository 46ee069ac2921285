"""Whether the process behind a run is still there: a truth table, with real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime

import pytest

from icecdc_core.commits.lease import LeaseHolder, is_gone, lease_seconds_of, register_active_run, unregister_active_run


@pytest.fixture
def here() -> LeaseHolder:
    """The owner that this process is."""
    return LeaseHolder.this_process("run", 60.0)


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    """Another process that waits for a line of input."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    yield process
    process.kill()
    process.communicate()


def owner_of(process: subprocess.Popen[bytes]) -> LeaseHolder:
    """The owner that another process would call itself."""
    pid = process.pid
    with open(f"/proc/{pid}/stat") as stat:
        started = stat.read().rpartition(")")[2].split()[19]
    since, now = "2026-01-01T00:00:00+00:00", time.monotonic()
    return LeaseHolder(
        "other run", LeaseHolder.this_process("").host, pid, started, since, lease_seconds=60.0, renewed=now
    )


needs_proc = pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="start times come from /proc")


class DescribeLeaseHolder:
    def it_names_this_process_and_since_when(self, here):
        since = datetime.fromisoformat(here.since)
        assert (here.run_id, here.pid, since.tzinfo is not None) == ("run", os.getpid(), True)

    def it_is_the_same_process_in_every_run_of_it(self, here):
        again = LeaseHolder.this_process("another run")
        assert (again.host, again.pid, again.started) == (here.host, here.pid, here.started)

    @needs_proc
    def it_has_the_start_of_the_process_in_ticks_since_the_boot(self, here):
        with open("/proc/self/stat") as stat:
            ticks = stat.read().rpartition(")")[2].split()[19]
        assert here.started == ticks


class DescribeIsGone:
    def it_knows_that_a_run_of_this_process_is_alive_while_it_has_a_lock(self, here):
        register_active_run(here.run_id)
        try:
            assert is_gone(asdict(here), here) is False
        finally:
            unregister_active_run(here.run_id)

    def it_knows_that_a_run_of_this_process_ended_although_the_process_lives(self, here):
        assert is_gone(asdict(here), here) is True

    def it_cannot_tell_for_another_machine(self, here):
        assert is_gone({**asdict(here), "host": "elsewhere"}, here) is None

    def it_cannot_tell_for_a_holder_without_a_machine(self, here):
        assert is_gone({"run_id": "x"}, here) is None

    @needs_proc
    def it_knows_that_another_process_is_alive(self, here, other):
        assert is_gone(asdict(owner_of(other)), here) is False

    def it_accepts_a_holder_whose_start_an_older_release_did_not_store(self, here, other):
        assert is_gone({**asdict(owner_of(other)), "started": ""}, here) is False

    @needs_proc
    @pytest.mark.parametrize(("age", "gone"), [(59, False), (61, True), (-5, True)])
    def it_treats_a_process_that_does_not_renew_its_lease_as_gone(self, here, other, age, gone):
        assert is_gone({**asdict(owner_of(other)), "renewed": time.monotonic() - age}, here) is gone

    def it_treats_a_run_of_this_process_that_does_not_renew_its_lease_as_gone(self, here):
        register_active_run(here.run_id)
        try:
            assert is_gone({**asdict(here), "renewed": time.monotonic() - 61}, here) is True
        finally:
            unregister_active_run(here.run_id)

    @needs_proc
    @pytest.mark.parametrize("unknown", ["lease_seconds", "renewed"])
    def it_cannot_tell_for_a_living_process_without_a_time_of_renewal(self, here, other, unknown):
        holder = asdict(owner_of(other))
        del holder[unknown]
        assert is_gone(holder, here) is None

    @needs_proc
    def it_treats_a_holder_without_a_process_as_gone(self, here):
        assert is_gone({"run_id": "x", "host": here.host}, here) is True

    @needs_proc
    def it_knows_that_a_process_ended(self, here, other):
        holder = asdict(owner_of(other))
        other.communicate(b"\n")
        assert is_gone(holder, here) is True

    @needs_proc
    def it_knows_that_a_process_ended_whose_parent_did_not_wait_for_it(self, here, other):
        holder = asdict(owner_of(other))
        other.kill()
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
        assert is_gone(holder, here) is True

    @needs_proc
    def it_distinguishes_a_later_process_with_the_same_number(self, here, other):
        assert is_gone({**asdict(owner_of(other)), "started": "1"}, here) is True

    @pytest.mark.parametrize("pid", [2**31, 2**63, 2**70, 0, -1, "7", None, True, [7]])
    def it_treats_a_process_with_an_impossible_number_as_gone(self, here, pid):
        assert is_gone({**asdict(here), "pid": pid, "run_id": "other run"}, here) is True


class DescribeLeaseOf:
    @pytest.mark.parametrize(
        ("lease", "seconds"),
        [(5, 5.0), (3600, 3600.0), (1e300, 60.0), (-1, 60.0), (0, 60.0), ("x", 60.0), (None, 60.0)],
    )
    def it_trusts_only_a_lease_that_a_run_may_ask_for(self, lease, seconds):
        assert lease_seconds_of({"lease_seconds": lease}, 60.0) == seconds
