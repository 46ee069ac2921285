"""Executors and Python workers are killed on a local cluster, with task retries and speculation: index == table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from icecdc_core import sync_changes
from tests.fast_java import resolved_jars
from tests.faults.tables import SEED, rows_as_documents

RUNS = int(os.environ.get("ICECDC_CLUSTER_RUNS", "1"))
ROWS, KILLS = 2000, 3
SCRIPT = Path(__file__).with_name("cluster_run.py")


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", range(RUNS))
def it_ends_equal_though_executors_and_workers_are_killed(spark, sql, make_config, indexed, number):
    config = make_config(bulk_bytes=16 * 1024)
    sql("CREATE TABLE {t} (id BIGINT, name STRING) USING iceberg TBLPROPERTIES ('format-version' = '2')")
    for part in range(4):
        sql(f"INSERT INTO {{t}} SELECT id, concat('n', id) FROM range({part * ROWS}, {part * ROWS + ROWS})")
    given = {name: getattr(config, name) for name in config.model_fields_set}
    given = {name: dict(value) if name == "catalog_properties" else value for name, value in given.items()}
    given["spark_conf"] = resolved_jars()
    ended = subprocess.run(
        [sys.executable, str(SCRIPT), json.dumps(given), str(SEED + number), str(KILLS)],
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
        env={**os.environ, "PYTHONPATH": str(SCRIPT.parents[2])},
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    result = json.loads(ended.stdout.splitlines()[-1])
    without_retries = indexed() == rows_as_documents(spark, config.table)
    sync_changes(spark, config)
    print(f"killed {result['killed']} in {result['seconds']:.0f} s: {result['error'] or 'ended'}")
    # Either the run rode it out, or it says what happened and the next one ends equal.
    assert (bool(result["killed"]), without_retries or bool(result["error"])) == (True, True)
    assert indexed() == rows_as_documents(spark, config.table)
