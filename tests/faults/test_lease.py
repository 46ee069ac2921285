"""The lease of a lock: a run that renews it keeps the lock, others lose it, and whoever lost it changes nothing."""

import json
import multiprocessing
import os
import signal
import threading
import time
from types import SimpleNamespace

import pytest

from icecdc_core import sync_changes, validate_table
from icecdc_core.commits.position import Position
from icecdc_core.commits.store import PositionStore
from icecdc_core.errors import FencedError, TableLockedError
from icecdc_core.opensearch.bulk import BulkWriter
from icecdc_core.opensearch.client import Connection
from icecdc_core.opensearch.indexes import write_alias
from icecdc_core.runs.run import Run
from tests.checks.bulk_writes import write
from tests.checks.waiting import await_true
from tests.servers.loopback_proxy import Act, loopback_proxy


def store(config):
    return PositionStore(Connection.of(config).client(), config)


def hold(config, pipe):
    """Have the lock, and write when this process is asked to."""
    lock = store(config).lock(config.table, "", "the-stopped-run")
    pipe.send("held")
    pipe.recv()
    try:
        lock.write(lock.position)
    except FencedError:
        pipe.send("fenced")
    lock.release()


def it_restores_no_document_while_tombstones_exist_and_repairs_it_later(spark, exported, opensearch, indexed, equal):
    physical = PositionStore(opensearch, exported).read().physical_index
    writer = BulkWriter(Connection(exported.opensearch_url), write_alias(physical), 4096, 1, 5.0, 0)
    head = {"index": {"_id": "0", "version": 3, "version_type": "external"}}

    def write_late():
        """Write the deleted document 0 again, as a task of a run of long ago does it."""
        # The index forgets on its own time, when it is written to or refreshed.
        opensearch.indices.refresh(index=physical)
        return write(writer, f'{json.dumps(head)}\n{{"id": 0, "name": "old"}}\n').counts

    sync_changes(spark, exported)
    assert (write_late().already_applied, equal(exported)) == (1, True)
    opensearch.indices.put_settings(index=physical, body={"index.gc_deletes": "1ms"})
    await_true(lambda: write_late().upserts, 60)
    assert "0" in indexed()
    report = validate_table(spark, exported.replace(repair=True))
    assert (report.repaired, report.ok, equal(exported)) == (1, True, True)


def it_takes_the_lock_of_a_stopped_process_after_its_lease(make_config, opensearch):
    config = make_config(lease_seconds=2)
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=hold, args=(config, there))
    process.start()
    try:
        assert here.poll(60)
        assert here.recv() == "held"
        time.sleep(2.3)
        with pytest.raises(TableLockedError, match="the-stopped-run"):
            store(config).lock(config.table, "", "too-early")
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(2.3)
        lock = store(config).lock(config.table, "", "the-next-run")
        os.kill(process.pid, signal.SIGCONT)
        here.send("go on")
        assert here.poll(60)
        assert here.recv() == "fenced"
        process.join(60)  # it has released its lock too
        lock.write(lock.position)
        lock.release()
    finally:
        process.kill()
        process.join()


def it_hides_no_error_and_waits_for_no_retry_when_it_releases_the_lock(spark, make_config, opensearch, opensearch_url):
    config = make_config(lease_seconds=1, retry_timeout_seconds=300)
    gone, tried, begun = threading.Event(), [], []

    def trouble(method, path, body):
        if gone.is_set():
            tried.append(method)
            return Act.RESET
        return None

    with (
        loopback_proxy(opensearch_url, trouble=trouble) as proxy,
        Run("sync", spark, config.replace(opensearch_url=proxy.url)) as run,
    ):

        def work():
            source = SimpleNamespace(metadata=SimpleNamespace(table_uuid=""))
            with run.lock(Position(config.index, config.table, ""), source):
                gone.set()
                await_true(lambda: tried)
                begun.append(time.monotonic())
                raise ValueError("the run's own error")

        with pytest.raises(ValueError, match="the run's own error"):
            work()
        seconds = time.monotonic() - begun[0]
    assert seconds < 15
