"""A sync on a local cluster whose executors and Python workers are killed under it: Spark repeats their tasks."""

import os
import random
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pyspark
import pytest

from icecdc_core import export_table, sync_changes
from tests.faults.processes import Job
from tests.faults.tables import SEED, rows_as_documents
from tests.speed.fast_java import resolved_jars

RUNS = int(os.environ.get("ICECDC_CLUSTER_RUNS", "1"))
ROWS, KILLS = 2000, 3
CLUSTER = {
    "spark.master": "local-cluster[2,1,512]",
    "spark.executor.memory": "512m",
    "spark.driver.memory": "512m",
    "spark.task.maxFailures": "20",
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    "spark.speculation.quantile": "0.3",
    "spark.sql.shuffle.partitions": "4",
    "spark.excludeOnFailure.enabled": "false",
    "spark.deploy.maxExecutorRetries": "-1",
}


def kill_some(process, rng):
    """Kill Python workers, and executors with them, while the job is at work; returns what was killed."""
    killed = []
    while len(killed) < KILLS and process.poll() is None:
        time.sleep(rng.uniform(0.2, 1.5))
        # The daemon's children, not the daemon alone: either kills tasks that are under way.
        kind = "daemon" if rng.random() < 0.6 else "CoarseGrainedExecutorBackend"
        # All of its session: some children have groups of their own, and one may be a zombie that psutil refuses.
        found = subprocess.run(["pgrep", "-f", "-s", str(process.pid), kind], capture_output=True, text=True).stdout
        with suppress(ProcessLookupError, IndexError):
            os.kill(int(rng.choice(found.split())), signal.SIGKILL)
            killed.append(kind)
    return killed


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", range(RUNS))
def it_ends_equal_though_executors_are_killed(spark, sql, make_config, indexed, tmp_path, monkeypatch, number):
    # Without them executors of pip's pyspark do not start.
    monkeypatch.setenv("SPARK_HOME", str(Path(pyspark.__file__).parent))
    monkeypatch.setenv("SPARK_SCALA_VERSION", "2.13")
    config = make_config(bulk_bytes=16 * 1024)
    sql("CREATE TABLE {t} (id BIGINT, name STRING) USING iceberg TBLPROPERTIES ('format-version' = '2')")
    for part in range(4):
        sql(f"INSERT INTO {{t}} SELECT id, concat('n', id) FROM range({part * ROWS}, {part * ROWS + ROWS})")
    export_table(spark, config)
    sql("UPDATE {t} SET name = 'changed' WHERE id % 3 = 0", f"DELETE FROM {{t}} WHERE id % 7 = 0 AND id < {2 * ROWS}")
    job = Job("sync", config, tmp_path / "report.json", spark_conf={**CLUSTER, **resolved_jars()})
    job.await_log('"run started"')
    killed = kill_some(job.process, random.Random(SEED + number))
    _, report = job.ended()
    without_retries = indexed() == rows_as_documents(spark, config.table)
    sync_changes(spark, config)
    print(f"killed {killed}: {report['state']}")
    # Either the run rode it out, or it says what happened and the next one ends equal.
    assert (bool(killed), without_retries or bool(report["error"])) == (True, True)
    assert indexed() == rows_as_documents(spark, config.table)
