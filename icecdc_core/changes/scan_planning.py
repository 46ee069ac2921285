"""Plan which data files of which snapshots to read for the changes of a range.

The range becomes steps of two states each, and ``compare_scans`` compares the live files of both. Manifests that both
states list cannot hold a difference, so they are not read. What a commit notes about itself (marks of removed files,
counts, its summary) decides nothing: readers of a table do not need it, so writers leave it out.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from icecdc_core.changes.steps import Step, cut_at_replaces, plan_steps, snapshots_between
from icecdc_core.errors import HistoryGapError
from icecdc_core.table.iceberg_table import FileTasks, IcebergTable
from icecdc_core.table.snapshots import TableMetadata, common_ancestor, sequence_number


@dataclass(frozen=True)
class StepScan:
    """What to read of each state: files that only it has, then shared ones with deletes added, removed, changed."""

    step: Step
    read_older: Sequence[FileTasks]
    read_newer: Sequence[FileTasks]  # shared files in the same order
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
    read_older = [[position for position, at in enumerate(names_older) if at not in positions_newer]]
    read_newer = [[position for position, at in enumerate(names_newer) if at not in positions_older]]
    for had_and_has_deletes in ((False, True), (True, False), (True, True)):
        pairs = [(a, b) for a, b in different if (bool(before[a]), bool(after[b])) == had_and_has_deletes]
        read_older.append([a for a, _ in pairs])
        read_newer.append([b for _, b in pairs])
    sides = [table.select(older, each) for each in read_older], [table.select(newer, each) for each in read_newer]
    # Rewritten files are compared. Flags of deleted rows take one read of shared files; without them both are compared.
    is_compared = bool(read_older[0] and read_newer[0]) or bool(different and not table.marks_deletes)
    until = _unchanged_until(table, metadata, step, *sides) if is_compared and not repeated else None
    return StepScan(step, *sides, unchanged_until=until, by_value=is_compared and until is None)


def _unchanged_until(
    table: IcebergTable,
    metadata: TableMetadata,
    step: Step,
    read_older: Sequence[FileTasks],
    read_newer: Sequence[FileTasks],
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
    ends = ((step.from_snapshot_id, read_older[0]), (step.to_snapshot_id, read_newer[0]))
    if any(number <= until for end, tasks in ends if end != ancestor for number in table.file_sequence_numbers(tasks)):
        return None
    # Shared files are older than both states, unless one of the states added such a file again.
    numbers = [number for tasks in read_newer[1:] for number in table.sequence_numbers(tasks)]
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
