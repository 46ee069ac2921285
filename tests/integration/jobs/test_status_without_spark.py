"""The status of an index needs no Spark, and says what the cluster knows."""

import json
import os
import subprocess
import sys
from pathlib import Path

import yaml

from icecdc_core import export_table
from tests.conftest import GIVEN_CATALOG

ROOT = Path(__file__).parents[3]
WITHOUT_SPARK = """
import sys
sys.modules["pyspark"] = sys.modules["py4j"] = None
from icecdc_core.__main__ import console
sys.exit(console())
"""


def it_says_what_the_cluster_knows(spark, sql, make_config, tmp_path):
    config = make_config()
    sql("CREATE TABLE {t} (id BIGINT NOT NULL, name STRING) USING iceberg")
    sql("INSERT INTO {t} SELECT id, 'old' FROM range(300)")
    export_table(spark, config)
    sql("UPDATE {t} SET name = 'new' WHERE id < 40")
    sql("DELETE FROM {t} WHERE id = 299")
    shared = {name: getattr(config, name) for name in ("opensearch_url", "warehouse", "positions_index")}
    if GIVEN_CATALOG:
        shared["catalog_properties"] = GIVEN_CATALOG
    file = tmp_path / "indexes.yml"
    indexes = {config.index: {"table": config.table, "identifier_columns": ["id"]}}
    file.write_text(yaml.safe_dump({"defaults": shared, "indexes": indexes}))
    command = [sys.executable, "-c", WITHOUT_SPARK, "status", "--file", str(file), "--json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment)
    (found,) = json.loads(ended.stdout)["indexes"][config.index]["indexes"]
    assert (ended.returncode, ended.stderr, found["last_run"]["upserts"]) == (0, "", 300)
    assert (found["pending"], found["problem"]) == (None, "")
    assert found["lag_snapshots"] == (None if GIVEN_CATALOG else 2)
