"""How the time from position to merged changes grows: with rows changed, table size, columns, and with fewer cores."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

from pyspark.sql import SparkSession, functions as F

from benchmarks.tables import create, head, in_a_process_of_its_own, merge_changes, rows_of
from icecdc_core import SyncConfig, get_spark

COLUMNS = (5, 10, 20, 40)
CORES = (1, 2)
_FILES = 40
_ROWS_A_FILE = 50_000


class GrowthBenchmark:
    """Copy-on-write updates of adjacent rows, so that the files to read grow with the rows changed."""

    def __init__(self, spark: SparkSession, config: SyncConfig, rows: int) -> None:
        self._spark, self._config, self._rows = spark, config, rows
        self._files = max(1, min(_FILES, rows // _ROWS_A_FILE))
        self._namespace = config.table.rsplit(".", 1)[0]
        self._ranges: dict[str, tuple[str, int, int, int]] = {}

    def rows_changed(self) -> dict[str, Callable[[], float]]:
        """Number of rows changed, up to all, to a run that returns its seconds."""
        table = self._filled("changed", self._rows, self._files)
        counts = [self._rows // ten for ten in (1000, 100, 10, 1)]
        return {str(count): self._updated(table, count, str(count)) for count in counts}

    def table_size(self) -> dict[str, Callable[[], float]]:
        """Rows of the table to a run on the same change in it."""
        sizes = [self._rows // part for part in (20, 10, 5, 1)]
        runs = {}
        for size in sizes:
            table = self._filled(f"sized_{size}", size, max(1, self._files * size // self._rows))
            runs[str(size)] = self._updated(table, self._rows // 1000, f"sized {size}")
        return runs

    def columns(self) -> dict[str, Callable[[], float]]:
        """Number of columns to a run on a tenth of the rows, all of them rewritten, one in a hundred changed."""
        runs = {}
        for count in COLUMNS:
            table = f"{self._namespace}.columns_{count}"
            more = [F.sha2(F.concat_ws("-", "id", F.lit(n)), 224).alias(f"more_{n}") for n in range(count - 5)]
            rows = rows_of(self._spark, 0, self._rows // 10).select("id", "name", "price", "born", "seen", *more)
            self._spark.sql(f"DROP TABLE IF EXISTS {table}")
            rows.writeTo(table).using("iceberg").tableProperty("format-version", "2").create()
            runs[str(count)] = self._updated(table, self._rows // 1000, f"columns {count}", "id % 100 = 7")
        return runs

    def cores(self) -> dict[str, Callable[[], float]]:
        """Number of cores to a run on a change of a tenth of the rows, in a session of its own."""
        name = str(self._rows // 10)
        if name not in self._ranges:
            self.rows_changed()
        return {str(count): lambda count=count: self._elsewhere(count, name) for count in CORES}  # type: ignore[misc]

    def _filled(self, name: str, rows: int, files: int) -> str:
        table = f"{self._namespace}.{name}"
        create(self._spark, table, 2, "copy-on-write")
        # By range, so that a change of adjacent rows rewrites only the files they are in.
        rows_of(self._spark, 0, rows).repartitionByRange(files, "id").writeTo(table).append()
        return table

    def _updated(self, table: str, count: int, name: str, condition: str = "") -> Callable[[], float]:
        start = head(self._spark, table)
        self._spark.sql(f"UPDATE {table} SET price = price + 1 WHERE {condition or f'id < {count}'}")
        self._ranges[name] = table, start, head(self._spark, table), count
        return lambda: timed(self._spark, *self._ranges[name])

    def _elsewhere(self, cores: int, name: str) -> float:
        given = {field: getattr(self._config, field) for field in self._config.model_fields_set}
        given["spark_conf"] = {"spark.master": f"local[{cores}]", "spark.driver.memory": "3g"}
        return float(in_a_process_of_its_own("benchmarks.growth", [given, self._ranges[name]]))


def timed(spark: SparkSession, table: str, start: int, end: int, count: int) -> float:
    """Seconds from position to merged changes of a range; ends the benchmark if their number is wrong."""
    begin = time.perf_counter()
    changed = merge_changes(spark, table, start, end)
    seconds = time.perf_counter() - begin
    if changed != count:
        raise SystemExit(f"{changed} changes were found in {table}, expected {count}")
    return seconds


def _main(order: str) -> None:
    given, where = json.loads(order)
    spark = get_spark(SyncConfig(**given))
    spark.sparkContext.setLogLevel("ERROR")
    # The first one warms the session up.
    seconds = [timed(spark, *where) for _ in range(3)]
    print(min(seconds[1:]))


if __name__ == "__main__":
    _main(sys.argv[1])
