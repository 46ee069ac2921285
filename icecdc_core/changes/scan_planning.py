"""Plan which data files of which snapshots to read for the changes of a range.

The range becomes steps of two states each, and ``step_scan`` compares the files of both states. As few files as
possible are planned for that: only those that a commit of the step added, removed or deleted rows of. If the commits
name them all, nothing else is planned.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.table.metadata import TableMetadata

from icecdc_core.changes.step_scan import StepScan, compare_scans
from icecdc_core.changes.steps import SnapshotFiles, Step, cut_at_replaces, plan_steps
from icecdc_core.table.commit_files import CommitFiles
from icecdc_core.table.file_tasks import FileTasks
from icecdc_core.table.iceberg_table import IcebergTable
from icecdc_core.table.snapshots import sequence_number


def plan_scans(
    table: IcebergTable,
    metadata: TableMetadata,
    start_snapshot_id: int | None,
    end_snapshot_id: int,
    mode: str,
    trust_commits: bool = True,
) -> list[StepScan]:
    """Plan which files of which snapshots hold the changes of a range."""
    steps = plan_steps(metadata, start_snapshot_id, end_snapshot_id, mode)
    # Both ends must still be there when the rows are read, even if only commits are read to plan.
    table.read_snapshots.update(each for each in (start_snapshot_id, end_snapshot_id) if each is not None)
    if mode == "net":
        steps = [part for step in steps for part in _cut(table, metadata, step)]
    scans = [_scan(table, metadata, step, trust_commits) for step in steps]
    return [scan for scan in scans if any(len(tasks) for tasks in (*scan.read_older, *scan.read_newer))]


def file_bytes(table: IcebergTable, scans: Sequence[StepScan]) -> int:
    """Return the size of all data files that are read."""
    return sum(size for scan in scans for tasks in (*scan.read_older, *scan.read_newer) for size in table.sizes(tasks))


def is_insert_only(scans: Sequence[StepScan]) -> bool:
    """Whether no step can delete a row; then neither a shuffle nor identifier columns are needed."""
    return all(scan.only_inserts for scan in scans)


def _cut(table: IcebergTable, metadata: TableMetadata, step: Step) -> list[Step]:
    operations = {s.snapshot_id: s.summary.operation.value for s in metadata.snapshots if s.summary}
    if not step.path or all(operations.get(snapshot_id) != "replace" for snapshot_id in step.path):
        return [step]
    commits = {snapshot_id: table.commit_files(snapshot_id) for snapshot_id in step.path}
    files = {
        snapshot_id: SnapshotFiles({**c.added, **c.added_deletes}, {**c.removed, **c.removed_deletes})
        for snapshot_id, c in commits.items()
    }
    return cut_at_replaces(metadata, step, files)


def _scan(table: IcebergTable, metadata: TableMetadata, step: Step, trust_commits: bool) -> StepScan:
    """Compare the scans of both ends; only files that a commit between them touched are considered."""
    nothing = table.no_tasks()
    if step.path is None:
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
    start = step.from_snapshot_id
    if all(commit.only_adds for commit in commits):
        tasks = table.tasks_of(newer, {})
        since = sequence_number(metadata, start) if start is not None else -1
        if all(number > since for number in table.sequence_numbers(tasks)):
            # Delete files apply to older data files only.
            return table.no_tasks(), tasks
    in_both = {location for commit in commits for location in commit.referenced} - added - removed
    removed_deletes = {place for commit in commits for place in commit.removed_deletes}
    removed_deletes -= {place for commit in commits for place in commit.added_deletes}
    older_deletes = (
        table.targeted_deletes(start, only_older | in_both, removed_deletes) if start is not None else ({}, set())
    )
    newer_deletes = table.targeted_deletes(step.to_snapshot_id, only_newer)
    if older_deletes is None or newer_deletes is None:
        return None
    in_both |= older_deletes[1] - removed
    shared = table.plan(step.to_snapshot_id, in_both) if in_both else table.no_tasks()
    shared_older = table.tasks_of(table.data_files(shared), older_deletes[0])
    return (
        table.union(table.tasks_of(older, older_deletes[0]), shared_older),
        table.union(table.tasks_of(newer, newer_deletes[0]), shared),
    )
