"""An Iceberg table: its metadata, the scan of a snapshot, and reading chosen data files with deletes applied.

Lists of files stay in the JVM, see ``java_helper``.
"""

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partialmethod
from typing import Any, NamedTuple, cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from icecdc_core.columns import is_reserved
from icecdc_core.session.compat import require_supported
from icecdc_core.session.jvm import SPARK_HAS_ENDED, fetch_text, iceberg_class, java_class, java_helper
from icecdc_core.table.catalogs import load_table, require_visible_history
from icecdc_core.table.schema import (
    METADATA_COLUMNS,
    require_readable,
    spark_schema,
    table_to_read,
    top_level_names,
    unreadable_columns,
)
from icecdc_core.table.snapshots import TableMetadata

_NO_FACT = "null"
# Of rows that a reader holds at once; the bytes in a file are compressed, perhaps so much.
_BATCH_ROWS, _BATCH_BYTES, _DENSITY = 512, 16 * 1024 * 1024, 32
# Over so many slots names of files are spread to compare manifests; 16 bytes each.
SLOTS = 1 << 18


FileTasks = Sequence[Any]
"""A list in the JVM of file scan tasks, each a data file with the delete files that apply to it, or of files alone."""


class Difference(NamedTuple):
    """What a commit changed: the sizes of files by their names, and whether it can have left all rows as they were."""

    removed: dict[str, int]
    added: dict[str, int]
    keeps_rows: bool


