"""Plan which data files of which snapshots to read for the changes of a range.

The range becomes steps of two states each, and ``step_scan`` compares the files of both states. As few files as
possible are planned for that: only those that a commit of the step added, removed or deleted rows of. If the commits
name them all, nothing else is planned.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from icecdc_core.changes.steps import Step, cut_at_replaces, plan_steps
from icecdc_core.errors import HistoryGapError
from icecdc_core.table.iceberg_table import CommitFiles, FileTasks, IcebergTable
from icecdc_core.table.snapshots import TableMetadata, common_ancestor, sequence_number


@dataclass(frozen=True)
class StepScan:
    """What to read of each state: data files that only it has, then those of both, in the same order on both sides.

    These are three lists: files whose delete files were added, removed, and changed.
    """

    step: Step
    read_older: Sequence[FileTasks]
    read_newer: Sequence[FileTasks]
    unchanged_until: int | None = None
    by_value: bool = False


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
    read_older = [[position for position, at in enumerate(names_older) if at not in place_newer]]
    read_newer = [[position for position, at in enumerate(names_newer) if at not in place_older]]
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
    if ancestor is None:
        return None
    until = sequence_number(metadata, ancestor)
    # Shared files are older than both states, unless one of the states added such a file again.
    numbers = [number for tasks in read_newer[1:] for number in table.sequence_numbers(tasks)]
    return until if max(numbers, default=until) <= until else None


def plan_scans(
    table: IcebergTable,
    metadata: TableMetadata,
    start_snapshot_id: int | None,
    end_snapshot_id: int,
    mode: str,
    trust_commits: bool = True,
    cut_everywhere: bool = False,
) -> list[StepScan]:
    steps = plan_steps(metadata, start_snapshot_id, end_snapshot_id, mode)
    # Both ends must still be there when the rows are read, even if only commits are read to plan.
    table.read_snapshots.update(each for each in (start_snapshot_id, end_snapshot_id) if each is not None)
    path = steps[0].path or () if mode == "net" and steps else ()
    if any(metadata.by_id[snapshot_id].operation == "replace" for snapshot_id in path):
        commits = {snapshot_id: table.commit_files(snapshot_id) for snapshot_id in path}
        files = {
            snapshot_id: ({**commit.added, **commit.added_deletes}, {**commit.removed, **commit.removed_deletes})
            for snapshot_id, commit in commits.items()
        }
        steps = cut_at_replaces(metadata, steps[0], files, cut_everywhere)
    scans = [_scan(table, metadata, step, trust_commits) for step in steps]
    return [scan for scan in scans if any(map(len, (*scan.read_older, *scan.read_newer)))]


def file_bytes(table: IcebergTable, scans: Sequence[StepScan]) -> int:
    return sum(size for scan in scans for tasks in (*scan.read_older, *scan.read_newer) for size in table.sizes(tasks))


def is_insert_only(scans: Sequence[StepScan]) -> bool:
    """Whether no step can delete a row; then neither a shuffle nor identifier columns are needed."""
    return not any(len(tasks) for scan in scans for tasks in scan.read_older)


def _scan(table: IcebergTable, metadata: TableMetadata, step: Step, trust_commits: bool) -> StepScan:
    """Compare the scans of both ends; only files that a commit between them touched are considered."""
    nothing = table.union()
    # Format version 1 once listed manifests in the metadata; such a list does not show which of them are new.
    if step.path is None or not all(metadata.by_id[each].has_manifest_list for each in step.path):
        older = table.plan(step.from_snapshot_id) if step.from_snapshot_id is not None else nothing
        return compare_scans(table, metadata, step, older, table.plan(step.to_snapshot_id))
    commits = [table.commit_files(snapshot_id) for snapshot_id in step.path]
    touched = {location for commit in commits for location in (*commit.added, *commit.removed, *commit.referenced)}
    anywhere = any(commit.adds_untargeted_deletes or commit.removes_untargeted_deletes for commit in commits)
    # A path that undoes snapshots begins with the one it starts from; undoing an append removes what it added.
    undoes = step.from_snapshot_id in step.path
    if not touched and not anywhere:
        return compare_scans(table, metadata, step, nothing, nothing)
    sides = _sides_by_commits(table, metadata, step, commits) if trust_commits and not undoes else None
    if sides is not None:
        return compare_scans(table, metadata, step, *sides)
    if step.from_snapshot_id is None or (not undoes and all(commit.only_adds for commit in commits)):
        return compare_scans(table, metadata, step, nothing, table.plan(step.to_snapshot_id, touched))
    older = table.plan(step.from_snapshot_id, touched, deletes=anywhere)
    newer = table.plan(step.to_snapshot_id, touched, deletes=anywhere)
    if anywhere:
        # A delete file that names no data file can hit any: the files it hits on one side are looked up on the other.
        seen_older, seen_newer = set(table.locations(older)), set(table.locations(newer))
        if seen_newer - seen_older - touched:
            older = table.plan(step.from_snapshot_id, touched | seen_older | seen_newer)
        if seen_older - seen_newer - touched:
            newer = table.plan(step.to_snapshot_id, touched | seen_older | seen_newer)
    return compare_scans(table, metadata, step, older, newer)


def _sides_by_commits(
    table: IcebergTable, metadata: TableMetadata, step: Step, commits: Sequence[CommitFiles]
) -> tuple[FileTasks, FileTasks] | None:
    """Return both sides from what the commits added, removed and deleted, as planning would find them.

    This saves reading the manifests that list every data file of the table: at both ends if the commits added or
    removed the data files to read, at one end if delete files hit others. Only delete files are listed at both ends.
    """
    if any(commit.adds_untargeted_deletes or not commit.moves_files_once for commit in commits):
        return None
    removed: set[str] = set()
    added: set[str] = set()
    for commit in commits:
        removed |= commit.removed.keys()
        if not commit.added.keys().isdisjoint(added | removed):
            # Added twice, or again after it was removed: its name alone does not show what it contains.
            return None
        added |= commit.added.keys()
    only_older, only_newer = removed - added, added - removed
    older = table.data_files_at([commit.removed_files for commit in commits], only_older)
    newer = table.data_files_at([commit.added_files for commit in commits], only_newer)
    if table.has_row_lineage and not table.know_row_ids(newer):
        # A commit from before format version 3 does not show the ids that its rows have got since.
        return None
    start = step.from_snapshot_id
    # A delete file applies to older data files only. But a file that was appended again may have a vector from before.
    since = sequence_number(metadata, start) if start is not None else -1
    only_adds = all(commit.only_adds for commit in commits)
    are_newer = only_adds and all(number > since for number in table.sequence_numbers(newer))
    if are_newer and not table.has_row_lineage:
        return table.union(), table.tasks_of(newer, {})
    newer_deletes = table.targeted_deletes(step.to_snapshot_id, only_newer)
    if newer_deletes is None:
        return None
    if are_newer:
        return table.union(), table.tasks_of(newer, newer_deletes[0])
    in_both = {location for commit in commits for location in commit.referenced} - added - removed
    removed_deletes = {place for commit in commits for place in commit.removed_deletes}
    removed_deletes -= {place for commit in commits for place in commit.added_deletes}
    older_deletes = (
        table.targeted_deletes(start, only_older | in_both, removed_deletes) if start is not None else ({}, set())
    )
    if older_deletes is None:
        return None
    in_both |= older_deletes[1] - removed
    shared = table.plan(step.to_snapshot_id, in_both) if in_both else table.union()
    return (
        table.union(*(table.tasks_of(files, older_deletes[0]) for files in (older, shared))),
        table.union(table.tasks_of(newer, newer_deletes[0]), shared),
    )
