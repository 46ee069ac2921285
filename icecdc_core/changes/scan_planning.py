"""Plan which data files of which snapshots to read for the changes of a range.

The range becomes steps of two states each, and ``compare_scans`` compares the live files of both. Manifests that both
states list cannot hold a difference, so they are not read. What a commit notes about itself (marks of removed files,
counts, its summary) decides nothing: readers of a table do not need it, so writers leave it out.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from icecdc_core.changes.steps import Step, cut_at_replaces, plan_steps, snapshots_between
from icecdc_core.errors import HistoryGapError
from icecdc_core.table.iceberg_table import FileTasks, IcebergTable
from icecdc_core.table.snapshots import TableMetadata, common_ancestor, sequence_number


class SideFiles(NamedTuple):
    """The files to read of one side: those that only it has, and shared ones by what happened to their deletes."""

    own: FileTasks = ()
    deletes_added: FileTasks = ()
    deletes_removed: FileTasks = ()
    deletes_changed: FileTasks = ()

    @property
    def shared(self) -> tuple[FileTasks, ...]:
        return self[1:]


@dataclass(frozen=True)
class StepScan:
    """What to read of each state of a step; shared files are in the same order on both sides."""

    step: Step
    read_older: SideFiles
    read_newer: SideFiles
    unchanged_until: int | None = None
    by_value: bool = False


def compare_scans(
    table: IcebergTable, metadata: TableMetadata, step: Step, older: FileTasks, newer: FileTasks
) -> StepScan:
    """Sort the files of both sides by what can differ in them; files that are the same on both sides are left out."""
    names_older, names_newer = table.locations(older), table.locations(newer)
    # A file that was added twice stands for its rows twice; then only values can be compared.
    repeated = {at for names in (names_older, names_newer) for at, times in Counter(names).items() if times > 1}
    positions_older = {at: position for position, at in enumerate(names_older) if at not in repeated}
    positions_newer = {at: position for position, at in enumerate(names_newer) if at not in repeated}
    shared = [(position, positions_newer[at]) for at, position in positions_older.items() if at in positions_newer]
    facts = [list(zip(table.sizes(t), table.row_counts(t), strict=True)) for t in (older, newer)] if shared else []
    if any(facts[0][a] != facts[1][b] for a, b in shared):
        raise HistoryGapError(
            f"A data file of '{table.name}' was removed, overwritten and added again, so its earlier rows are gone",
            subject="table",
            value=table.name,
            remedy="set on_history_gap=reexport, or run the export; write every data file under a path of its own",
        )
    before, after = table.delete_digests(older), table.delete_digests(newer)
    different = [(a, b) for a, b in shared if before[a] != after[b]]
    added = [(a, b) for a, b in different if not before[a]]
    removed = [(a, b) for a, b in different if not after[b]]
    changed = [(a, b) for a, b in different if before[a] and after[b]]
    only_older = [position for position, at in enumerate(names_older) if at not in positions_newer]
    only_newer = [position for position, at in enumerate(names_newer) if at not in positions_older]
    of_older = [only_older, *([a for a, _ in pairs] for pairs in (added, removed, changed))]
    of_newer = [only_newer, *([b for _, b in pairs] for pairs in (added, removed, changed))]
    read_older = SideFiles(*(table.select(older, positions) for positions in of_older))
    read_newer = SideFiles(*(table.select(newer, positions) for positions in of_newer))
    # Rewritten files are compared. Flags of deleted rows take one read of shared files; without them both are compared.
    is_compared = bool(only_older and only_newer) or bool(different and not table.marks_deletes)
    until = None
    if is_compared and not repeated:
        until = _unchanged_until(table, metadata, step, read_older, read_newer)
    return StepScan(step, read_older, read_newer, until, by_value=is_compared and until is None)


def _unchanged_until(
    table: IcebergTable, metadata: TableMetadata, step: Step, read_older: SideFiles, read_newer: SideFiles
) -> int | None:
    """Return the sequence number up to which row lineage identifies unchanged rows; None if it is not used."""
    if not all(map(table.have_row_ids, (*read_older, *read_newer))):
        return None
    ancestor = common_ancestor(metadata, step.from_snapshot_id, step.to_snapshot_id)
    if ancestor is None or step.path is None:
        return None
    until = sequence_number(metadata, ancestor)
    if any(sequence_number(metadata, snapshot_id) <= until for snapshot_id in step.path):
        return None  # a writer let them shrink
    # What one side alone has came after the ancestor, unless a writer brought files back, whose rows are older.
    ends = ((step.from_snapshot_id, read_older.own), (step.to_snapshot_id, read_newer.own))
    if any(number <= until for end, tasks in ends if end != ancestor for number in table.file_sequence_numbers(tasks)):
        return None
    # Shared files are older than both states, unless one of the states added such a file again.
    numbers = [number for tasks in read_newer.shared for number in table.sequence_numbers(tasks)]
    return until if max(numbers, default=until) <= until else None


def plan_scans(
    table: IcebergTable,
    metadata: TableMetadata,
    start_snapshot_id: int | None,
    end_snapshot_id: int,
    mode: str,
    cut_everywhere: bool = False,
) -> list[StepScan]:
    path = snapshots_between(metadata, start_snapshot_id, end_snapshot_id) or ()
    replaces = [each for each in path if metadata.by_id[each].operation == "replace"]
    parents = {each: metadata.by_id[each].parent_snapshot_id for each in path if mode == "net" or each in replaces}
    files = {each: table.difference(parents[each], each) for each in parents} if replaces else {}
    if false := {each for each in replaces if not files[each].keeps_rows}:
        # Its writer calls it a compaction, but the number of rows is another one.
        snapshots = (replace(each, operation="") if each.snapshot_id in false else each for each in metadata.snapshots)
        metadata = replace(metadata, snapshots=tuple(snapshots))
    steps = plan_steps(metadata, start_snapshot_id, end_snapshot_id, mode)
    if files and mode == "net":
        sizes = {each: (found.removed, found.added) for each, found in files.items()}
        steps = cut_at_replaces(metadata, steps[0], sizes, cut_everywhere)
    sides = ((step, *table.changed(step.from_snapshot_id, step.to_snapshot_id)) for step in steps)
    scans = [compare_scans(table, metadata, *side) for side in sides]
    return [scan for scan in scans if any(map(len, (*scan.read_older, *scan.read_newer)))]


def file_bytes(table: IcebergTable, scans: Sequence[StepScan]) -> int:
    return sum(size for scan in scans for tasks in (*scan.read_older, *scan.read_newer) for size in table.sizes(tasks))


def is_insert_only(scans: Sequence[StepScan]) -> bool:
    """Whether no step can delete a row; then neither a shuffle nor identifier columns are needed."""
    return not any(len(tasks) for scan in scans for tasks in scan.read_older)
