"""The lease of a lock: a run that renews it keeps the lock, others lose it, and a lost lock hides no other error."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from icecdc_core.commits.position import Batch, Position
from icecdc_core.commits.store import PositionStore
from icecdc_core.errors import FencedError, RejectedDocumentsError, TableLockedError
from icecdc_core.opensearch.client import Connection
from icecdc_core.runs.batch import write_batch
from icecdc_core.runs.run import Look, Run
from tests.loopback_proxy import Act, loopback_proxy
from tests.waiting import await_true

ROOT = Path(__file__).parents[2]
HOLDER = """
import json, sys
from icecdc_core import SyncConfig
from icecdc_core.commits.store import PositionStore
from icecdc_core.errors import FencedError
from icecdc_core.opensearch.client import Connection
config = SyncConfig(**json.loads(sys.argv[1]))
lock = PositionStore(Connection.of(config).client(), config).lock(config.table, "", "the-stopped-run")
print("HELD", flush=True)
input()
try:
    lock.write(lock.position)
except FencedError:
    print("FENCED", flush=True)
lock.release()
"""


def store(config):
    return PositionStore(Connection.of(config).client(retry_seconds=config.retry_timeout_seconds), config)


def is_position(method, path):
    return "_doc/position" in path


def from_another_machine(path, body, answer):
    """As seen from another machine, where only the lease shows whether the holder is alive."""
    if is_position("GET", path) and (answer.get("_source") or {}).get("owner"):
        answer["_source"]["owner"]["host"] = "another machine"
    return answer


class DescribeTheRenewal:
    def it_keeps_the_lock_from_a_run_with_a_shorter_lease(self, make_config, opensearch, opensearch_url):
        config = make_config(lease_seconds=8)
        lock = store(config).lock(config.table, "", "the-run")
        with (
            loopback_proxy(opensearch_url, spoil=from_another_machine) as proxy,
            pytest.raises(TableLockedError, match="the-run"),
        ):
            store(config.replace(lease_seconds=1, opensearch_url=proxy.url)).lock(config.table, "", "the-next-run")
        lock.write(lock.position)
        lock.release()

    def it_loses_the_lock_elsewhere_after_the_holders_lease(self, make_config, opensearch, opensearch_url):
        config, dead = make_config(lease_seconds=3), threading.Event()
        with loopback_proxy(opensearch_url, trouble=lambda *_: Act.RESET if dead.is_set() else None) as cut:
            lock = store(config.replace(opensearch_url=cut.url)).lock(config.table, "", "the-dead-run")
            dead.set()
            begun = time.monotonic()
            with loopback_proxy(opensearch_url, spoil=from_another_machine) as proxy:
                through = config.replace(lease_seconds=1, opensearch_url=proxy.url)
                store(through).lock(config.table, "", "the-next-run").release()
            seconds = time.monotonic() - begun
            lock.release()
        assert 3 <= seconds < 20


class DescribeAStoppedProcess:
    def it_loses_the_lock_on_its_own_machine_after_its_lease(self, make_config, opensearch):
        config = make_config(lease_seconds=3)
        given = {name: getattr(config, name) for name in ("table", "index", "opensearch_url", "positions_index")}
        command = [sys.executable, "-c", HOLDER, json.dumps({**given, "lease_seconds": 3})]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        try:
            assert process.stdout.readline() == "HELD\n"
            time.sleep(4)
            with pytest.raises(TableLockedError, match="the-stopped-run"):
                store(config).lock(config.table, "", "too-early")
            process.send_signal(signal.SIGSTOP)
            time.sleep(4)
            lock = store(config).lock(config.table, "", "the-next-run")
            process.send_signal(signal.SIGCONT)
            printed, _ = process.communicate("go on\n", timeout=60)
            lock.write(lock.position)
            lock.release()
        finally:
            process.kill()
            process.wait()
        assert printed == "FENCED\n"


class DescribeRelease:
    def it_hides_no_error_and_waits_for_no_retry(self, spark, make_config, opensearch, opensearch_url):
        config = make_config(lease_seconds=1, retry_timeout_seconds=300)
        gone, tried = threading.Event(), []

        def trouble(method, path, body):
            if gone.is_set():
                tried.append(method)
                return Act.RESET
            return None

        with (
            loopback_proxy(opensearch_url, trouble=trouble) as proxy,
            Run("sync", spark, config.replace(opensearch_url=proxy.url)) as run,
        ):
            begun = 0.0

            def work():
                with run.lock(Look(Position(config.index, config.table, ""), type("Table", (), {"table_uuid": ""}))):
                    gone.set()
                    await_true(lambda: tried)
                    nonlocal begun
                    begun = time.monotonic()
                    raise ValueError("the run's own error")

            with pytest.raises(ValueError, match="the run's own error"):
                work()
            seconds = time.monotonic() - begun
        assert seconds < 15


class DescribeARejectedBatch:
    def it_is_reported_although_the_lock_was_lost_meanwhile(self, spark, make_config, opensearch):
        config = make_config(dead_letter_table="lake.ns.dead_letters_of_a_lost_run")
        with Run("sync", spark, config) as run:
            lock = run.positions.lock(config.table, "", run.run_id)
            physical = f"{config.index}--000001"
            body = {"mappings": {"properties": {"n": {"type": "long"}}}, "aliases": {f"{physical}--write": {}}}
            opensearch.indices.create(index=physical, body=body)
            lock.begin(Batch("sync", 1, None, None, physical))
            where = {"index": config.positions_index, "id": f"position:{config.index}"}
            source = opensearch.get(**where)["_source"]
            opensearch.index(**where, body={**source, "owner": {**source["owner"], "run_id": "the-next-run"}})
            action = '{"index":{"_id":"1","version":3,"version_type":"external"}}\n{"n":"no number"}\n'
            with pytest.raises(RejectedDocumentsError):
                write_batch(run, lock, spark.createDataFrame([(action,)], "action string"))
            with pytest.raises(FencedError):
                lock.write(lock.position)
            lock.release()
        spark.sql("DROP TABLE IF EXISTS lake.ns.dead_letters_of_a_lost_run")
