"""Planning a change of one file in a table of very many, against Iceberg's own scan planning."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.tables import create, head
from icecdc_core.scans import plan_scans
from icecdc_core.staged_scan import IcebergTable

# So many files one commit adds, and so one manifest lists, as a busy writer would leave them.
FILES_A_COMMIT = 1000


class PlanningBenchmark:
    """A table whose metadata list files that nobody reads; its last commit replaces one of them.

    Args:
        spark: A session with the table's catalog.
        table: The table to make.
        files: Its data files.
    """

    def __init__(self, spark: SparkSession, table: str, files: int) -> None:
        self._spark, self._table, self._files = spark, table, files
        create(spark, table, 2, "copy-on-write")
        jvm: Any = spark._jvm
        loaded = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, table)
        builder = jvm.org.apache.iceberg.DataFiles.builder(loaded.spec()).withFileSizeInBytes(1 << 27)
        builder = builder.withRecordCount(1_000_000)
        place = f"{loaded.location()}/data"
        for first in range(0, files, FILES_A_COMMIT):
            append = loaded.newFastAppend()
            for number in range(first, min(first + FILES_A_COMMIT, files)):
                append.appendFile(builder.withPath(f"{place}/{number:09}.parquet").build())
            append.commit()
        self._start = head(spark, table)
        old, new = (builder.withPath(f"{place}/{name}.parquet").build() for name in (f"{files // 2:09}", "new"))
        loaded.newOverwrite().deleteFile(old).addFile(new).commit()
        self._end = head(spark, table)

    def contestants(self) -> dict[str, Callable[[], float]]:
        """Name to a run that returns its seconds; icecdc first."""
        return {"icecdc, planning the change": self._icecdc, "Iceberg, planning one scan": self._iceberg}

    def _icecdc(self) -> float:
        begin = time.perf_counter()
        table = IcebergTable(self._spark, self._table)
        scans = plan_scans(table, table.metadata(), self._start, self._end, "net")
        taken = time.perf_counter() - begin
        found = [(len(scan.before), len(scan.after)) for scan in scans]
        if found != [(1, 1)]:
            raise SystemExit(f"{found} files are to be read, expected one on each side")
        return taken

    def _iceberg(self) -> float:
        begin = time.perf_counter()
        jvm: Any = self._spark._jvm
        table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(self._spark._jsparkSession, self._table)
        planned = table.newScan().useSnapshot(self._end).planFiles()
        iterables = jvm.org.apache.iceberg.relocated.com.google.common.collect.Iterables
        count = iterables.size(planned)
        planned.close()
        taken = time.perf_counter() - begin
        if count != self._files:
            raise SystemExit(f"{count} files were planned, expected {self._files}")
        return taken
