"""Read exactly these data files of an Iceberg table as of a snapshot, deletes applied.

The only module that touches Iceberg's JVM classes. It works the way Iceberg's own rewrite actions do: plan
the scan, keep the wanted file tasks, stage them under a key and let Spark read that key. Large collections
stay in the JVM: file tasks are filtered there by method handles and paths cross as one joined string, because
a py4j call costs about 0.1 ms and a table may have a hundred thousand files.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from icecdc_core.catalogs import CatalogView, load_table, view_catalog
from icecdc_core.jvm import JvmFunctions, iceberg_class, java_class
from icecdc_core.readable import (
    for_pyiceberg,
    is_encrypted,
    reads_in_batches,
    require_readable,
    spark_schema,
    top_level_names,
    unreadable_columns,
    without_columns,
    without_row_lineage,
)

_COLLECT = "relocated.com.google.common.collect"
_FILE = ("org.apache.iceberg.FileScanTask", "file")
_LOCATION = (("org.apache.iceberg.ContentFile", "location"),)
_SIZE = (("org.apache.iceberg.ContentFile", "fileSizeInBytes"),)
_TASK_LOCATION = (_FILE, *_LOCATION)
_TASK_SIZE = (_FILE, *_SIZE)
_TASK_ROWS = (_FILE, ("org.apache.iceberg.ContentFile", "recordCount"))
_TASK_FORMAT = (_FILE, ("org.apache.iceberg.ContentFile", "format"))
_TASK_SEQUENCE_NUMBER = (_FILE, ("org.apache.iceberg.ContentFile", "dataSequenceNumber"))
_TASK_FIRST_ROW_ID = (_FILE, ("org.apache.iceberg.ContentFile", "firstRowId"))
_DELETES = (("org.apache.iceberg.FileScanTask", "deletes"),)
_TASK_DELETES = (*_DELETES, ("java.util.List", "size"))
_DELETE_LOCATION = (("org.apache.iceberg.DeleteFile", "location"),)
# Several deletion vectors share one Puffin file and differ by their offset in it.
_DELETE_OFFSET = (("org.apache.iceberg.DeleteFile", "contentOffset"),)
_DELETE_ROWS = (("org.apache.iceberg.DeleteFile", "recordCount"),)
_DELETE_TARGET = (
    ("org.apache.iceberg.util.ContentFileUtil", "referencedDataFileLocation", "org.apache.iceberg.DeleteFile"),
)
_NO_TARGET = "null"
# Each takes some calls into the JVM.
_FILES_LOOKED_AT = 4
_OWN_COLUMNS = {
    "_file": "string",
    "_pos": "long",
    "_deleted": "boolean",
    "_row_id": "long",
    "_last_updated_sequence_number": "long",
}


@dataclass(frozen=True)
class CommitFiles:
    """What one commit did to the file set.

    Attributes:
        added: Data files added, path to size in bytes.
        removed: Data files removed, path to size in bytes.
        added_deletes: Delete files added, path and offset to size in bytes.
        removed_deletes: Delete files removed, path and offset to size in bytes.
        referenced: Data files that an added or removed delete file names as its only target.
        untargeted_deletes: Whether a delete file was added or removed that may apply to any data file.
        added_files: The data files added, in the JVM.
        removed_files: The data files removed, in the JVM.
    """

    added: dict[str, int]
    removed: dict[str, int]
    added_deletes: dict[str, int]
    removed_deletes: dict[str, int]
    referenced: frozenset[str]
    untargeted_deletes: bool
    added_files: Any
    removed_files: Any

    @property
    def only_adds(self) -> bool:
        """Whether the commit can only have added rows."""
        return not (self.removed or self.added_deletes or self.removed_deletes)

    @property
    def only_moves_data(self) -> bool:
        """Whether the commit added and removed nothing but data files, each of them once."""
        once = self.added_files.size() == len(self.added) and self.removed_files.size() == len(self.removed)
        return once and not (self.added_deletes or self.removed_deletes)


class FileTasks:
    """File scan tasks, held in the JVM: each is a data file with the delete files that apply to it."""

    def __init__(self, tasks: Any) -> None:
        self.java_list = tasks

    def __len__(self) -> int:
        return int(self.java_list.size())


class IcebergTable:
    """One Iceberg table as its catalog shows it at the moment of loading.

    Args:
        spark: A session in which the table's catalog is configured.
        name: ``catalog.namespace.table`` as Spark names it.

    Raises:
        TableNotFoundError: There is no such table, or it is not an Iceberg table.
        CatalogError: The catalog cannot be reached or is not configured.
    """

    def __init__(self, spark: SparkSession, name: str) -> None:
        self.spark = spark
        self.name = name
        self._functions = JvmFunctions(spark)
        # Spark 4.1 with Iceberg 1.12 finds staged tasks by a table cache; on it the older option is silently
        # ignored.
        self._has_table_cache = tuple(map(int, spark.version.split(".")[:2])) >= (4, 1)
        self._table = load_table(spark, name)
        self.unreadable = unreadable_columns(spark, self._table)
        # What Spark is shown of it.
        self._readable = self._table
        if self.unreadable and self._has_table_cache:
            self._readable = without_columns(spark, self._table, self.unreadable)
        self._marking: Any | None = None
        self._version = int(self._table.operations().current().formatVersion())
        self._in_batches: bool | None = None
        self._staged: list[str] = []
        self._commits: dict[int, CommitFiles] = {}

    def metadata(self) -> TableMetadata:
        """Return the table's metadata as PyIceberg's typed model, without a second catalog connection."""
        current = self._table.operations().current()
        text = iceberg_class(self.spark, "TableMetadataParser").toJson(current)
        return TableMetadataUtil.parse_raw(for_pyiceberg(text))

    def catalog(self) -> CatalogView:
        """Return what is known of the table's catalog beside the metadata that it shows."""
        return view_catalog(self.spark, self._table)

    def commit_files(self, snapshot_id: int) -> CommitFiles:
        """Return the files that one snapshot's commit added and removed."""
        if snapshot_id not in self._commits:
            self._commits[snapshot_id] = self._commit_files(snapshot_id)
        return self._commits[snapshot_id]

    def _commit_files(self, snapshot_id: int) -> CommitFiles:
        # A snapshot's own lists read manifests by the schema they were written with, which fails where a column
        # that an older partition spec refers to was dropped.
        builder = iceberg_class(self.spark, "SnapshotChanges").builderFor(self._table)
        changes = builder.snapshot(self._table.snapshot(snapshot_id)).build()
        added, removed, added_deletes, removed_deletes = (
            java_class(self.spark, "java.util.ArrayList")(files)
            for files in (
                changes.addedDataFiles(),
                changes.removedDataFiles(),
                changes.addedDeleteFiles(),
                changes.removedDeleteFiles(),
            )
        )
        deletes = (added_deletes, removed_deletes)
        targets = {target for files in deletes for target in self._functions.strings(_DELETE_TARGET, files)}
        return CommitFiles(
            self._sizes(added),
            self._sizes(removed),
            self._delete_sizes(added_deletes),
            self._delete_sizes(removed_deletes),
            frozenset(targets - {_NO_TARGET}),
            _NO_TARGET in targets,
            added,
            removed,
        )

    def spanned(self, snapshot_ids: Iterable[int], column: str) -> tuple[int, int]:
        """Return how far a column of integers reaches in data files that these commits added.

        A few files speak for all of a commit.

        Returns:
            The number of integers from the least to the greatest value of each file, and the number of rows; none
            where it is no such column, or where files do not say.
        """
        field = self._table.schema().findField(column)
        if field is None or field.type().typeId().toString() not in ("INTEGER", "LONG"):
            return 0, 0
        from_bytes = iceberg_class(self.spark, "types.Conversions").fromByteBuffer
        spanned = rows = 0
        for snapshot_id in snapshot_ids:
            added = self.commit_files(snapshot_id).added_files
            count = added.size()
            for position in range(0, count, -(-count // _FILES_LOOKED_AT) or 1):
                file = added.get(position)
                bounds = [of_all and of_all.get(field.fieldId()) for of_all in (file.lowerBounds(), file.upperBounds())]
                if None in bounds:
                    continue
                least, greatest = (from_bytes(field.type(), value) for value in bounds)
                spanned, rows = spanned + greatest - least + 1, rows + file.recordCount()
        return spanned, rows

    def has_delete_files(self, snapshot_id: int) -> bool:
        """Whether a snapshot has delete files, by its manifest list alone."""
        return not self._table.snapshot(snapshot_id).deleteManifests(self._table.io()).isEmpty()

    def tasks_of(self, data_files: Collection[Any]) -> FileTasks:
        """Return the tasks of data files in the JVM that no delete file applies to, as planning would make them."""
        always = iceberg_class(self.spark, "expressions.Expressions").alwaysTrue()
        nothing_left = iceberg_class(self.spark, "expressions.ResidualEvaluator").unpartitioned(always)
        no_deletes = self._functions.array(iceberg_class(self.spark, "DeleteFile"))
        task, schemas, parts = (
            iceberg_class(self.spark, name) for name in ("BaseFileScanTask", "SchemaParser", "PartitionSpecParser")
        )
        specs = self._table.specs()
        texts: dict[int, tuple[str, str]] = {}
        tasks = java_class(self.spark, "java.util.ArrayList")()
        for file in data_files:
            spec_id = file.specId()
            if spec_id not in texts:
                spec = specs.get(spec_id)
                texts[spec_id] = schemas.toJson(spec.schema()), parts.toJson(spec)
            tasks.add(task(file, no_deletes, *texts[spec_id], nothing_left))
        return FileTasks(tasks)

    def plan(self, snapshot_id: int, locations: Collection[str] | None = None, deletes: bool = False) -> FileTasks:
        """Plan the scan of a snapshot.

        Args:
            snapshot_id: The state to read.
            locations: Keep only these data files; None keeps all.
            deletes: Keep also every data file that a delete file applies to.
        """
        planned = self._table.newScan().useSnapshot(snapshot_id).planFiles()
        lists = iceberg_class(self.spark, f"{_COLLECT}.Lists")
        closeable = iceberg_class(self.spark, "io.CloseableIterable")
        try:
            if locations is None:
                return FileTasks(lists.newArrayList(planned))
            wanted = java_class(self.spark, "java.util.HashSet")()
            for location in locations:
                wanted.add(location)
            keep = self._functions.contains(_TASK_LOCATION, wanted, or_positive=_TASK_DELETES if deletes else None)
            return FileTasks(lists.newArrayList(closeable.filter(planned, keep)))
        finally:
            planned.close()

    def nothing(self) -> FileTasks:
        """Return an empty set of tasks."""
        return FileTasks(java_class(self.spark, "java.util.ArrayList")())

    def schema(self) -> StructType:
        """Return the table's current schema as Spark reads it, without the columns it cannot read.

        Raises:
            UnsupportedTypeError: There are such columns, and this version of Spark reads no table that has one.
        """
        if not self._has_table_cache:
            require_readable(self.unreadable, self.unreadable)
        return spark_schema(self.spark, self._readable)

    def column_names(self) -> list[str]:
        """Return the names of the table's current top-level columns, in order.

        Raises:
            UnsupportedTypeError: Spark cannot read one of them.
        """
        require_readable(self.unreadable, self.unreadable)
        return top_level_names(self.spark, self._table)

    def locations(self, tasks: FileTasks) -> list[str]:
        """Return each task's data file."""
        return self._functions.strings(_TASK_LOCATION, tasks.java_list)

    def delete_counts(self, tasks: FileTasks) -> list[int]:
        """Return how many delete files apply to each task's data file."""
        return self._functions.numbers(_TASK_DELETES, tasks.java_list)

    def delete_digests(self, tasks: FileTasks) -> list[str]:
        """Return for each task a digest of the set of delete files that apply to its data file."""
        return self._functions.digests(_DELETES, (_DELETE_LOCATION, _DELETE_OFFSET), tasks.java_list)

    def deleted_count(self, tasks: FileTasks) -> int:
        """Return how many deletes the delete files of these tasks hold, counting a file as often as it applies."""
        if not len(tasks):
            return 0
        listed = self._functions.items(_DELETES, tasks.java_list)
        found = iceberg_class(self.spark, f"{_COLLECT}.Iterables").concat(listed)
        deletes = iceberg_class(self.spark, f"{_COLLECT}.Lists").newArrayList(found)
        return sum(self._functions.numbers(_DELETE_ROWS, deletes))

    def row_counts(self, tasks: FileTasks) -> list[int]:
        """Return the number of rows in each task's data file, deleted ones included."""
        return self._functions.numbers(_TASK_ROWS, tasks.java_list)

    def sequence_numbers(self, tasks: FileTasks) -> list[int]:
        """Return the sequence number of the commit that each task's data file came with."""
        return self._functions.numbers(_TASK_SEQUENCE_NUMBER, tasks.java_list)

    def have_row_ids(self, tasks: FileTasks) -> bool:
        """Whether every row of these files has a ``_row_id`` (format version 3, committed to since the upgrade)."""
        if self._version < 3 or "null" in self._functions.strings(_TASK_FIRST_ROW_ID, tasks.java_list):
            return False
        # Iceberg 1.11 gives every row of an ORC file the id of its first one.
        return self._has_table_cache or "ORC" not in self._functions.strings(_TASK_FORMAT, tasks.java_list)

    @property
    def has_row_lineage(self) -> bool:
        """Whether frames of ``read`` have the columns of row lineage."""
        return self._version >= 3

    @property
    def marks_deletes(self) -> bool:
        """Whether ``read_marked`` can read this table: Spark 4.0 has no such view of format version 3."""
        return not self.has_row_lineage or (self._has_table_cache and not is_encrypted(self._table))

    def sizes(self, tasks: FileTasks) -> list[int]:
        """Return each task's data file size in bytes."""
        return self._functions.numbers(_TASK_SIZE, tasks.java_list)

    def select(self, tasks: FileTasks, positions: Collection[int]) -> FileTasks:
        """Return the tasks at these positions."""
        if len(positions) == len(tasks):
            return tasks
        chosen = java_class(self.spark, "java.util.ArrayList")()
        for position in positions:
            chosen.add(tasks.java_list.get(position))
        return FileTasks(chosen)

    def joined(self, *parts: FileTasks) -> FileTasks:
        """Return the tasks of all parts."""
        everything = java_class(self.spark, "java.util.ArrayList")()
        for part in parts:
            everything.addAll(part.java_list)
        return FileTasks(everything)

    def read(self, tasks: FileTasks) -> DataFrame:
        """Return the live rows of these tasks: the table's columns by field id, deletes applied.

        On format version 3 there are also ``_row_id`` and ``_last_updated_sequence_number``, on older ones ``_file``
        and ``_pos``. The frame stays readable until ``release``; without it, until the Spark application ends.
        """
        return self._read(tasks, self._readable)

    def read_marked(self, tasks: FileTasks) -> DataFrame:
        """Return the rows of these tasks as ``read`` does, but with ``_file``, ``_pos`` and ``_deleted`` to ask for.

        With ``_deleted``, the rows that the delete files hit are there as well. Needs ``marks_deletes``.
        """
        if not self.has_row_lineage:
            return self._read(tasks, self._readable)
        if self._marking is None:
            self._marking = without_row_lineage(self.spark, self._readable)
        return self._read(tasks, self._marking)

    def _read(self, tasks: FileTasks, readable: Any) -> DataFrame:
        if not len(tasks):
            schema = self.schema()
            for name, kind in _OWN_COLUMNS.items():
                schema = schema.add(name, kind)
            return self.spark.createDataFrame([], schema)
        key = uuid.uuid4().hex
        self._task_sets().stageTasks(readable, key, tasks.java_list)
        self._staged.append(key)
        reader = self.spark.read.format("iceberg").options(**self._splits(tasks))
        if self._in_batches is None:
            self._in_batches = reads_in_batches(self.schema())
        if not self._in_batches:
            reader = reader.option("vectorization-enabled", "false")
        if self._has_table_cache:
            self._table_cache().add(key, readable)
            return reader.load(key)
        return reader.option("scan-task-set-id", key).load(self.name)

    def _splits(self, tasks: FileTasks) -> dict[str, int]:
        """How these files are parted among Spark's tasks: as Iceberg does for its own scans, but not for staged ones.

        Its rule gives every core a part where the files allow it. A part holds no fewer files for being smaller, as
        beginning a task takes longer than opening a file.
        """
        given = iceberg_class(self.spark, "spark.SparkReadConf")(
            self.spark._jsparkSession,
            self._table,
            java_class(self.spark, "org.apache.spark.sql.util.CaseInsensitiveStringMap").empty(),
        )
        if not given.adaptiveSplitSizeEnabled():
            return {}
        usual = given.splitSize()
        size = iceberg_class(self.spark, "util.TableScanUtil").adjustSplitSize(
            sum(self.sizes(tasks)), given.parallelism(), usual
        )
        if size >= usual:
            return {}
        return {"split-size": size, "file-open-cost": given.splitOpenFileCost() * size // usual}

    def release(self) -> None:
        """Forget what was staged; frames returned by ``read`` cannot be read any more."""
        while self._staged:
            key = self._staged.pop()
            self._task_sets().removeTasks(self._table, key)
            if self._has_table_cache:
                self._table_cache().remove(key)

    def _task_sets(self) -> Any:
        return self._functions.static_get("org.apache.iceberg.spark.ScanTaskSetManager")

    def _table_cache(self) -> Any:
        return self._functions.static_get("org.apache.iceberg.spark.SparkTableCache")

    def _sizes(self, files: Any) -> dict[str, int]:
        names = self._functions.strings(_LOCATION, files)
        return dict(zip(names, self._functions.numbers(_SIZE, files), strict=True))

    def _delete_sizes(self, files: Any) -> dict[str, int]:
        locations, offsets = (self._functions.strings(part, files) for part in (_DELETE_LOCATION, _DELETE_OFFSET))
        places = (f"{location}#{offset}" for location, offset in zip(locations, offsets, strict=True))
        return dict(zip(places, self._functions.numbers(_SIZE, files), strict=True))
