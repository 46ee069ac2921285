"""What `icecdc status` says of indexes without Spark: in sync, behind, broken, or unknown and why."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from icecdc_core import export_table
from icecdc_core.runs import cluster_status as statuses

ROOT = Path(__file__).parents[3]
WITHOUT_SPARK = """
import sys
sys.modules["pyspark"] = sys.modules["py4j"] = None
from icecdc_core.__main__ import console
sys.exit(console())
"""
BROKEN = {
    "behind": ("INSERT INTO {t} VALUES (2, 'b')", "behind", "1 snapshots, "),
    "dropped": ("DROP TABLE {t}", "config", "has no Iceberg table"),
    "changed": ("ALTER TABLE {t} RENAME COLUMN name TO title", "reexport", "was renamed to 'title'"),
}


@pytest.fixture
def indexes(spark, make_config, name, opensearch):
    """Three indexes that are to break, and seven that one table feeds, by their names."""

    def made(index):
        config = make_config(table=f"lake.{name}.{index}", index=f"{name}-{index}")
        spark.sql(f"CREATE TABLE {config.table} (id BIGINT, name STRING) USING iceberg")
        spark.sql(f"INSERT INTO {config.table} VALUES (1, 'a')")
        export_table(spark, config)
        return config

    spark.sql(f"CREATE NAMESPACE lake.{name}")
    configs = {each: made(each) for each in (*BROKEN, "good")}
    good = configs["good"]
    position = opensearch.get(index=good.positions_index, id=f"position:{good.index}")["_source"]
    for number in range(6):
        copy = configs[f"good{number}"] = good.replace(index=f"{good.index}{number}")
        document = {**position, "index": copy.index}
        opensearch.index(index=good.positions_index, id=f"position:{copy.index}", body=document)
    yield configs
    for table in spark.sql(f"SHOW TABLES IN lake.{name}").collect():
        spark.sql(f"DROP TABLE lake.{name}.{table.tableName}")


def it_finds_the_three_of_ten_indexes_that_are_not_in_sync_and_waits_for_no_catalog(
    spark, indexes, tmp_path, monkeypatch
):
    for each, (statement, _, _) in BROKEN.items():
        spark.sql(statement.replace("{t}", indexes[each].table))
    shared = ("opensearch_url", "warehouse", "positions_index", "catalog_properties")
    listed = {name: {"table": config.table, "index": config.index} for name, config in indexes.items()}
    defaults = {name: str(getattr(indexes["good"], name)) for name in shared if getattr(indexes["good"], name)}
    (tmp_path / "indexes.yml").write_text(yaml.safe_dump({"defaults": defaults, "indexes": listed}))
    command = [sys.executable, "-c", WITHOUT_SPARK, "status", "--file", str(tmp_path / "indexes.yml"), "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    report = json.loads(ended.stdout)
    found = {name: each["indexes"][0] for name, each in report["indexes"].items()}
    assert (report["state"], ended.returncode, ended.stderr) == ("config", 2, "")
    assert {name: each["state"] for name, each in found.items()} == {
        name: BROKEN[name][1] if name in BROKEN else "ok" for name in indexes
    }
    shown = statuses.cluster_status(indexes["good"]).text()
    assert [words for _, _, words in BROKEN.values() if words not in shown] == []

    monkeypatch.setattr(statuses, "_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        properties = {"type": "rest", "uri": f"http://127.0.0.1:{silent.getsockname()[1]}"}
        found = statuses.cluster_status(indexes["good"].replace(catalog_properties=properties)).indexes
    assert {(each.state, each.problem.partition(" within")[0]) for each in found} == {
        ("unknown", "unknown: the catalog did not answer")
    }
