"""Reads chosen data files as Iceberg's rewrite actions do: stage file tasks under a key, let Spark read that key."""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

from icecdc_core.session.jvm import iceberg_class, java_class
from icecdc_core.table.file_tasks import FileTasks


class StagedScan:
    """Reads file tasks of a table, which stay staged until they are released."""

    def __init__(self, spark: SparkSession, name: str, table: Any, lists: Any, has_table_cache: bool) -> None:
        self._spark, self._name, self._table, self._lists = spark, name, table, lists
        self._has_table_cache = has_table_cache
        self._staged: list[str] = []

    def read(self, tasks: FileTasks, readable: Any, size: int, in_batches: bool) -> DataFrame:
        """Return the rows of these tasks, deletes applied."""
        key = uuid.uuid4().hex
        self._lists.taskSets().stageTasks(readable, key, tasks.java_list)
        self._staged.append(key)
        reader = self._spark.read.format("iceberg").options(**self._splits(size))
        if not in_batches:
            reader = reader.option("vectorization-enabled", "false")
        if self._has_table_cache:
            self._lists.tableCache().add(key, readable)
            return reader.load(key)
        return reader.option("scan-task-set-id", key).load(self._name)

    def release(self) -> None:
        """Remove the staged tasks; frames returned by ``read`` cannot be read any more."""
        while self._staged:
            key = self._staged.pop()
            with suppress(Py4JError, OSError):  # Spark has ended; the error that ended it must not be hidden
                self._lists.taskSets().removeTasks(self._table, key)
                if self._has_table_cache:
                    self._lists.tableCache().remove(key)

    def _splits(self, size: int) -> dict[str, int]:
        """Return the split options of these files: those Iceberg chooses for its own scans, but not for staged ones.

        Its rule gives every core a split if the files allow it. The cost of opening a file shrinks with the split size,
        because starting a task takes longer than opening a file.
        """
        given = iceberg_class(self._spark, "spark.SparkReadConf")(
            self._spark._jsparkSession,
            self._table,
            java_class(self._spark, "org.apache.spark.sql.util.CaseInsensitiveStringMap").empty(),
        )
        if not given.adaptiveSplitSizeEnabled():
            return {}
        usual = given.splitSize()
        adjusted = iceberg_class(self._spark, "util.TableScanUtil").adjustSplitSize(size, given.parallelism(), usual)
        if adjusted >= usual:
            return {}
        return {"split-size": adjusted, "file-open-cost": given.splitOpenFileCost() * adjusted // usual}
