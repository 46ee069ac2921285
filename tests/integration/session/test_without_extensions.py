"""A session without Iceberg's extensions of Spark: on Databricks an attached library comes too late for them."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from icecdc_core.jobs.smoke import KINDS
from tests.fast_java import small_spark


def it_exports_syncs_validates_and_reads_changes_of_each_kind_of_table(spark, make_config):
    config = make_config()
    given = {
        "table": config.table,
        "index": config.index,
        "opensearch-url": config.opensearch_url,
        "warehouse": config.warehouse,
        "catalog-properties": json.dumps(dict(config.catalog_properties)),
        "spark-conf": json.dumps({**small_spark(), "spark.sql.extensions": ""}),
    }
    options = [f"--{name}={value}" for name, value in given.items()]
    command = [sys.executable, "-m", "icecdc_core", "smoke", *options]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    report = json.loads(ended.stdout.splitlines()[-1])
    assert [check for check in report["checks"] if check["state"] != "passed"] == []
    assert (ended.returncode, {check["kind"] for check in report["checks"]}) == (0, set(KINDS))
