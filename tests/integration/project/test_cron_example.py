"""The crontab of docs/examples: its commands run as cron runs them, with `sh` and nothing but its environment."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from icecdc_core import export_table
from tests.fast_java import small_spark

CRONTAB = Path(__file__).parents[3] / "docs" / "examples" / "icecdc.cron"
COMMANDS = re.findall(r"^[\d*/]+ [\d*/]+ \S+ \S+ \S+ (.+)$", CRONTAB.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.long
@pytest.mark.timeout(600)
def it_syncs_and_validates_all_indexes_of_the_file(spark, sql, make_config, indexed, tmp_path):
    config = make_config()
    sql("CREATE TABLE {t} (id BIGINT NOT NULL, name STRING) USING iceberg")
    sql("INSERT INTO {t} VALUES (1, 'one'), (2, 'two')")
    export_table(spark, config)
    sql("UPDATE {t} SET name = 'zwei' WHERE id = 2")
    content = {
        "defaults": {
            **{name: getattr(config, name) for name in ("opensearch_url", "warehouse", "positions_index")},
            "catalog_properties": dict(config.catalog_properties),
            "spark_conf": small_spark(),
        },
        "indexes": {config.index: {"table": config.table, "identifier_columns": ["id"]}},
    }
    (tmp_path / "indexes.yml").write_text(yaml.safe_dump(content))
    environment = {
        "ICECDC_HOME": str(tmp_path),
        "HOME": str(Path.home()),
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        "PYTHONPATH": str(Path(__file__).parents[3]),
        # Only for speed, see tests/fast_java.py.
        **{name: os.environ[name] for name in ("JDK_JAVA_OPTIONS", "SPARK_LOCAL_DIRS") if name in os.environ},
    }
    reports = []
    for command, name in zip(COMMANDS, ("sync", "validate"), strict=True):
        ended = subprocess.run(["/bin/sh", "-c", command], env=environment, check=False)
        assert ended.returncode == 0, (tmp_path / "icecdc.err").read_text()[-3000:]
        reports.append(json.loads((tmp_path / f"{name}.jsonl").read_text().splitlines()[-1]))
    assert [report["state"] for report in reports] == ["ok", "ok"]
    assert {id: document["name"] for id, document in indexed().items()} == {"1": "one", "2": "zwei"}
