"""The examples of docs/operations.md in the real Airflow, the real Dagster, and as cron runs them.

`make test SUITE=schedulers` runs them, because uv downloads Airflow and Dagster.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from icecdc_core import export_table, validate_table
from tests.speed.fast_java import small_spark

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
JOBS = ("icecdc_sync", "icecdc_validate")
CRONTAB = (EXAMPLES / "icecdc.cron").read_text(encoding="utf-8")
CRON_COMMANDS = re.findall(r"^[\d*/]+ [\d*/]+ \S+ \S+ \S+ (.+)$", CRONTAB, re.MULTILINE)
AIRFLOW, DAGSTER = "apache-airflow>=3,<4", "dagster>=1.12,<2"


@pytest.fixture
def run_there(spark, sql, make_config, tmp_path, monkeypatch):
    """A changed table, the index file that names it, and a function that runs a command as a scheduler does."""
    config = make_config()
    sql("CREATE TABLE {t} (id BIGINT NOT NULL, name STRING) USING iceberg")
    sql("INSERT INTO {t} VALUES (1, 'one'), (2, 'two')")
    export_table(spark, config)
    sql("UPDATE {t} SET name = 'zwei' WHERE id = 2")
    shared = ("opensearch_url", "warehouse", "positions_index")
    content = {
        "defaults": {**{name: getattr(config, name) for name in shared}, "spark_conf": small_spark()},
        "indexes": {config.index: {"table": config.table, "identifier_columns": ["id"]}},
    }
    (tmp_path / "indexes.yml").write_text(yaml.safe_dump(content))
    own = {
        "ICECDC_FILE": str(tmp_path / "indexes.yml"),
        "ICECDC_HOME": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(tmp_path / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "DAGSTER_HOME": str(tmp_path),
        "DAGSTER_DISABLE_TELEMETRY": "1",
    }
    shutil.copytree(EXAMPLES, tmp_path / "dags", ignore=shutil.ignore_patterns("*dagster*", "*.cron"))
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}

    def run(*command):
        ended = subprocess.run(command, capture_output=True, text=True, env={**inherited, **own}, check=False)
        return ended.returncode, ended.stdout + ended.stderr

    yield run
    assert validate_table(spark, config).ok


def with_package(package, *command):
    return ("uv", "run", "--quiet", "--no-project", "--python", sys.executable, "--with", package, *command)


@pytest.mark.timeout(900)
class DescribeTheExamples:
    def it_syncs_and_validates_in_airflow(self, run_there):
        assert run_there(*with_package(AIRFLOW, "airflow", "db", "migrate"))[0] == 0
        for job in JOBS:
            code, output = run_there(*with_package(AIRFLOW, "airflow", "dags", "test", job))
            assert (code, "successful" in output, "state=failed" in output) == (0, True, False), output[-4000:]

    def it_syncs_and_validates_in_dagster(self, run_there):
        for job in JOBS:
            command = ("dagster", "job", "execute", "-f", str(EXAMPLES / "icecdc_dagster.py"), "-j", job)
            code, output = run_there(*with_package(DAGSTER, *command))
            assert (code, "RUN_SUCCESS" in output) == (0, True), output[-4000:]

    def it_syncs_and_validates_by_cron(self, run_there, tmp_path):
        for command, name in zip(CRON_COMMANDS, ("sync", "validate"), strict=True):
            code, _ = run_there("/bin/sh", "-c", command)
            assert code == 0, (tmp_path / "icecdc.err").read_text()[-3000:]
            assert json.loads((tmp_path / f"{name}.log").read_text().splitlines()[-1])["state"] == "ok"
