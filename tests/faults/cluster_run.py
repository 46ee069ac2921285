"""A sync on a local cluster of executors whose processes are killed under it; prints the report as JSON.

Usage: python cluster_run.py <SyncConfig as JSON> <seed> <kills>. A process of its own, because a JVM has one Spark.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pyspark

import icecdc_core
import icecdc_core.errors

# Without them executors of pip's pyspark do not start.
os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))
os.environ.setdefault("SPARK_SCALA_VERSION", "2.13")


def below() -> dict[int, str]:
    """The processes below this one, with their command lines."""
    found = {}
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            found[process.pid] = " ".join(process.cmdline())
    return found


def kill_some(stop: threading.Event, seed: int, kills: int, done: list[str]) -> None:
    """Kill Python workers, and executors with them, while the sync is at work."""
    rng = random.Random(seed)
    while kills and not stop.is_set():
        stop.wait(rng.uniform(0.2, 1.5))
        processes = below()
        executors = [pid for pid, line in processes.items() if "CoarseGrainedExecutorBackend" in line]
        workers = [pid for pid, line in processes.items() if "pyspark.daemon" in line or "pyspark/daemon" in line]
        # The daemon's children, not the daemon alone: either kills tasks that are under way.
        kind = "worker" if workers and rng.random() < 0.6 else "executor"
        victims = workers if kind == "worker" else executors
        if victims:
            with suppress(ProcessLookupError):
                os.kill(rng.choice(sorted(victims)), signal.SIGKILL)
                done.append(kind)
                kills -= 1


def main(parameters: str, seed: str, kills: str) -> None:
    """Export, change, then sync while executors die."""
    given = json.loads(parameters)
    given["spark_conf"] |= {
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
    config = icecdc_core.SyncConfig(**given)
    spark = icecdc_core.get_spark(config)
    icecdc_core.export_table(spark, config)
    table = config.quoted_table
    spark.sql(f"UPDATE {table} SET name = 'changed' WHERE id % 3 = 0")
    spark.sql(f"DELETE FROM {table} WHERE id % 7 = 0")
    spark.sql(f"INSERT INTO {table} SELECT id, 'new' FROM range(100000, 104000)")
    stop, done = threading.Event(), []
    killer = threading.Thread(target=kill_some, args=(stop, int(seed), int(kills), done))
    begin = time.monotonic()
    killer.start()
    try:
        report = icecdc_core.sync_changes(spark, config)
        outcome = {"report": report.to_dict(), "error": ""}
    except icecdc_core.errors.IcecdcError as error:
        outcome = {"report": {}, "error": str(error)}
    finally:
        stop.set()
        killer.join()
    print(json.dumps({**outcome, "killed": done, "seconds": time.monotonic() - begin}, default=str), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
