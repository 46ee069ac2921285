"""The files that one commit added and removed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from icecdc_core.session.jvm import iceberg_class, java_class
from icecdc_core.table.file_lists import parse_numbers, read_facts

_NO_TARGET = "null"


@dataclass(frozen=True)
class CommitFiles:
    """The files that one commit added and removed."""

    added: dict[str, int]
    removed: dict[str, int]
    added_deletes: dict[str, int]
    removed_deletes: dict[str, int]
    referenced: frozenset[str]
    adds_untargeted_deletes: bool
    removes_untargeted_deletes: bool
    added_files: Any
    removed_files: Any

    @property
    def only_adds(self) -> bool:
        """Whether the commit can only have added rows."""
        return not (self.removed or self.added_deletes or self.removed_deletes)

    @property
    def moves_files_once(self) -> bool:
        """Whether the commit added and removed each of its data files once."""
        return bool(self.added_files.size() == len(self.added) and self.removed_files.size() == len(self.removed))


def read_commit_files(spark: SparkSession, lists: Any, table: Any, snapshot_id: int) -> CommitFiles:
    """Read from its manifests what a commit added and removed."""
    # A snapshot's own lists read manifests by the schema they were written with, which fails where a column
    # that an older partition spec refers to was dropped.
    builder = iceberg_class(spark, "SnapshotChanges").builderFor(table)
    changes = builder.snapshot(table.snapshot(snapshot_id)).build()
    added, removed, added_deletes, removed_deletes = (
        java_class(spark, "java.util.ArrayList")(files)
        for files in (
            changes.addedDataFiles(),
            changes.removedDataFiles(),
            changes.addedDeleteFiles(),
            changes.removedDeleteFiles(),
        )
    )
    to_added, to_removed = (set(read_facts(lists, files, "target")) for files in (added_deletes, removed_deletes))
    return CommitFiles(
        added=_sizes(lists, added, "location"),
        removed=_sizes(lists, removed, "location"),
        added_deletes=_sizes(lists, added_deletes, "place"),
        removed_deletes=_sizes(lists, removed_deletes, "place"),
        referenced=frozenset((to_added | to_removed) - {_NO_TARGET}),
        adds_untargeted_deletes=_NO_TARGET in to_added,
        removes_untargeted_deletes=_NO_TARGET in to_removed,
        added_files=added,
        removed_files=removed,
    )


def _sizes(lists: Any, files: Any, name: str) -> dict[str, int]:
    return dict(zip(read_facts(lists, files, name), parse_numbers(read_facts(lists, files, "size")), strict=True))
