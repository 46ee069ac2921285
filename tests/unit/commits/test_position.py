"""What a stored position may look like, and whether the process behind a run is still there."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from icecdc_core.commits.position import (
    FORMAT,
    Batch,
    LeaseHolder,
    Position,
    active_runs,
    is_gone,
    parse_position,
    position_document,
)
from icecdc_core.commits.store import MAPPING, require_mapping
from icecdc_core.errors import PositionError
from icecdc_core.session.processes import started_at

BATCH = Batch("export", 4, None, 9, "t--000004", "uuid", {"branch": "main"}, "{}", groups_done=2, index_uuid="u")
POSITION = Position("t", "lake.ns.t", "uuid", 1, 4, "t--000003", {"branch": "main"}, "{}", BATCH)
HOLDER = LeaseHolder.this_process("run", 60.0)
STORED = position_document(POSITION, HOLDER)


class DescribeAStoredPosition:
    @pytest.mark.parametrize("position", [POSITION, replace(POSITION, batch=None), Position("t", "a.b.c", "")])
    @pytest.mark.parametrize("owner", [None, HOLDER], ids=["free", "held"])
    def it_is_read_as_it_was_written(self, position, owner):
        found, holder = parse_position(position_document(position, owner))
        assert (found, holder and replace(holder, renewed=HOLDER.renewed)) == (position, owner)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"format": FORMAT + 1}, f"it has format {FORMAT + 1}, and this release reads {FORMAT}"),
            ({"batch": {**STORED["batch"], "shard": 3}}, "batch.shard: Unexpected"),
            ({"owner": "me"}, "cannot be read"),
            ({"owner": {**STORED["owner"], "lease_seconds": 1e300}}, "lease_seconds: Input should be less"),
        ],
    )
    def it_is_refused_by_name(self, change, message):
        with pytest.raises(PositionError) as caught:
            parse_position({**STORED, **change})
        assert (message in str(caught.value), caught.value.value, "Remedy" in str(caught.value)) == (True, "t", True)


def it_accepts_the_mapping_in_the_form_that_the_server_returns_and_no_other():
    require_mapping("p", {**MAPPING, "dynamic": "false"})
    text = {**MAPPING["properties"], "type": {"type": "text"}}
    sources = ({"_source": {"enabled": False}}, {"_source": {"excludes": ["batch"]}})
    for mapping in ({}, *({**MAPPING, **each} for each in ({"properties": text}, {"dynamic": "true"}, *sources))):
        with pytest.raises(PositionError, match="icecdc did not create the positions index 'p'"):
            require_mapping("p", mapping)


@pytest.fixture
def here():
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


def it_knows_that_a_process_ended_also_if_its_parent_did_not_wait_for_it(here, theirs, other):
    if hasattr(os, "waitid"):
        other.kill()
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
        assert is_gone(theirs, here) is True
    other.communicate(b"\n")
    assert is_gone(theirs, here) is True
