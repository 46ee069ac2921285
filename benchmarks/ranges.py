"""Ranges of many snapshots, and ranges with a compaction in them."""

from __future__ import annotations

import time
from collections.abc import Callable

from pyspark.sql import SparkSession

from benchmarks.tables import create, head, merge_changes, rows_of


class RangesBenchmark:
    """Changes from position to merged rows, over ranges of several commits."""

    def __init__(self, spark: SparkSession, namespace: str, rows: int, commits: int) -> None:
        self._spark, self._commits = spark, commits
        self._many = f"{namespace}.many"
        create(spark, self._many, 2, "merge-on-read")
        rows_of(spark, 0, 1000).coalesce(1).writeTo(self._many).append()
        self._snapshots = [head(spark, self._many)]
        for number in range(commits):
            if number % 10 == 9:
                spark.sql(f"UPDATE {self._many} SET price = price + 1 WHERE id = {number}")
            else:
                rows_of(spark, 1000 + 10 * number, 10).coalesce(1).writeTo(self._many).append()
            self._snapshots.append(head(spark, self._many))
        self._plain = self._updated(f"{namespace}.plain", rows, compaction=False)
        self._compacted = self._updated(f"{namespace}.compacted", rows, compaction=True)

    def many_snapshots(self) -> dict[str, Callable[[], float]]:
        """Name to a run that returns its seconds; one batch, as icecdc does it, first."""
        return {
            f"{self._commits} snapshots in one batch": lambda: self._timed(
                self._many, [(self._snapshots[0], self._snapshots[-1])]
            ),
            "one snapshot at a time": lambda: self._timed(
                self._many, list(zip(self._snapshots, self._snapshots[1:], strict=False))
            ),
        }

    def compaction(self) -> dict[str, Callable[[], float]]:
        """Name to a run that returns its seconds."""
        return {
            "a range without compaction": lambda: self._timed(*self._plain),
            "the same with a compaction in it": lambda: self._timed(*self._compacted),
        }

    def _updated(self, table: str, rows: int, compaction: bool) -> tuple[str, list[tuple[int, int]]]:
        create(self._spark, table, 2, "copy-on-write")
        rows_of(self._spark, 0, rows).writeTo(table).append()
        start = head(self._spark, table)
        self._spark.sql(f"UPDATE {table} SET price = price + 1 WHERE id % 200 = 7")
        if compaction:
            catalog, name = table.split(".", 1)
            options = "map('rewrite-all', 'true')"
            self._spark.sql(f"CALL {catalog}.system.rewrite_data_files(table => '{name}', options => {options})")
        self._spark.sql(f"DELETE FROM {table} WHERE id = {rows // 2}")
        return table, [(start, head(self._spark, table))]

    def _timed(self, name: str, ranges: list[tuple[int, int]]) -> float:
        begin = time.perf_counter()
        changed = sum(merge_changes(self._spark, name, start, end) for start, end in ranges)
        seconds = time.perf_counter() - begin
        expected = self._expected(name)
        if changed != expected:
            raise SystemExit(f"{changed} changes were found in {name}, expected {expected}")
        return seconds

    def _expected(self, name: str) -> int:
        if name == self._many:
            updates = self._commits // 10
            return updates + 10 * (self._commits - updates)
        rows = self._spark.table(name).count() + 1
        return sum(1 for n in range(7, rows, 200) if n != rows // 2) + 1
