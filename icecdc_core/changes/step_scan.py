"""Compare the data files of two states: which files hold the changes of a step, and how changed rows are found.

No data file is opened. In this example ``d+x`` is the data file ``d`` with the delete file ``x``:

    ============  ===========  =====================================================================
    older state   newer state
    ============  ===========  =====================================================================
    a             a            the same on both sides: holds no change, is left out
    b                          ``before``: its rows are deleted, or moved to another file
                  c            ``after``: its rows are inserted, or come from another file
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
    """Data files that both states have, with different delete files: in the same order on both sides.

    Attributes:
        before: As the older state sees them.
        after: As the newer state sees them.
    """

    before: FileTasks
    after: FileTasks


@dataclass(frozen=True)
class StepScan:
    """A step with the file tasks to read.

    Attributes:
        step: The two states that are compared.
        before: Data files that only the older state has; their rows are DELETE rows.
        after: Data files that only the newer state has; their rows are INSERT rows.
        deletes_added: Data files without delete files in the older state that have some in the newer one.
        deletes_removed: The other way round, as after a rollback.
        deletes_changed: Data files with delete files in both states, but different ones.
        unchanged_until: Sequence number of the newest snapshot that both states descend from, if the files have row
            lineage, which identifies unchanged rows without their values.
        by_value: Whether both sides are read in full, so that only a comparison of values finds unchanged rows.
            Otherwise nearly all rows that are read are changes.
    """

    step: Step
    before: FileTasks
    after: FileTasks
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
    def older(self) -> list[FileTasks]:
        """Everything read of the older state."""
        return [self.before, *(files.before for files in self.shared)]

    @property
    def newer(self) -> list[FileTasks]:
        """Everything read of the newer state."""
        return [self.after, *(files.after for files in self.shared)]

    @property
    def only_inserts(self) -> bool:
        """Whether no row can have been deleted."""
        return not any(len(tasks) for tasks in self.older)


def compare_scans(
    table: IcebergTable, metadata: TableMetadata, step: Step, before: FileTasks, after: FileTasks
) -> StepScan:
    """Sort the files of both sides by what can differ in them; files that are the same on both sides are left out.

    Args:
        table: The table.
        metadata: Its metadata.
        step: The two states.
        before: Files of the older state.
        after: Files of the newer state.
    """
    names_before, names_after = table.locations(before), table.locations(after)
    # A file that was added twice stands for its rows twice; then only values can be compared.
    repeated = {at for names in (names_before, names_after) for at, times in Counter(names).items() if times > 1}
    place_before = {at: position for position, at in enumerate(names_before) if at not in repeated}
    place_after = {at: position for position, at in enumerate(names_after) if at not in repeated}
    shared = [(position, place_after[at]) for at, position in place_before.items() if at in place_after]
    added, removed, changed = _different_deletes(table, before, after, shared)
    scan = StepScan(
        step,
        table.select(before, [position for position, at in enumerate(names_before) if at not in place_after]),
        table.select(after, [position for position, at in enumerate(names_after) if at not in place_before]),
        deletes_added=_shared(table, before, after, added),
        deletes_removed=_shared(table, before, after, removed),
        deletes_changed=_shared(table, before, after, changed),
    )
    until = None if repeated else _unchanged_until(table, metadata, scan)
    rewritten = len(scan.before) > 0 and len(scan.after) > 0
    # If the reader cannot flag deleted rows, shared files are read as both states see them.
    read_twice = not table.marks_deletes and any(len(files.after) for files in scan.shared)
    return replace(scan, unchanged_until=until, by_value=until is None and (rewritten or read_twice))


def _different_deletes(
    table: IcebergTable, before: FileTasks, after: FileTasks, shared: Pairs
) -> tuple[Pairs, Pairs, Pairs]:
    """Return the shared files whose delete files were added, removed and changed."""
    deletes_before, deletes_after = table.delete_counts(before), table.delete_counts(after)
    with_deletes = [(a, b) for a, b in shared if deletes_before[a] or deletes_after[b]]
    as_many = [(a, b) for a, b in with_deletes if deletes_before[a] == deletes_after[b]]
    digests_before = table.delete_digests(table.select(before, [a for a, _ in as_many]))
    digests_after = table.delete_digests(table.select(after, [b for _, b in as_many]))
    same = {pair for pair, a, b in zip(as_many, digests_before, digests_after, strict=True) if a == b}
    added: Pairs = []
    removed: Pairs = []
    changed: Pairs = []
    for a, b in with_deletes:
        if (a, b) not in same:
            kind = added if not deletes_before[a] else removed if not deletes_after[b] else changed
            kind.append((a, b))
    return added, removed, changed


def _shared(table: IcebergTable, before: FileTasks, after: FileTasks, pairs: Pairs) -> SharedFiles:
    return SharedFiles(table.select(before, [a for a, _ in pairs]), table.select(after, [b for _, b in pairs]))


def _unchanged_until(table: IcebergTable, metadata: TableMetadata, scan: StepScan) -> int | None:
    """Return the sequence number up to which row lineage identifies unchanged rows; None if it is not used."""
    rewritten = len(scan.before) and len(scan.after)
    # Flags of deleted rows take one read of shared files; row lineage takes two.
    if not rewritten and (table.marks_deletes or not any(len(files.before) for files in scan.shared)):
        return None
    if not all(table.have_row_ids(tasks) for tasks in (*scan.older, *scan.newer)):
        return None
    ancestor = common_ancestor(metadata, scan.step.from_snapshot_id, scan.step.to_snapshot_id)
    if ancestor is None:
        return None
    until = sequence_number(metadata, ancestor)
    # Shared files are older than both states, unless one of the states added such a file again.
    added = [number for files in scan.shared for number in table.sequence_numbers(files.after)]
    return until if all(number <= until for number in added) else None
