"""File scan tasks, and the files of one commit: what scan planning works with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class CommitFiles:
    """The files that one commit added and removed.

    Attributes:
        added: Data files added, path to size in bytes.
        removed: Data files removed, path to size in bytes.
        added_deletes: Delete files added, path and offset to size in bytes.
        removed_deletes: Delete files removed, path and offset to size in bytes.
        referenced: Data files that an added or removed delete file names as its only target.
        adds_untargeted_deletes: Whether a delete file was added that may apply to any data file.
        removes_untargeted_deletes: Whether one was removed that may have, as far as the commit says: position
            deletes of format version 2 name their target by column bounds, which Iceberg leaves out of removed files.
        added_files: The data files added, in the JVM.
        removed_files: The data files removed, in the JVM.
    """

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


class FileTasks:
    """File scan tasks in the JVM: each is a data file with the delete files that apply to it."""

    def __init__(self, tasks: Any) -> None:
        self.java_list = tasks

    def __len__(self) -> int:
        return int(self.java_list.size())
