"""Applications that write a table and wait until searches find it, while a sync polls in another thread."""

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict
from datetime import UTC, datetime

import pytest

from icecdc_core import export_table, sync_changes, wait_for
from icecdc_core.commits import store
from icecdc_core.commits.position import Batch
from icecdc_core.errors import IndexLaggingError, SnapshotNotFoundError, StatusUnknownError
from icecdc_core.table.metadata_reader import read_metadata
from tests.integration.jobs.test_status import ROOT, WITHOUT_SPARK


@pytest.fixture
def icecdc():
    def run(config, *arguments):
        """The command of an application without Spark, and its report."""
        names = ("index", "opensearch_url", "positions_index", "warehouse", "catalog_properties")
        given = {name: getattr(config, name) for name in names if getattr(config, name)}
        given = {name: value if isinstance(value, str) else json.dumps(value) for name, value in given.items()}
        options = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
        command = [sys.executable, "-c", WITHOUT_SPARK, *arguments, *options, "--json"]
        ended = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
        return ended.returncode, json.loads(ended.stdout.splitlines()[-1])

    return run


@pytest.fixture
def head(sql):
    return lambda: sql("SELECT snapshot_id FROM {t}.history ORDER BY made_current_at DESC LIMIT 1").first()[0]


def it_returns_when_a_search_finds_what_each_of_three_writers_wrote(spark, sql, new_index, opensearch, icecdc, head):
    config = new_index("CREATE TABLE {t} (id BIGINT, name STRING) USING iceberg", "INSERT INTO {t} VALUES (0, 'a')")
    missed, took = [], []

    def write(writer):
        for number in range(3):
            identity = 100 * writer + number
            sql(f"INSERT INTO {{t}} VALUES ({identity}, 'new')")
            began = time.monotonic()
            if writer == 1:
                wait_for(config, snapshot_id=head(), timeout=60)
            elif writer == 2:
                wait_for(config, committed_by=datetime.now(UTC), timeout=60)
            else:
                assert icecdc(config, "wait", "--now", "--timeout", "60s")[0] == 0
            took.append(time.monotonic() - began)
            body = {"query": {"term": {"id": identity}}}
            if opensearch.search(index=config.index, body=body)["hits"]["total"]["value"] != 1:
                missed.append(identity)

    with ThreadPoolExecutor(3) as pool:
        writers = [pool.submit(write, writer) for writer in (1, 2, 3)]
        while wait(writers, timeout=0.1).not_done:
            sync_changes(spark, config)
        for each in writers:
            each.result()
    print(f"waits took {min(took):.1f} to {max(took):.1f} s")
    assert (missed, len(took)) == ([], 9)


def it_says_what_lags_and_what_can_never_come(spark, sql, new_index, opensearch, icecdc, head, monkeypatch):
    config = new_index("CREATE TABLE {t} (id BIGINT, name STRING) USING iceberg", "INSERT INTO {t} VALUES (0, 'a')")
    first = head()
    read = {"index": config.positions_index, "id": f"position:{config.index}"}
    exported = opensearch.get(**read)["_source"]
    assert exported["committed_at"] <= exported["current_at"] <= exported["updated_at"]
    sql("INSERT INTO {t} VALUES (1, 'b')")
    second = head()
    code, report = icecdc(config, "wait", "--now", "--timeout", "0")
    assert (code, report["state"], report["error"]) == (13, "lagging", "IndexLaggingError")
    sync_changes(spark, config)
    synced = opensearch.get(**read)
    assert (synced["_source"]["snapshot_id"], 0 < synced["_source"]["lag_seconds"] < 300) == (second, True)
    # Nothing is new: within a minute that is not written, but a catalog that can be read says it to who waits.
    sync_changes(spark, config)
    assert opensearch.get(**read)["_version"] == synced["_version"]
    by = datetime.now(UTC)
    code, report = icecdc(config, "wait", "--timeout", "0")
    assert (code, report["state"], report["indexes"][0]["snapshot_id"]) == (0, "ok", second)
    nowhere = config.replace(catalog_properties={"type": "rest", "uri": "http://127.0.0.1:1"})
    with pytest.raises(IndexLaggingError):
        wait_for(nowhere, timeout=0)
    monkeypatch.setattr(store, "CONFIRMED_EVERY", 0.0)
    sync_changes(spark, config)
    assert wait_for(nowhere, committed_by=by, timeout=0).current_at > by.isoformat()
    assert wait_for(config, snapshot_id=first, timeout=0).snapshot_id == second

    sql("INSERT INTO {t} VALUES (2, 'c')")
    third = head()
    with pytest.raises(IndexLaggingError):
        wait_for(config, snapshot_id=third, timeout=0)
    sql(f"CALL lake.system.rollback_to_snapshot('ns.{config.table_name}', {first})")
    for snapshot_id in (third, 42):
        with pytest.raises(SnapshotNotFoundError, match="of another table, expired, or rolled back"):
            wait_for(config, snapshot_id=snapshot_id, timeout=60)
    with pytest.raises(IndexLaggingError):
        wait_for(config, timeout=0)
    export_table(spark, config)
    assert wait_for(config, timeout=0).snapshot_id == first


