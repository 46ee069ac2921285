"""The file groups of an export: a snapshot's data files, grouped the same way on every attempt."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from icecdc_core.table.selection import require_row_positions

if TYPE_CHECKING:
    from icecdc_core.table.file_tasks import FileTasks
    from icecdc_core.table.source import Source


@dataclass(frozen=True)
class FileGroups:
    """Groups of file tasks, each written and recorded as a whole."""

    tasks: list[FileTasks] = field(default_factory=list)
    digest: str = ""


def file_groups(source: Source, snapshot_id: int | None, group_bytes: int, on_duplicate: str) -> FileGroups:
    """Divide a snapshot's files into groups."""
    locations: list[str] = []
    groups: list[list[int]] = []
    if snapshot_id is not None:
        tasks = source.table.plan(snapshot_id)
        if not source.identifier_columns:
            require_row_positions(source.table, tasks)
        locations, sizes = source.table.locations(tasks), source.table.sizes(tasks)
        filled = group_bytes
        for position in sorted(range(len(sizes)), key=lambda p: locations[p]):
            if not groups or (filled >= group_bytes and on_duplicate != "last"):
                groups.append([])
                filled = 0
            groups[-1].append(position)
            filled += sizes[position]
    names = json.dumps([[locations[position] for position in group] for group in groups])
    selected = [source.table.select(tasks, group) for group in groups]
    return FileGroups(selected, hashlib.sha256(names.encode()).hexdigest())
