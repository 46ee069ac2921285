"""One job for all indexes of a file, in one Spark application: by the command line, on real tables and a real index."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from unittest import mock

import pytest
import yaml

from icecdc_core.__main__ import main
from icecdc_core.table.iceberg_table import IcebergTable
from tests.conftest import GIVEN_CATALOG
from tests.integration.jobs.test_dead_letters import take_nan

CREATE = "CREATE TABLE {} (id BIGINT NOT NULL, v STRING) USING iceberg TBLPROPERTIES ('format-version' = '2')"
ICECDC = "import sys; from icecdc_core.__main__ import console; sys.exit(console())"
ROOT = Path(__file__).parents[3]


@pytest.fixture
def tables(spark, name):
    names = {letter: f"lake.ns.{name}_{letter}" for letter in "ab"}
    for table in names.values():
        spark.sql(CREATE.format(table))
        spark.sql(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    yield names
    for table in names.values():
        spark.sql(f"DROP TABLE IF EXISTS {table}")


@pytest.fixture
def file(name, opensearch_url, warehouse, tmp_path):
    """An index file: two indexes that work, and between them one whose table does not exist."""
    common = {
        "opensearch_url": opensearch_url,
        "warehouse": str(warehouse),
        "catalog_properties": json.loads(GIVEN_CATALOG or "{}"),
        "positions_index": f"positions-{name}",
        "log_path": str(tmp_path / "log.jsonl"),
        "metrics_folder": str(tmp_path / "metrics"),
    }
    indexes = {
        index: {"table": f"lake.ns.{name}_{letter}", "index": f"{name}-{letter}", "identifier_columns": ["id"]}
        for index, letter in (("first", "a"), ("broken", "none"), ("last", "b"))
    }
    path = tmp_path / "indexes.yml"
    path.write_text(yaml.safe_dump({"defaults": common, "indexes": indexes}, sort_keys=False))
    return path


@pytest.fixture
def run(capsys, file):
    def ended(command, *options):
        code = main([command, "--file", str(file), *options], "icecdc")
        printed = capsys.readouterr()
        return code, printed.out.splitlines(), printed.err.splitlines()

    return ended


def it_brings_every_index_up_to_date_although_one_fails(spark, tables, run, indexed, name, tmp_path):
    code, out, err = run("sync", "--json", "--report-path", str(tmp_path / "summary.json"))
    summary = json.loads(out[-1])
    states = {index: found["state"] for index, found in summary["indexes"].items()}
    assert (code, summary["state"], states) == (2, "config", {"first": "ok", "broken": "config", "last": "ok"})
    assert [len(indexed(f"{name}-{letter}")) for letter in "ab"] == [3, 3]
    assert json.loads((tmp_path / "summary.json").read_text()) == summary
    assert [line for line in err if line.startswith("icecdc sync broken: ") and "Remedy: " in line] != []
    assert summary["indexes"]["broken"]["error"] == "TableNotFoundError"
    log = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    ended = {entry["index"] for entry in log if entry["message"] == "run ended"}
    assert (ended, len({(entry["run_id"], entry["index"]) for entry in log})) == ({f"{name}-a", f"{name}-b"}, 3)
    written = {path.name for path in (tmp_path / "metrics").iterdir()}
    assert written == {f"icecdc-{name}-{letter}-sync.prom" for letter in ("a", "b", "none")}

    # The other jobs.
    good = ("--only", "first,last", "--json")
    checked = run("setup", *good)[0]
    spark.sql(f"DELETE FROM {tables['a']} WHERE id = 1")
    validated, lines, _ = run("validate", *good)
    found = json.loads(lines[-1])["indexes"]
    assert (checked, validated, found["first"]["extra"], found["last"]["ok"]) == (0, 8, 1, True)
    read = IcebergTable.metadata
    with mock.patch.object(IcebergTable, "metadata", lambda it: read(it) if it.name != tables["a"] else [][0]):
        code, lines, _ = run("status", "--tables", *good)
    shown = [each["indexes"][0] for each in json.loads(lines[-1])["indexes"].values()]
    shown = [(each["state"], each["problem"], each["lag_snapshots"]) for each in shown]
    assert (code, shown) == (1, [("failed", "IndexError", None), ("ok", "", 0)])
    assert [run(command, *good)[0] for command in ("repair", "replay")] == [0, 0]


@pytest.mark.long
def it_replays_those_of_two_indexes_in_one_dead_letter_table(spark, tables, run, file, name, opensearch, indexed):
    dead_letters = f"lake.ns.dead_letters_{name}"
    content = yaml.safe_load(file.read_text())
    content["defaults"] |= {"dead_letter_table": dead_letters, "max_rejected_documents": 5}
    content["defaults"]["mapping"] = {"v": {"type": "integer"}}
    file.write_text(yaml.safe_dump(content, sort_keys=False))
    good = ("--only", "first,last", "--json")
    try:
        synced, lines, _ = run("sync", *good)
        found = json.loads(lines[-1])["indexes"]
        assert (synced, [found[index]["rejected"] for index in ("first", "last")]) == (0, [3, 3]), found
        for letter in "ab":
            take_nan(opensearch, f"{name}-{letter}")
        replayed, lines, _ = run("replay", *good)
        found = json.loads(lines[-1])["indexes"]
        states = [(found[index]["state"], found[index].get("message")) for index in ("first", "last")]
        assert (replayed, states) == (0, [("ok", None)] * 2)
        assert spark.table(dead_letters).where("resolution = 'replayed'").count() == 6
        assert [len(indexed(f"{name}-{letter}")) for letter in "ab"] == [3, 3]
    finally:
        spark.sql(f"DROP TABLE IF EXISTS {dead_letters}")


def it_leaves_no_spark_behind_when_it_is_interrupted(file):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    # Python loses an exception of this hook: an interrupt of the thread that forks would be lost with it.
    hook = f"import os; os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), {signal.SIGINT:d}))\n"
    command = [sys.executable, "-c", hook + ICECDC, "validate", "--file", str(file), "--only", "first", "--json"]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, **pipes)
    try:
        # The JVM inherits the output, which is read to its end here.
        out, err = process.communicate(timeout=200)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    report = json.loads(out.splitlines()[-1])
    assert (process.returncode, report["error"], report["stage"]) == (1, "KeyboardInterrupt", "session")
    assert ("Traceback" in err, "The run was interrupted" in err.splitlines()[-1]) == (False, True), err
