"""File scan tasks, which scan planning works with."""

from __future__ import annotations

from typing import Any


class FileTasks:
    """File scan tasks in the JVM: each is a data file with the delete files that apply to it."""

    def __init__(self, tasks: Any) -> None:
        self.java_list = tasks

    def __len__(self) -> int:
        return int(self.java_list.size())
