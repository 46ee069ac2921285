"""The table of ten columns that the benchmarks share."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession, functions as F

from icecdc_core.changes.narrow_rows import FAST
from icecdc_core.changes.net_changes import compute_net_changes
from icecdc_core.changes.row_changes import PlannedRange
from icecdc_core.changes.scan_planning import file_bytes, plan_scans
from icecdc_core.table.iceberg_table import IcebergTable
from icecdc_core.table.source import Selection

IDS = ["id"]
_ADVISORY, _FILE_BYTES = "write.spark.advisory-partition-size-bytes", 32 * 1024 * 1024


def create(spark: SparkSession, table: str, version: int, mode: str) -> None:
    """Create the table, empty; an older one is dropped."""
    catalog, namespace, _ = table.split(".")
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {catalog}.{namespace}")
    spark.sql(f"DROP TABLE IF EXISTS {table}")
    modes = ", ".join(f"'write.{operation}.mode' = '{mode}'" for operation in ("update", "delete"))
    spark.sql(
        f"CREATE TABLE {table} (id BIGINT NOT NULL, name STRING, city STRING, note STRING, amount DECIMAL(12, 2), "
        "price DOUBLE, quantity INT, active BOOLEAN, born DATE, seen TIMESTAMP) USING iceberg "
        # Small files, as in a large table, where an update touches many files.
        f"TBLPROPERTIES ('format-version' = '{version}', '{_ADVISORY}' = '{_FILE_BYTES}', {modes})"
    )


def rows_of(spark: SparkSession, first: int, count: int) -> DataFrame:
    """Rows with the ids from ``first`` on, in 8 partitions."""
    n = F.col("id")
    return spark.range(first, first + count, 1, 8).select(
        n,
        F.concat(F.lit("name "), n).alias("name"),
        F.concat(F.lit("city "), n % 1000).alias("city"),
        F.sha2(n.cast("string"), 256).alias("note"),
        (n % 100000 / 7).cast("decimal(12, 2)").alias("amount"),
        (n * 1.1).alias("price"),
        (n % 50).cast("int").alias("quantity"),
        (n % 3 == 0).alias("active"),
        F.date_add(F.lit("2000-01-01"), (n % 9000).cast("int")).alias("born"),
        F.timestamp_seconds(F.lit(1_700_000_000) + n).alias("seen"),
    )


def head(spark: SparkSession, table: str) -> int:
    """The newest snapshot."""
    newest = spark.sql(f"SELECT snapshot_id FROM {table}.snapshots ORDER BY committed_at DESC LIMIT 1")
    return int(newest.collect()[0][0])


def in_a_process_of_its_own(module: str, order: object) -> Any:
    """Run a module with its order as JSON; returns what its last line says, as JSON too."""
    command = [sys.executable, "-m", module, json.dumps(order, default=dict)]
    ended = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(ended.stdout.splitlines()[-1])


def consume(frame: DataFrame) -> None:
    """Compute every row and column, and write nothing."""
    frame.write.format("noop").mode("overwrite").save()


def merge_changes(spark: SparkSession, name: str, start: int, end: int, row_hash: str = FAST) -> int:
    """Go from position to merged rows, consume them, and return how many there were."""
    table = IcebergTable(spark, name)
    scans = plan_scans(table, table.metadata(), start, end, "net")
    whole = Selection(tuple(table.column_names()))
    planned = PlannedRange(table, scans, IDS, file_bytes(table, scans), whole, row_hash)
    merged = compute_net_changes(planned, DataFrame.count)
    consume(merged.rows)
    merged.close()
    table.release()
    return merged.upserts + merged.deletes