def it_believes_no_clock_and_no_rollback_that_is_not_finished(spark, sql, new_index, opensearch, head, monkeypatch):
    config = new_index("CREATE TABLE {t} (id BIGINT, name STRING) USING iceberg", "INSERT INTO {t} VALUES (0, 'a')")
    stored = {"index": config.positions_index, "id": f"position:{config.index}"}
    opensearch.update(**stored, body={"doc": {"batch": asdict(Batch("rollback", 9, None, None, "x"))}})
    with pytest.raises(IndexLaggingError, match="a rollback is not finished"):
        wait_for(config, snapshot_id=head(), timeout=0)
    opensearch.update(**stored, body={"doc": {"batch": None, "current_at": "2126-01-01T00+00:00"}})  # a clock ahead
    sql("INSERT INTO {t} VALUES (1, 'b')")
    with pytest.raises(IndexLaggingError):
        wait_for(config, timeout=0)
    # Two calls fail. While the third is answered, a sync runs, and then somebody writes again.
    wanted, calls = head(), []

    def read_while_others_write(*given):
        calls.append(read_metadata(*given))
        if len(calls) < 3:
            raise StatusUnknownError("503")
        if len(calls) == 3:
            sync_changes(spark, config)
            sql("INSERT INTO {t} SELECT max(id) + 1, 'c' FROM {t}")
        return calls[-1]

    monkeypatch.setattr("icecdc_core.runs.wait.read_metadata", read_while_others_write)
    with pytest.raises(StatusUnknownError):
        wait_for(config, snapshot_id=wanted, timeout=0)
    assert wait_for(config, snapshot_id=wanted, timeout=60).snapshot_id == wanted
    calls[:], wanted = [None, None], head()
    assert (wait_for(config, timeout=60).snapshot_id, head() != wanted) == (wanted, True)
    sync_changes(spark, config)
    sql(f"CALL lake.system.expire_snapshots('ns.{config.table_name}', TIMESTAMP '2999-01-01 00:00:00', 1)")
    assert wait_for(config, snapshot_id=wanted, timeout=0).snapshot_id == head()  # it has expired


def it_waits_for_the_snapshots_of_nested_tables_too(spark, make_shop, new_index, opensearch):
    shop = make_shop(tables=("film", "language"))
    config, table = new_index(**shop.spec), shop.table("language")
    shop.sql("UPDATE {language} SET name = 'Anglais' WHERE language_id = 1")
    snapshot = spark.sql(f"SELECT snapshot_id FROM {table}.refs WHERE name = 'main'").first()[0]
    for what in ({"snapshot_id": snapshot}, {}):
        with pytest.raises(IndexLaggingError):
            wait_for(config, **what, timeout=0)
    sync_changes(spark, config)
    found = wait_for(config, snapshot_id=snapshot, timeout=0)
    committed = spark.sql(f"SELECT max(committed_at) FROM {table}.snapshots").first()[0]
    assert (found.nested_snapshots, wait_for(config, timeout=0)) == ({table: snapshot}, found)
    assert found.committed_at[:19] == committed.strftime("%Y-%m-%dT%H:%M:%S")
