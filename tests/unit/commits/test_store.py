"""The rules of positions: who gets the lock, who loses it, which write wins, and what a release waits for."""

import threading
import time
from dataclasses import asdict, replace
from unittest import mock

import pytest

from icecdc_core.commits.position import Batch, LeaseHolder, Position, position_document
from icecdc_core.commits.store import MAX_EPOCH, PositionStore
from icecdc_core.config import SyncConfig
from icecdc_core.errors import (
    IndexNotFoundError,
    OpenSearchRequestError,
    OpenSearchUnreachableError,
    PositionError,
    TableLockedError,
)
from icecdc_core.opensearch.client import Connection
from tests.checks.waiting import await_true
from tests.servers.tiny_opensearch import error
from tests.simulation.simulated_opensearch import Document, Index

POSITION = "position:t"
CONFLICT = error(409, "version_conflict_engine_exception")
BATCH = Batch("sync", 4, 7, 8, "t--000003")


@pytest.fixture
def store(server):
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
    taken = store().lock("lake.ns.t", "uuid", "the-run")
    yield taken
    taken.release()


def stored(server):
    return server.document("positions", POSITION).source


def holder(server, **changes):
    """Store a position whose lock another run has, as if it was written elsewhere."""
    owner = asdict(replace(LeaseHolder.this_process("other-run", 60.0), **changes))
    position = position_document(Position("t", "lake.ns.t", "uuid", 7, 3, "t--000003"), None)
    server.indexes["positions"].documents[POSITION] = Document(1, 5, {**position, "owner": owner})


def is_position(path):
    return "/_doc/position" in path


def it_locks_from_the_moment_that_the_position_is_written_for_a_run_of_the_same_process_too(server, store):
    request, second = server.request, store()

    def answered(method, target, body):
        made = request(method, target, body)
        if method == "PUT" and is_position(target):
            server.request = request
            with pytest.raises(TableLockedError, match="first"):
                second.lock("lake.ns.t", "uuid", "second")
        return made

    server.request = answered
    first = store().lock("lake.ns.t", "uuid", "first")
    first.write(replace(first.position, snapshot_id=9))
    first.release()
    assert stored(server)["snapshot_id"] == 9
    # Nothing is locked after a write that failed.
    server.trouble = lambda method, path: error(400, "refused") if method == "PUT" and is_position(path) else None
    with pytest.raises(OpenSearchRequestError):
        store().lock("lake.ns.t", "uuid", "first")
    server.trouble = None
    store().lock("lake.ns.t", "uuid", "second").release()


