"""What `icecdc` shows on a terminal, in a process of its own; and what goes without Spark."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from icecdc_core import export_table
from tests.conftest import GIVEN_CATALOG
from tests.fast_java import small_spark

ROOT = Path(__file__).parents[3]
ICECDC = "import sys; from icecdc_core.__main__ import console; sys.exit(console())"
NO_SPARK = f"import sys; sys.modules['pyspark'] = sys.modules['py4j'] = None; {ICECDC}"
NOISE = re.compile(r"WARN|INFO|log4j|:: loading|Setting default log level|Ivy")


@pytest.fixture
def changed(sql, spark, make_config, tmp_path):
    """An exported table that was changed by two commits, and the index file that names it."""
    config = make_config(export_group_bytes=1)
    sql("CREATE TABLE {t} (id BIGINT NOT NULL, name STRING) USING iceberg")
    sql("INSERT INTO {t} SELECT id, 'old' FROM range(0, 300, 1, 1)")
    export_table(spark, config)
    sql("UPDATE {t} SET name = 'new' WHERE id < 40")
    sql("DELETE FROM {t} WHERE id = 299")
    shared = {name: getattr(config, name) for name in ("opensearch_url", "warehouse", "positions_index")}
    if GIVEN_CATALOG:
        shared["catalog_properties"] = GIVEN_CATALOG
    index = {"table": config.table, "identifier_columns": ["id"]}
    content = {"defaults": {**shared, "spark_conf": small_spark()}, "indexes": {config.index: index}}
    path = tmp_path / "indexes.yml"
    path.write_text(yaml.safe_dump(content))
    return path


def run(*arguments, code=ICECDC):
    """Run a command without a terminal."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=environment)
    return ended.returncode, ended.stdout, ended.stderr


def run_on_terminal(*arguments):
    """Run a command on a terminal; its exit code, what was shown when, and the lines that stay."""
    begin, parts = time.monotonic(), []
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["PYTHONPATH"] = str(ROOT)
        os.execv(sys.executable, [sys.executable, "-c", ICECDC, *arguments])
    while True:
        try:
            text = os.read(terminal, 65536).decode(errors="replace")
        except OSError:  # Linux ends a terminal so
            break
        if not text:
            break
        parts.append((time.monotonic() - begin, text))
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    shown = "".join(text for _, text in parts).replace("\x1b[K", "")
    stays = [line.rpartition("\r")[2].strip() for line in shown.replace("\r\n", "\n").split("\n")]
    return os.waitstatus_to_exitcode(status), parts, shown, [line for line in stays if line]


@pytest.mark.long
class DescribeATerminal:
    def it_shows_what_a_sync_does_from_the_first_second_and_how_long_it_took(self, changed):
        code, parts, shown, stays = run_on_terminal("sync", "--file", str(changed))
        assert code == 0, shown
        first = parts[0][1]
        assert "starting Spark (0:00:00)" in first
        found = [text for text in ("reading 2 snapshots", "comparing 599 rows", "of 41 documents") if text in shown]
        assert (len(found), NOISE.findall(shown)) == (3, []), shown
        # What it did is gone in the end; the count, the poll, the report and the time stay.
        assert [bool(re.search("reading|comparing|starting", line)) for line in stays[:-1]] == [False] * len(stays[:-1])
        assert any(re.fullmatch(r"Syncing .*100%, 41 of 41 documents .*left\]", line) for line in stays), stays
        assert re.fullmatch(r"[\d.]+ s in all", stays[-1])


class DescribeAStatusWithoutSpark:
    def it_says_what_the_cluster_knows(self, changed):
        name = changed.parent / "indexes.yml"
        (index,) = yaml.safe_load(name.read_text())["indexes"]
        code, out, err = run("status", "--file", str(changed), "--json", code=NO_SPARK)
        (found,) = json.loads(out)["indexes"][index]["indexes"]
        assert (code, err, found["last_run"]["upserts"], found["pending"]) == (0, "", 300, None)
        assert (found["lag_snapshots"], found["problem"]) == (None if GIVEN_CATALOG else 2, "")