class IcebergTable:
    def __init__(self, spark: SparkSession, name: str) -> None:
        require_supported(spark)
        self.spark = spark
        self.name = name
        # Spark 4.1 with Iceberg 1.12 finds staged tasks by a table cache, and silently ignores the older option.
        self._has_table_cache = tuple(map(int, spark.version.split(".")[:2])) >= (4, 1)
        self._table = load_table(spark, name)
        self._java = java_helper(spark)
        self.unreadable = unreadable_columns(spark, self._table)
        # The table as Spark is to see it.
        self._readable = self._table
        if self.unreadable and self._has_table_cache:
            self._readable = table_to_read(spark, self._table, without=self.unreadable)
        self._marking: Any | None = None
        self.has_row_lineage = int(self._table.operations().current().formatVersion()) >= 3
        self._staged: list[str] = []
        self.table_uuid = str(self._table.uuid())
        self.read_snapshots: set[int] = set()

    def metadata(self, needs_history: bool = False) -> TableMetadata:
        metadata = TableMetadata.from_json(json.loads(fetch_text(self._java.metadata(self._table))))
        if needs_history:
            require_visible_history(self.spark, self.name, self._table, metadata)
        return metadata

    def difference(self, older: int | None, newer: int) -> Difference:
        """Return the files that one of two snapshots alone has, delete files included."""
        self.read_snapshots.update(each for each in (older, newer) if each is not None)
        removed, added, has_deletes = self._java.difference(self._table, older, newer, SLOTS)
        sizes = [dict(zip(self._facts("address", side), self.sizes(side), strict=True)) for side in (removed, added)]
        gone, new = (dict(one.items() - other.items()) for one, other in (sizes, sizes[::-1]))
        before, after = (sum(map(int, self._facts("data rows", side))) for side in (removed, added))
        return Difference(gone, new, after <= before if has_deletes else after == before)

    def changed(self, older: int | None, newer: int) -> tuple[FileTasks, FileTasks]:
        """Return what of two snapshots may have other rows, compared by live files, and planned."""
        self.read_snapshots.update(each for each in (older, newer) if each is not None)
        sides = self._java.changed(self._table, older, newer, SLOTS)
        return sides[0], sides[1]

    def _facts(self, name: str, files: FileTasks) -> list[str]:
        joined = fetch_text(self._java.texts(files, name))
        return joined.split("\0") if joined else []

    def _numbers(self, name: str, files: FileTasks) -> list[int]:
        return [int(text) for text in self._facts(name, files)]

    locations = partialmethod(_facts, "location")
    row_counts = partialmethod(_numbers, "recordCount")  # deleted rows included
    sequence_numbers = partialmethod(_numbers, "dataSequenceNumber")
    file_sequence_numbers = partialmethod(_numbers, "fileSequenceNumber")  # of the commits that added them
    sizes = partialmethod(_numbers, "fileSizeInBytes")

    def union(self, *parts: FileTasks) -> FileTasks:
        everything: Any = java_class(self.spark, "java.util.ArrayList")()
        for part in parts:
            everything.addAll(part)
        return cast("FileTasks", everything)

    def plan(self, snapshot_id: int, values: Mapping[str, Sequence[Any]] | None = None) -> FileTasks:
        """Plan a snapshot: all its files, or those with wanted values, each a list or a tuple of least and greatest."""
        self.read_snapshots.add(snapshot_id)
        scan = self._java.scan(self._table, snapshot_id)
        expressions = iceberg_class(self.spark, "expressions.Expressions")
        for name, several in (values or {}).items():
            if isinstance(several, tuple):
                low, high = several
                scan = scan.filter(expressions.greaterThanOrEqual(name, low))
                scan = scan.filter(expressions.lessThanOrEqual(name, high))
            else:
                scan = scan.filter(getattr(expressions, "in")(name, several))
        return cast("FileTasks", self._java.planned(scan, None))

    def schema(self) -> StructType:
        """Return the table's current schema as Spark reads it, without the columns it cannot read."""
        if not self._has_table_cache:
            require_readable(self.unreadable, self.unreadable)
        return spark_schema(self.spark, self._readable)

    def column_names(self) -> list[str]:
        names = top_level_names(self.spark, self._table)
        taken = dict.fromkeys(filter(is_reserved, names), "has the name of a column of changes")
        require_readable({**self.unreadable, **taken}, names)
        return names

    def identifier_columns(self) -> list[str]:
        """Return the names of the table's identifier fields, in the order of their ids, which never changes."""
        schema = self._table.schema()
        return [str(schema.findColumnName(field_id)) for field_id in sorted(schema.identifierFieldIds())]

    def delete_digests(self, tasks: FileTasks) -> list[str]:
        """Return for each task a digest of the set of delete files that apply to its data file; empty without any."""
        return [digest if digest != _NO_FACT else "" for digest in self._facts("delete digest", tasks)]

    def deleted_count(self, tasks: FileTasks) -> int:
        """Return the number of deletes in the delete files of these tasks; a file counts once for each data file."""
        return sum(self._numbers("deleted rows", tasks))

    def have_row_ids(self, tasks: FileTasks) -> bool:
        """Whether every row of these files has a ``_row_id`` (format version 3, committed to since the upgrade)."""
        # Iceberg 1.11 gives every row of an ORC file the id of its first one.
        can_read = self._has_table_cache or "ORC" not in self._facts("format", tasks)
        return can_read and self.has_row_lineage and _NO_FACT not in self._facts("firstRowId", tasks)

    @property
    def marks_deletes(self) -> bool:
        """Whether ``read`` can show deleted rows: Spark 4.0 cannot on format version 3."""
        # A copy of an encrypted table's metadata lacks the keys.
        is_encrypted = self._table.properties().containsKey("encryption.key-id")
        return not self.has_row_lineage or bool(self._has_table_cache and not is_encrypted)

    def select(self, tasks: FileTasks, positions: Sequence[int]) -> FileTasks:
        return cast("FileTasks", self._java.at(tasks, "\0".join(map(str, positions)))) if positions else self.union()

    def read(self, tasks: FileTasks, with_deleted: bool = False) -> DataFrame:
        """Return the live rows of these tasks: the table's columns by field id, deletes applied.

        On format version 3 there are also ``_row_id`` and ``_last_updated_sequence_number``, on older ones ``_file``
        and ``_pos``. With deleted rows, there are ``_file``, ``_pos`` and ``_deleted`` on every version. The frame
        stays readable until ``release``; without it, until the Spark application ends.
        """
        if not len(tasks):
            return self.spark.createDataFrame([], StructType([*self.schema(), *METADATA_COLUMNS]))
        readable = self._readable
        if with_deleted and self.has_row_lineage:
            readable = self._marking = self._marking or table_to_read(self.spark, readable, row_lineage=False)
        key = uuid.uuid4().hex
        self._java.stage(readable, key, tasks)
        self._staged.append(key)
        reader = self.spark.read.format("iceberg")
        # Iceberg chooses splits for its own scans, but not for staged ones: every core gets one if the files allow it.
        # The cost of opening a file shrinks with the split size, because starting a task takes longer than opening one.
        no_options = java_class(self.spark, "org.apache.spark.sql.util.CaseInsensitiveStringMap").empty()
        given = iceberg_class(self.spark, "spark.SparkReadConf")(self.spark._jsparkSession, self._table, no_options)
        size, parallelism, usual = sum(self.sizes(tasks)), given.parallelism(), given.splitSize()
        adjusted = iceberg_class(self.spark, "util.TableScanUtil").adjustSplitSize(size, parallelism, usual)
        if adjusted < usual and given.adaptiveSplitSizeEnabled():
            cost = given.splitOpenFileCost() * adjusted // usual
            reader = reader.options(**{"split-size": adjusted, "file-open-cost": cost})
        # Iceberg's vectorized reader holds whole batches, whatever their rows weigh.
        fitting = _BATCH_BYTES * sum(self.row_counts(tasks)) // (_DENSITY * max(1, size))
        reader = reader.option("batch-size", max(1, min(fitting, _BATCH_ROWS, given.parquetBatchSize())))
        if self._has_lists_of_variants:
            reader = reader.option("vectorization-enabled", "false")
        if self._has_table_cache:
            return reader.load(key)
        return reader.option("scan-task-set-id", key).load(self.name)

    @cached_property
    def _has_lists_of_variants(self) -> bool:
        """Or maps of them: Iceberg's vectorized reader fails on both. Variants are of format 3, as row lineage is."""
        return self.has_row_lineage and bool(re.search(r"\b(array|map)<.*\bvariant\b", self.schema().simpleString()))

    def release(self) -> None:
        """Remove the staged tasks; frames returned by ``read`` cannot be read any more."""
        while self._staged:
            key = self._staged.pop()
            with suppress(*SPARK_HAS_ENDED):
                self._java.release(self._table, key)
