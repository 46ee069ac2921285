"""The rules of positions: who gets the lock, who loses it, which write wins, and what a release waits for."""

from __future__ import annotations

import threading
import time

import pytest

from icecdc_core.commits.positions import PositionStore
from icecdc_core.config import SyncConfig
from icecdc_core.errors import FencedError
from icecdc_core.opensearch.client import Connection
from tests.unit.commits.tiny_opensearch import error, tiny_opensearch

POSITION = "position:t"
CONFLICT = error(409, "version_conflict_engine_exception")


@pytest.fixture
def server():
    """A small server without indexes."""
    with tiny_opensearch() as started:
        yield started


@pytest.fixture
def store(server):
    """Build a position store; keyword arguments are parameters of the job."""
    clients = []

    def build(**overrides):
        values = {"table": "lake.ns.t", "index": "t", "opensearch_url": server.url, "positions_index": "positions"}
        config = SyncConfig(**{**values, **overrides})
        clients.append(Connection.of(config).client(retry_seconds=config.retry_timeout_seconds))
        return PositionStore(clients[-1], config)

    yield build
    for client in clients:
        client.close()


@pytest.fixture
def lock(store):
    """A lock on the index of the table `lake.ns.t`, released at the end."""
    taken = store().lock("lake.ns.t", "uuid", "the-run")
    yield taken
    taken.release()


def stored(server):
    return server.document("positions", POSITION)["_source"]


def is_position(path):
    return "/_doc/position" in path


def await_true(condition, seconds=20):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.02)


class DescribeRelease:
    def it_waits_only_seconds_for_the_answer_after_a_conflict(self, server, store):
        lock = store(request_timeout_seconds=120).lock("lake.ns.t", "", "the-run")
        ended = threading.Event()

        def trouble(method, path):
            if not is_position(path):
                return None
            return ended.wait(60) and None if method == "GET" else CONFLICT

        server.trouble = trouble
        begun = time.monotonic()
        lock.release()
        seconds = time.monotonic() - begun
        ended.set()
        assert seconds < 15

    @pytest.mark.parametrize("owner", ["somebody", ["somebody"], 7])
    def it_leaves_a_position_alone_whose_owner_somebody_edited(self, server, store, owner):
        lock = store().lock("lake.ns.t", "", "the-run")
        document = server.document("positions", POSITION)
        document["_source"]["owner"], document["_seq_no"] = owner, 99
        lock.release()
        assert (stored(server)["owner"], document["_seq_no"]) == (owner, 99)


class DescribeTheRenewal:
    @pytest.mark.parametrize("owner", ["somebody", ["somebody"], 7])
    def it_ends_when_somebody_edited_the_owner(self, server, store, owner):
        lock = store(lease_seconds=1).lock("lake.ns.t", "", "the-run")
        document = server.document("positions", POSITION)
        document["_source"]["owner"], document["_seq_no"] = owner, 99
        threads = [thread for thread in threading.enumerate() if thread.name == "icecdc-lease"]
        await_true(lambda: not any(thread.is_alive() for thread in threads))
        with pytest.raises(FencedError):
            lock.write(lock.position)
        lock.release()
        assert stored(server)["owner"] == owner
