"""Memory of every process while a sync takes a change set of many times the executor's heap, on a cluster of its own.

Driver and executor are processes of their own here (Spark's ``local-cluster``), so that each can be watched.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psutil
import pyspark
from pyspark.sql import SparkSession, functions as F

from benchmarks.tables import head, in_a_process_of_its_own
from icecdc_core import SyncConfig, get_spark, sync_changes

EXECUTOR_MEGABYTES = 512
# A row in memory: the note and about a hundred bytes beside it.
_NOTE_BYTES = 2048
ROW_BYTES = _NOTE_BYTES + 100
_PARTS = 8
_ROW_GROUP_BYTES = 8 * 1024 * 1024
_EVERY_SECONDS = 0.5


def prepare(spark: SparkSession, config: SyncConfig, times_heap: float) -> SyncConfig:
    """Make a table of which every row changes, so many times the executor's heap in all, and say how to sync it."""
    config = config.replace(table=config.table.rsplit(".", 1)[0] + ".memory", index="memory", identifier_columns=["id"])
    # Both sides of every row are read.
    rows = int(times_heap * EXECUTOR_MEGABYTES * 1024 * 1024 / ROW_BYTES / 2)
    return config.replace(start_from=str(_changed(spark, config.table, rows)))


def measure(config: SyncConfig) -> dict[str, Any]:
    """Sync what was prepared in a process of its own."""
    given = {field: getattr(config, field) for field in config.model_fields_set}
    return dict(in_a_process_of_its_own("benchmarks.memory", given))


def _session(given: dict[str, Any]) -> tuple[SparkSession, SyncConfig]:
    # Without them executors of pip's pyspark do not start.
    os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))
    os.environ.setdefault("SPARK_SCALA_VERSION", "2.13")
    conf = {
        "spark.master": f"local-cluster[1,2,{EXECUTOR_MEGABYTES}]",
        "spark.executor.memory": f"{EXECUTOR_MEGABYTES}m",
        "spark.driver.memory": f"{EXECUTOR_MEGABYTES}m",
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
    }
    config = SyncConfig(**{**given, "spark_conf": conf})
    spark = get_spark(config)
    spark.sparkContext.setLogLevel("ERROR")
    return spark, config


def _changed(spark: SparkSession, table: str, rows: int) -> int:
    """Make a table and change every row of it; returns the snapshot before."""
    catalog, namespace, _ = table.split(".")
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {catalog}.{namespace}")
    spark.sql(f"DROP TABLE IF EXISTS {table}")
    n = F.col("id")
    # Text that files pack to about an eighth, and the shuffle to a quarter.
    parts = (F.sha2((n * _PARTS + part).cast("string"), 256) for part in range(_PARTS))
    note = F.repeat(F.concat(*parts), _NOTE_BYTES // 64 // _PARTS).alias("note")
    columns = (n, note, (n * 1.1).alias("price"), F.timestamp_seconds(n).alias("seen"))
    filled = spark.range(0, rows, 1, 16).select(*columns).writeTo(table).using("iceberg")
    # Row lineage: whole rows go through the shuffle, which is the harder case for memory.
    filled = filled.tableProperty("format-version", "3")
    # A reader holds a row group, so those of the usual size are too much for so small an executor by themselves.
    filled.tableProperty("write.parquet.row-group-size-bytes", str(_ROW_GROUP_BYTES)).create()
    start = head(spark, table)
    spark.sql(f"UPDATE {table} SET price = price + 1 WHERE id >= 0")
    return start


def _memory() -> dict[str, float]:
    """Resident megabytes of this process and those below, by what they are."""
    driver = psutil.Process()
    found = dict.fromkeys(("driver JVM", "driver Python", "executor JVM", "Python workers"), 0.0)
    for process in (driver, *driver.children(recursive=True)):
        with suppress(psutil.Error):
            line = " ".join(process.cmdline())
            kind = "driver JVM" if "SparkSubmit" in line else "executor JVM" if "ExecutorBackend" in line else ""
            kind = kind or ("driver Python" if process == driver else "Python workers" if "pyspark" in line else "")
            if kind:
                found[kind] += process.memory_info().rss / 1e6
    return {kind: round(megabytes, 1) for kind, megabytes in found.items()}


def _watch(stop: threading.Event, samples: list[dict[str, float]]) -> None:
    begin = time.perf_counter()
    while not stop.wait(_EVERY_SECONDS):
        samples.append({"seconds": round(time.perf_counter() - begin, 1), **_memory()})


def _spilled(spark: SparkSession) -> int:
    context = spark.sparkContext
    with urlopen(f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/stages") as answer:
        return sum(stage["diskBytesSpilled"] + stage["memoryBytesSpilled"] for stage in json.load(answer))


def _main(given: str) -> None:
    spark, config = _session(json.loads(given))
    rows = spark.table(config.table).count()
    stop, samples = threading.Event(), list[dict[str, float]]()
    watcher = threading.Thread(target=_watch, args=(stop, samples))
    watcher.start()
    try:
        report = sync_changes(spark, config)
    finally:
        stop.set()
        watcher.join()
    if report.upserts != rows:
        raise SystemExit(f"{report.upserts} documents were written, expected {rows}")
    spilled, heap = _spilled(spark), EXECUTOR_MEGABYTES * 1024 * 1024
    spark.stop()
    sizes = {"rows": rows, "change_set_bytes": rows * 2 * ROW_BYTES, "executor_bytes": heap, "spilled_bytes": spilled}
    print(json.dumps({**sizes, "seconds": report.seconds, "samples": samples}))


if __name__ == "__main__":
    _main(*sys.argv[1:])
