"""Which data files of which snapshots hold the changes of a range: the file sets of both ends are compared, unread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyiceberg.table.metadata import TableMetadata

from icecdc_core.table.file_tasks import CommitFiles, FileTasks
from icecdc_core.table.iceberg_table import IcebergTable
from icecdc_core.table.snapshots import (
    SnapshotFiles,
    Step,
    common_ancestor,
    cut_at_replaces,
    plan_steps,
    sequence_number,
)


@dataclass(frozen=True)
class MaskedFiles:
    """Data files that both states have, with other delete files: the same files in the same order on both sides.

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
        newly_masked: Data files without delete files in the older state that have some in the newer one.
        unmasked: The other way round, as after a rollback.
        remasked: Data files with other delete files in either state.
        unchanged_until: Sequence number of the newest snapshot that both states descend from, where the files have
            row lineage, so that unchanged rows can be told without their values.
        by_value: Whether both sides are read in full, so that only their values tell which rows are unchanged.
            Otherwise nearly all rows that are read are changes.
    """

    step: Step
    before: FileTasks
    after: FileTasks
    newly_masked: MaskedFiles
    unmasked: MaskedFiles
    remasked: MaskedFiles
    unchanged_until: int | None = None
    by_value: bool = False

    @property
    def masked(self) -> tuple[MaskedFiles, MaskedFiles, MaskedFiles]:
        """Data files that both states have."""
        return self.newly_masked, self.unmasked, self.remasked

    @property
    def older(self) -> list[FileTasks]:
        """Everything read of the older state."""
        return [self.before, *(files.before for files in self.masked)]

    @property
    def newer(self) -> list[FileTasks]:
        """Everything read of the newer state."""
        return [self.after, *(files.after for files in self.masked)]

    @property
    def only_inserts(self) -> bool:
        """Whether no row can have been deleted."""
        return not any(len(tasks) for tasks in self.older)


def plan_scans(
    table: IcebergTable,
    metadata: TableMetadata,
    start_snapshot_id: int | None,
    end_snapshot_id: int,
    mode: str,
) -> list[StepScan]:
    """Plan which files of which snapshots hold the changes of a range; steps without any are left out."""
    steps = plan_steps(metadata, start_snapshot_id, end_snapshot_id, mode)
    # Also where their files are found by commits alone.
    table.read_snapshots.update(each for each in (start_snapshot_id, end_snapshot_id) if each is not None)
    if mode == "net":
        steps = [part for step in steps for part in _cut(table, metadata, step)]
    scans = [_scan(table, metadata, step) for step in steps]
    return [scan for scan in scans if any(len(tasks) for tasks in (*scan.older, *scan.newer))]


def file_bytes(table: IcebergTable, scans: Sequence[StepScan]) -> int:
    """Return the size of all data files that are read of these steps."""
    return sum(size for scan in scans for tasks in (*scan.older, *scan.newer) for size in table.sizes(tasks))


def is_insert_only(scans: Sequence[StepScan]) -> bool:
    """Whether no step can delete a row, so that neither shuffle nor identifier columns are needed."""
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


def _scan(table: IcebergTable, metadata: TableMetadata, step: Step) -> StepScan:
    """Compare the scans of both ends; only files that some commit between them touched are looked at."""
    nothing = table.nothing()
    if step.path is None:
        before = table.plan(step.from_snapshot_id) if step.from_snapshot_id is not None else nothing
        return _compared(table, metadata, step, before, table.plan(step.to_snapshot_id))
    commits = [table.commit_files(snapshot_id) for snapshot_id in step.path]
    touched = {location for commit in commits for location in (*commit.added, *commit.removed, *commit.referenced)}
    anywhere = any(commit.adds_untargeted_deletes or commit.removes_untargeted_deletes for commit in commits)
    # A path that undoes snapshots begins with the one it starts from; undoing an append removes what it added.
    undoes = step.from_snapshot_id in step.path
    if not touched and not anywhere:
        return _compared(table, metadata, step, nothing, nothing)
    sides = None if undoes else _sides_by_commits(table, metadata, step, commits)
    if sides is not None:
        return _compared(table, metadata, step, *sides)
    if step.from_snapshot_id is None or (not undoes and all(commit.only_adds for commit in commits)):
        return _compared(table, metadata, step, nothing, table.plan(step.to_snapshot_id, touched))
    before = table.plan(step.from_snapshot_id, touched, deletes=anywhere)
    after = table.plan(step.to_snapshot_id, touched, deletes=anywhere)
    if anywhere:
        # A delete file that names no data file can hit any: what one side knows of it tells where to look on the other.
        seen_before, seen_after = set(table.locations(before)), set(table.locations(after))
        if seen_after - seen_before - touched:
            before = table.plan(step.from_snapshot_id, touched | seen_before | seen_after)
        if seen_before - seen_after - touched:
            after = table.plan(step.to_snapshot_id, touched | seen_before | seen_after)
    return _compared(table, metadata, step, before, after)


def _sides_by_commits(
    table: IcebergTable, metadata: TableMetadata, step: Step, commits: Sequence[CommitFiles]
) -> tuple[FileTasks, FileTasks] | None:
    """What the commits removed, added and put delete files on, as planning would find it at both ends.

    It spares reading the manifests that list every data file of the table, at both ends where the commits themselves
    added or removed the data files to read, else (their delete files hit others) at one. Only the delete files are
    gone through at both.

    Returns:
        None where only planning both ends can tell.
    """
    if any(commit.adds_untargeted_deletes or not commit.moves_files_once for commit in commits):
        return None
    removed: set[str] = set()
    added: set[str] = set()
    for commit in commits:
        removed |= commit.removed.keys()
        if not commit.added.keys().isdisjoint(added | removed):
            # It came back, or came twice: what is left of it depends on more than its name.
            return None
        added |= commit.added.keys()
    gone, came = removed - added, added - removed
    older = table.chosen([commit.removed_files for commit in commits], gone)
    newer = table.chosen([commit.added_files for commit in commits], came)
    start = step.from_snapshot_id
    if all(commit.only_adds for commit in commits):
        after = table.tasks_of(newer, {})
        since = sequence_number(metadata, start) if start is not None else -1
        if all(number > since for number in table.sequence_numbers(after)):
            # Delete files apply to older data files only.
            return table.nothing(), after
    kept = {location for commit in commits for location in commit.referenced} - added - removed
    undone = {place for commit in commits for place in commit.removed_deletes}
    undone -= {place for commit in commits for place in commit.added_deletes}
    older_deletes = table.targeted_deletes(start, gone | kept, undone) if start is not None else ({}, set())
    newer_deletes = table.targeted_deletes(step.to_snapshot_id, came)
    if older_deletes is None or newer_deletes is None:
        return None
    kept |= older_deletes[1] - removed
    hit = table.plan(step.to_snapshot_id, kept) if kept else table.nothing()
    return (
        table.joined(table.tasks_of(older, older_deletes[0]), table.tasks_of(table.data_files(hit), older_deletes[0])),
        table.joined(table.tasks_of(newer, newer_deletes[0]), hit),
    )


def _compared(
    table: IcebergTable, metadata: TableMetadata, step: Step, before: FileTasks, after: FileTasks
) -> StepScan:
    """Sort the files of both sides by what can differ in them; those that are the same on both are left out."""
    names_before, names_after = table.locations(before), table.locations(after)
    # A file may have been added twice; then it stands for its rows twice, and only their values can be compared.
    repeated = {at for names in (names_before, names_after) for at, times in Counter(names).items() if times > 1}
    place_before = {at: position for position, at in enumerate(names_before) if at not in repeated}
    place_after = {at: position for position, at in enumerate(names_after) if at not in repeated}
    both = [(position, place_after[at]) for at, position in place_before.items() if at in place_after]
    deletes_before, deletes_after = table.delete_counts(before), table.delete_counts(after)
    suspects = [(a, b) for a, b in both if deletes_before[a] or deletes_after[b]]
    alike = [(a, b) for a, b in suspects if deletes_before[a] == deletes_after[b]]
    digests = zip(
        alike,
        table.delete_digests(table.select(before, [a for a, _ in alike])),
        table.delete_digests(table.select(after, [b for _, b in alike])),
        strict=True,
    )
    same = {pair for pair, was, now in digests if was == now}
    newly_masked: list[tuple[int, int]] = []
    unmasked: list[tuple[int, int]] = []
    remasked: list[tuple[int, int]] = []
    for a, b in suspects:
        if (a, b) not in same:
            kind = newly_masked if not deletes_before[a] else unmasked if not deletes_after[b] else remasked
            kind.append((a, b))
    scan = StepScan(
        step,
        table.select(before, [position for position, at in enumerate(names_before) if at not in place_after]),
        table.select(after, [position for position, at in enumerate(names_after) if at not in place_before]),
        newly_masked=_masked(table, before, after, newly_masked),
        unmasked=_masked(table, before, after, unmasked),
        remasked=_masked(table, before, after, remasked),
    )
    until = None if repeated else _unchanged_until(table, metadata, scan)
    rewritten = len(scan.before) > 0 and len(scan.after) > 0
    # Without marks the rows that deletes hit cannot be told, so the files are read as both states see them.
    unmarked = not table.marks_deletes and any(len(files.after) for files in scan.masked)
    return replace(scan, unchanged_until=until, by_value=until is None and (rewritten or unmarked))


def _masked(table: IcebergTable, before: FileTasks, after: FileTasks, pairs: Sequence[tuple[int, int]]) -> MaskedFiles:
    return MaskedFiles(table.select(before, [a for a, _ in pairs]), table.select(after, [b for _, b in pairs]))


def _unchanged_until(table: IcebergTable, metadata: TableMetadata, scan: StepScan) -> int | None:
    rewritten = len(scan.before) and len(scan.after)
    # Marks tell what deletes hit by one reading.
    if not rewritten and (table.marks_deletes or not any(len(files.before) for files in scan.masked)):
        return None
    if not all(table.have_row_ids(tasks) for tasks in (*scan.older, *scan.newer)):
        return None
    ancestor = common_ancestor(metadata, scan.step.from_snapshot_id, scan.step.to_snapshot_id)
    if ancestor is None:
        return None
    until = sequence_number(metadata, ancestor)
    # Files that both states have are older than both, unless one of them added such a file again.
    added = [number for files in scan.masked for number in table.sequence_numbers(files.after)]
    return until if all(number <= until for number in added) else None