def it_ends_the_renewals_after_an_interrupt_while_the_lease_begins(server, store, monkeypatch):
    class Interrupted(threading.Thread):
        def start(self):
            super().start()
            if self.name == "icecdc-lease":
                renewing.append(self)
                raise KeyboardInterrupt

    renewing = []
    monkeypatch.setattr(threading, "Thread", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        store().lock("lake.ns.t", "uuid", "the-run")
    (thread,) = renewing
    thread.join(5)
    assert not thread.is_alive()


class DescribeTheLock:
    def it_is_refused_to_another_run_and_free_after_a_release_and_the_position_stays(self, server, store, lock):
        found, index = stored(server), server.indexes["positions"]
        assert (found["table"], found["snapshot_id"], found["owner"]["run_id"]) == ("lake.ns.t", None, "the-run")
        assert (index.mappings["dynamic"], list(index.aliases)) == (False, ["positions--WRITE"])
        with pytest.raises(TableLockedError, match=r"run the-run, process \d+ on .*Remedy: wait until it ends"):
            store().lock("lake.ns.t", "uuid", "the-next-run")
        lock.write(replace(lock.position, snapshot_id=7, physical_index="t--000003"))
        lock.release()
        again = store().lock("lake.ns.t", "uuid", "the-next-run")
        again.release()
        assert (again.position.snapshot_id, stored(server)["owner"]) == (7, None)

    def it_is_acquired_at_once_from_a_holder_on_this_machine_that_is_gone(self, server, store):
        store().lock("lake.ns.t", "uuid", "the-run").release()
        holder(server, pid=2**31)
        begun = time.monotonic()
        taken = store().lock("lake.ns.t", "uuid", "the-next-run")
        taken.release()
        assert (time.monotonic() - begun < 0.9, taken.position.snapshot_id) == (True, 7)

    def it_is_acquired_from_a_holder_elsewhere_only_if_it_is_silent_for_its_lease(self, server, store):
        store().lock("lake.ns.t", "uuid", "the-run").release()
        holder(server, host="elsewhere", lease_seconds=0.4)
        begun = time.monotonic()
        store().lock("lake.ns.t", "uuid", "the-next-run").release()
        assert 0.4 <= time.monotonic() - begun < 3.0
        holder(server, host="elsewhere", lease_seconds=8.0)
        reads = []

        def renewed(method, path):
            if is_position(path) and method == "GET":
                reads.append(path)
                server.document("positions", POSITION).seq_no = 5 + len(reads)

        server.trouble = renewed
        with pytest.raises(TableLockedError, match="run other-run"):
            store(lease_seconds=0.4).lock("lake.ns.t", "uuid", "the-next-run")
        assert len(reads) == 2


class DescribeABatch:
    def it_has_an_epoch_above_all_before_and_not_below_the_snapshot(self, lock):
        for epoch, sequence_number, new_index, expected in (
            *((3, 0, False, 4), (3, 9, False, 9), (3, 2, True, 4)),
            (MAX_EPOCH + 5, 0, False, MAX_EPOCH + 6),
        ):
            lock.write(replace(lock.position, epoch=epoch))
            assert lock.next_epoch(sequence_number, new_index) == expected

    def it_returns_to_the_epochs_of_the_log_when_it_creates_an_index_also_without_position(self, server, store, lock):
        lock.begin(BATCH)
        lock.commit(replace(lock.position, snapshot_id=8, epoch=MAX_EPOCH + 5), {})
        assert lock.next_epoch(0, new_index=True) == 5
        lock.release()
        del server.indexes["positions"].documents[POSITION]
        again = store().lock("lake.ns.t", "uuid", "the-run")
        assert again.next_epoch(0, new_index=True) == 5
        again.release()


class DescribeAConfirmation:
    @pytest.fixture
    def confirm(self, store):
        def run(before, time):
            store(retry_timeout_seconds=0).confirm(before, replace(before, current_at=f"2026-01-31T{time}+00:00"))

        return run

    def it_is_written_once_a_minute_at_most(self, server, store, confirm):
        store().lock("lake.ns.t", "uuid", "the-run").release()
        for second in range(0, 150, 10):
            confirm(store().read(), f"12:{second // 60:02}:{second % 60:02}.001")
        found = server.document("positions", POSITION)
        assert (found.source["current_at"], found.version) == ("2026-01-31T12:02:00.001+00:00", 5)

    def it_waits_for_no_lock_and_fails_no_poll(self, server, store, lock, confirm):
        confirm(lock.position, "12:00:00")
        lock.release()
        holder(server, host="elsewhere", lease_seconds=4.0)  # nobody here knows whether it is gone
        begun = time.monotonic()
        confirm(store().read(), "12:00:00")
        assert (time.monotonic() - begun < 0.9, stored(server)["current_at"]) == (True, None)
        holder(server, pid=2**31)
        server.trouble = lambda method, path: error(503, "busy") if method == "PUT" else None
        confirm(store().read(), "12:00:00")
        assert stored(server)["current_at"] is None

    def it_ends_the_lock_of_a_run_that_is_gone(self, server, store, confirm):
        store().lock("lake.ns.t", "uuid", "the-run").release()
        holder(server, pid=2**31)
        confirm(store().read(), "12:00:00")
        assert (stored(server)["owner"], stored(server)["current_at"]) == (None, "2026-01-31T12:00:00+00:00")


def it_creates_no_positions_index_by_accident(server, lock):
    for deleted in (server.indexes["positions"].documents, server.indexes):
        deleted.clear()
        with pytest.raises(IndexNotFoundError, match="deleted under the run"):
            lock.write(lock.position)
    assert server.indexes == {}


def it_adds_its_write_alias_to_a_restored_positions_index_and_refuses_several_indexes(server, store, lock):
    lock.release()
    server.indexes["positions"].aliases.clear()
    store().lock("lake.ns.t", "uuid", "the-next-run").release()
    assert list(server.indexes["positions"].aliases) == ["positions--WRITE"]
    del server.indexes["positions"]
    for number in (1, 2):
        server.indexes[f"p-{number}"] = Index(aliases={"positions": {}})
    with pytest.raises(PositionError, match=r"'positions' is not one index but \['p-1', 'p-2'\]"):
        store().lock("lake.ns.t", "uuid", "the-run")


class DescribeTheRenewal:
    def it_ends_with_a_write_without_an_answer_and_the_release_leaves_what_that_stored(self, server, store):
        request = server.request

        def unanswered(method, target, body):
            made = request(method, target, body)
            return error(503, "lost") if method == "PUT" and made[0] in (200, 201) else made

        taken = store(lease_seconds=0.1, retry_timeout_seconds=0).lock("lake.ns.t", "uuid", "the-run")
        with mock.patch.object(server, "request", unanswered), pytest.raises(OpenSearchUnreachableError):
            taken.begin(BATCH)
        time.sleep(0.3)
        assert stored(server)["epoch"] == 4
        taken.release()
        assert (stored(server)["epoch"], stored(server)["batch"]["epoch"], stored(server)["owner"]) == (4, 4, None)

    def it_continues_after_errors_of_any_kind(self, server, store):
        lock = store(lease_seconds=0.6).lock("lake.ns.t", "", "the-run")
        answers = [error(500, "broken"), (200, ["no", "object"]), CONFLICT, error(401, "security_exception")]

        def trouble(method, path):
            return answers.pop() if is_position(path) and method == "PUT" and answers else None

        server.trouble = lambda method, path: error(503, "busy") if method == "GET" else trouble(method, path)
        await_true(lambda: not answers)
        before = server.document("positions", POSITION).seq_no
        await_true(lambda: server.document("positions", POSITION).seq_no > before)
        server.trouble = None
        lock.write(lock.position)
        lock.release()
