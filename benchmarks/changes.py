"""From position to merged changes, on each kind of table, against Spark's own changelog view and plain reading."""

from __future__ import annotations

import time
from collections.abc import Callable

from pyspark.sql import SparkSession

from benchmarks.tables import consume, create, head, merge_changes, rows_of
from icecdc_core.changes.narrow_rows import FAST, KEYED
from icecdc_core.changes.scan_planning import StepScan, plan_scans
from icecdc_core.table.iceberg_table import FileTasks, IcebergTable


class ChangesBenchmark:
    """A table of ten columns; scattered updates (0.5 %) touch every file, then come deletes (0.1 %) and an append."""

    def __init__(self, spark: SparkSession, table: str, rows: int, version: int, mode: str) -> None:
        self._spark, self._table, self._mode, self._version = spark, table, mode, version
        self._expected: int | None = None
        create(spark, table, version, mode)
        rows_of(spark, 0, rows).writeTo(table).append()
        self._start = head(spark, table)
        spark.sql(f"UPDATE {table} SET price = price + 1 WHERE id % 200 = 7")
        spark.sql(f"DELETE FROM {table} WHERE id % 1000 = 3")
        rows_of(spark, rows, rows // 300).writeTo(table).append()
        self._end = head(spark, table)

    def contestants(self) -> dict[str, Callable[[], float]]:
        """Name to a run that returns its seconds; icecdc first."""
        ours = {"icecdc, position to merged changes": self._icecdc}
        if self._mode == "copy-on-write":
            view = "create_changelog_view with identifier columns"
            others = {view: self._changelog_view, "reading both sides once": self._read_both_sides}
            # Row lineage, from format v3 on, compares no values.
            keyed = {"icecdc, row_hash=keyed": lambda: self._icecdc(KEYED)} if self._version < 3 else {}
            return {**ours, **keyed, **others}
        # Spark's changelog refuses merge-on-read tables.
        return {**ours, "reading the affected files once": self._read_once}

    def _icecdc(self, row_hash: str = FAST) -> float:
        begin = time.perf_counter()
        changed = merge_changes(self._spark, self._table, self._start, self._end, row_hash)
        seconds = time.perf_counter() - begin
        self._check("icecdc", changed)
        return seconds

    def _changelog_view(self) -> float:
        catalog, name = self._table.split(".", 1)
        begin = time.perf_counter()
        self._spark.sql(
            f"CALL {catalog}.system.create_changelog_view(table => '{name}', changelog_view => 'changelog', options => "
            f"map('start-snapshot-id', '{self._start}', 'end-snapshot-id', '{self._end}'), "
            "identifier_columns => array('id'))"
        )
        view = self._spark.table("changelog").where("_change_type <> 'UPDATE_BEFORE'")
        consume(view)
        seconds = time.perf_counter() - begin
        # An identifier that changed in several snapshots counts once, as it does for icecdc.
        self._check("create_changelog_view", view.select("id").distinct().count())
        return seconds

    def _read_both_sides(self) -> float:
        table = IcebergTable(self._spark, self._table)
        (scan,) = self._scans(table)
        return self._read(table, [table.union(*scan.read_older), table.union(*scan.read_newer)])

    def _read_once(self) -> float:
        table = IcebergTable(self._spark, self._table)
        (scan,) = self._scans(table)
        return self._read(table, [table.union(*scan.read_newer)])

    def _read(self, table: IcebergTable, sides: list[FileTasks]) -> float:
        begin = time.perf_counter()
        for tasks in sides:
            consume(table.read(tasks).select(table.column_names()))
        seconds = time.perf_counter() - begin
        table.release()
        return seconds

    def _scans(self, table: IcebergTable) -> list[StepScan]:
        return plan_scans(table, table.metadata(), self._start, self._end, "net")

    def _check(self, who: str, changed: int) -> None:
        self._expected = self._expected if self._expected is not None else changed
        if changed != self._expected:
            raise SystemExit(f"{who} found {changed} changed identifiers, expected {self._expected}")
