"""Planning what few commits changed in a table of very many files, against Iceberg's own scan planning."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.tables import create, head
from icecdc_core.changes.scan_planning import plan_scans
from icecdc_core.session.jvm import iceberg_class
from icecdc_core.table.iceberg_table import IcebergTable

# Files that one commit adds, and one manifest lists, as a busy writer would leave them.
FILES_A_COMMIT = 1000
# One data file in ten has a delete file.
FILES_A_DELETE_FILE = 10
FILES_FOR_A_LATER_COMMIT = 100
# Data files to read of the older and of the newer state: those that it alone has, and those with other deletes.
KINDS = {
    "append": ((0, 0), (1, 0)),
    "copy-on-write": ((1, 0), (1, 0)),
    "manifests merged": ((1, 0), (1, 0)),
    "many commits": ((0, 0), (1, 0)),  # of each of them
    "position deletes": ((0, 1), (0, 1)),
    "deletion vectors": ((0, 1), (0, 1)),
}


class PlanningBenchmark:
    """A table whose metadata lists files that are never read; the last commits change few of them."""

    def __init__(self, spark: SparkSession, table: str, files: int, kind: str = "copy-on-write") -> None:
        self._spark, self._table, self._files = spark, table, files
        commits = max(1, files // FILES_FOR_A_LATER_COMMIT) if kind == "many commits" else 1
        self._expected = [tuple(commits * count for count in side) for side in KINDS[kind]]
        version = 3 if kind == "deletion vectors" else 2
        create(spark, table, version, "copy-on-write")
        loaded = iceberg_class(spark, "spark.Spark3Util").loadIcebergTable(spark._jsparkSession, table)
        place = f"{loaded.location()}/data"
        builder = iceberg_class(spark, "DataFiles").builder(loaded.spec())
        builder = builder.withFileSizeInBytes(1 << 27).withRecordCount(1_000_000)

        def data_file(name: str) -> Any:
            return builder.withPath(f"{place}/{name}.parquet").build()

        def delete_file(name: str, target: str) -> Any:
            file = iceberg_class(spark, "FileMetadata").deleteFileBuilder(loaded.spec()).ofPositionDeletes()
            file = file.withFileSizeInBytes(1000).withRecordCount(5)
            file = file.withReferencedDataFile(f"{place}/{target}.parquet")
            if version == 2:
                return file.withPath(f"{place}/{name}.parquet").build()
            return file.withPath(f"{place}/{name}.puffin").withContentOffset(4).withContentSizeInBytes(40).build()

        names = [f"{number:09}" for number in range(files)]
        for first in range(0, files, FILES_A_COMMIT):
            append = loaded.newFastAppend()
            for name in names[first : first + FILES_A_COMMIT]:
                append.appendFile(data_file(name))
            append.commit()
        if kind in ("append", "many commits"):
            changes = [loaded.newFastAppend().appendFile(data_file(f"new-{number}")) for number in range(commits)]
        elif kind in ("copy-on-write", "manifests merged"):
            # A commit merges manifests once there are so many of them.
            least = 2 if kind == "manifests merged" else 1_000_000
            loaded.updateProperties().set("commit.manifest.min-count-to-merge", str(least)).commit()
            changes = [loaded.newOverwrite().deleteFile(data_file(names[files // 2])).addFile(data_file("new"))]
        else:
            deletes = {name: delete_file(f"deletes-{name}", name) for name in names[::FILES_A_DELETE_FILE]}
            delta = loaded.newRowDelta()
            for file in deletes.values():
                delta.addDeletes(file)
            delta.commit()
            hit = list(deletes)[len(deletes) // 2]
            change = loaded.newRowDelta().removeDeletes(deletes[hit]).addDeletes(delete_file("more", hit))
            changes = [change.validateFromSnapshot(head(spark, table))]
        self._start = head(spark, table)
        for change in changes:
            change.commit()
        self._end = head(spark, table)

    def contestants(self) -> dict[str, Callable[[], float]]:
        """Name to a run that returns its seconds; icecdc first."""
        return {"icecdc, planning the change": self._icecdc, "Iceberg, planning one scan": self._iceberg}

    def _icecdc(self) -> float:
        begin = time.perf_counter()
        table = IcebergTable(self._spark, self._table)
        scans = plan_scans(table, table.metadata(), self._start, self._end, "net")
        seconds = time.perf_counter() - begin
        found = [
            [(len(side[0]), sum(map(len, side[1:]))) for side in (each.read_older, each.read_newer)] for each in scans
        ]
        if found != [self._expected]:
            raise SystemExit(f"{found} files are to be read, expected {self._expected}")
        return seconds

    def _iceberg(self) -> float:
        begin = time.perf_counter()
        table = iceberg_class(self._spark, "spark.Spark3Util").loadIcebergTable(self._spark._jsparkSession, self._table)
        planned = table.newScan().useSnapshot(self._end).planFiles()
        count = iceberg_class(self._spark, "relocated.com.google.common.collect.Iterables").size(planned)
        planned.close()
        seconds = time.perf_counter() - begin
        (removed, _), (added, _) = self._expected
        if count != self._files + added - removed:
            raise SystemExit(f"{count} files were planned, expected {self._files + added - removed}")
        return seconds
