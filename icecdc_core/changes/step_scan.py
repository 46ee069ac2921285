"""Compare the data files of two states: which files hold the changes of a step, and how changed rows are found.

No data file is opened. In this example ``d+x`` is the data file ``d`` with the delete file ``x``:

    ============  ===========  =====================================================================
    older state   newer state
    ============  ===========  =====================================================================
    a             a            the same on both sides: holds no change, is left out
    b                          ``only_older``: its rows are deleted, or moved to another file
                  c            ``only_newer``: its rows are inserted, or come from another file
    d             d+x          ``deletes_added``: the rows that x deletes
    e+x           e            ``deletes_removed``: the rows that x deleted are back
    f+x           f+y          ``deletes_changed``: rows that only one of x and y deletes
    ============  ===========  =====================================================================
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from pyiceberg.table.metadata import TableMetadata

from icecdc_core.changes.steps import Step
from icecdc_core.table.file_tasks import FileTasks
from icecdc_core.table.iceberg_table import IcebergTable
from icecdc_core.table.snapshots import common_ancestor, sequence_number

Pairs = list[tuple[int, int]]
"""Files that both states have: their places on both sides."""


@dataclass(frozen=True)
class SharedFiles:
    """Data files that both states have, with different delete files: in the same order on both sides."""

    older: FileTasks
    newer: FileTasks


@dataclass(frozen=True)
class StepScan:
    """A step with the file tasks to read."""

    step: Step
    only_older: FileTasks
    only_newer: FileTasks
    deletes_added: SharedFiles
    deletes_removed: SharedFiles
    deletes_changed: SharedFiles
    unchanged_until: int | None = None
    by_value: bool = False

    @property
    def shared(self) -> tuple[SharedFiles, SharedFiles, SharedFiles]:
        """Data files that both states have."""
        return self.deletes_added, self.deletes_removed, self.deletes_changed

    @property
    def read_older(self) -> list[FileTasks]:
        """Everything read of the older state."""
        return [self.only_older, *(files.older for files in self.shared)]

    @property
    def read_newer(self) -> list[FileTasks]:
        """Everything read of the newer state."""
        return [self.only_newer, *(files.newer for files in self.shared)]

    @property
    def only_inserts(self) -> bool:
        """Whether no row can have been deleted."""
        return not any(len(tasks) for tasks in self.read_older)


def compare_scans(
    table: IcebergTable, metadata: TableMetadata, step: Step, older: FileTasks, newer: FileTasks
) -> StepScan:
    """Sort the files of both sides by what can differ in them; files that are the same on both sides are left out."""
    names_older, names_newer = table.locations(older), table.locations(newer)
    # A file that was added twice stands for its rows twice; then only values can be compared.
    repeated = {at for names in (names_older, names_newer) for at, times in Counter(names).items() if times > 1}
    place_older = {at: position for position, at in enumerate(names_older) if at not in repeated}
    place_newer = {at: position for position, at in enumerate(names_newer) if at not in repeated}
    shared = [(position, place_newer[at]) for at, position in place_older.items() if at in place_newer]
    added, removed, changed = _different_deletes(table, older, newer, shared)
    scan = StepScan(
        step,
        table.select(older, [position for position, at in enumerate(names_older) if at not in place_newer]),
        table.select(newer, [position for position, at in enumerate(names_newer) if at not in place_older]),
        deletes_added=_shared(table, older, newer, added),
        deletes_removed=_shared(table, older, newer, removed),
        deletes_changed=_shared(table, older, newer, changed),
    )
    until = None if repeated else _unchanged_until(table, metadata, scan)
    rewritten = len(scan.only_older) > 0 and len(scan.only_newer) > 0
    # If the reader cannot flag deleted rows, shared files are read as both states see them.
    read_twice = not table.marks_deletes and any(len(files.newer) for files in scan.shared)
    return replace(scan, unchanged_until=until, by_value=until is None and (rewritten or read_twice))


def _different_deletes(
    table: IcebergTable, older: FileTasks, newer: FileTasks, shared: Pairs
) -> tuple[Pairs, Pairs, Pairs]:
    """Return the shared files whose delete files were added, removed and changed."""
    deletes_older, deletes_newer = table.delete_counts(older), table.delete_counts(newer)
    with_deletes = [(a, b) for a, b in shared if deletes_older[a] or deletes_newer[b]]
    as_many = [(a, b) for a, b in with_deletes if deletes_older[a] == deletes_newer[b]]
    digests_older = table.delete_digests(table.select(older, [a for a, _ in as_many]))
    digests_newer = table.delete_digests(table.select(newer, [b for _, b in as_many]))
    same = {pair for pair, a, b in zip(as_many, digests_older, digests_newer, strict=True) if a == b}
    added: Pairs = []
    removed: Pairs = []
    changed: Pairs = []
    for a, b in with_deletes:
        if (a, b) not in same:
            kind = added if not deletes_older[a] else removed if not deletes_newer[b] else changed
            kind.append((a, b))
    return added, removed, changed


def _shared(table: IcebergTable, older: FileTasks, newer: FileTasks, pairs: Pairs) -> SharedFiles:
    return SharedFiles(table.select(older, [a for a, _ in pairs]), table.select(newer, [b for _, b in pairs]))


def _unchanged_until(table: IcebergTable, metadata: TableMetadata, scan: StepScan) -> int | None:
    """Return the sequence number up to which row lineage identifies unchanged rows; None if it is not used."""
    rewritten = len(scan.only_older) and len(scan.only_newer)
    # Flags of deleted rows take one read of shared files; row lineage takes two.
    if not rewritten and (table.marks_deletes or not any(len(files.older) for files in scan.shared)):
        return None
    if not all(table.have_row_ids(tasks) for tasks in (*scan.read_older, *scan.read_newer)):
        return None
    ancestor = common_ancestor(metadata, scan.step.from_snapshot_id, scan.step.to_snapshot_id)
    if ancestor is None:
        return None
    until = sequence_number(metadata, ancestor)
    # Shared files are older than both states, unless one of the states added such a file again.
    added = [number for files in scan.shared for number in table.sequence_numbers(files.newer)]
    return until if all(number <= until for number in added) else None
