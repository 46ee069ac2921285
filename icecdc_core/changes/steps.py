"""From a range of snapshots to the steps that must be read: lineage and cuts at compactions. Pure Python, no Spark."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from icecdc_core.table import snapshots


@dataclass(frozen=True)
class Step:
    """One comparison of two snapshots, (from, to]."""

    ordinal: int
    from_snapshot_id: int | None
    to_snapshot_id: int
    path: tuple[int, ...] | None


Sizes = Mapping[str, int]  # the bytes of files by their location


def plan_steps(
    metadata: snapshots.TableMetadata, start_snapshot_id: int | None, end_snapshot_id: int, mode: str = "net"
) -> list[Step]:
    """Turn a range of snapshots into steps: ``net`` compares the two ends once, ``snapshot`` has one each."""
    for snapshot_id in (start_snapshot_id, end_snapshot_id):
        if snapshot_id is not None and (gap := snapshots.history_gap_error(metadata, snapshot_id)) is not None:
            raise gap
    if start_snapshot_id == end_snapshot_id:
        return []
    if mode == "net":
        path = snapshots_between(metadata, start_snapshot_id, end_snapshot_id)
        return [Step(0, start_snapshot_id, end_snapshot_id, path)]
    wanted = snapshots.ancestors(metadata, end_snapshot_id)
    common = snapshots.common_ancestor(metadata, end_snapshot_id, start_snapshot_id)
    steps: list[Step] = []
    if common is not None:
        wanted = wanted[: wanted.index(common)]
        if common != start_snapshot_id:  # after a rollback, or of another branch: a step goes back first
            undone = snapshots.ancestors(metadata, start_snapshot_id)
            steps.append(Step(0, start_snapshot_id, common, tuple(undone[: undone.index(common)])))
    elif start_snapshot_id is not None:
        return [Step(0, start_snapshot_id, end_snapshot_id, None)]
    else:
        snapshots.require_first_snapshot(metadata, end_snapshot_id)
    for snapshot in (metadata.by_id[snapshot_id] for snapshot_id in reversed(wanted)):
        if snapshot.operation != "replace":  # which changes no row by the Iceberg specification
            steps.append(Step(len(steps), snapshot.parent_snapshot_id, snapshot.snapshot_id, (snapshot.snapshot_id,)))
    return steps


def snapshots_between(
    metadata: snapshots.TableMetadata, start_snapshot_id: int | None, end_snapshot_id: int
) -> tuple[int, ...] | None:
    """Return the snapshots whose commits separate two states: those undone from start, then those done to the end."""

    def chain(snapshot_id: int | None) -> list[int | None]:
        known = snapshots.ancestors(metadata, snapshot_id)
        before = metadata.by_id[known[-1]].parent_snapshot_id if known else snapshot_id
        # A chain ends at the empty table (None) or at an expired parent, which is unknown territory.
        return [*known, None] if before is None else [*known]

    undone, done = chain(start_snapshot_id), chain(end_snapshot_id)
    reachable = set(undone)
    for position, common in enumerate(done):
        if common in reachable:
            back, forth = undone[: undone.index(common)], reversed(done[:position])
            return tuple(each for each in (*back, *forth) if each is not None)
    return None


def cut_at_replaces(
    metadata: snapshots.TableMetadata, step: Step, files: Mapping[int, tuple[Sizes, Sizes]], everywhere: bool = False
) -> list[Step]:
    """Split a net step at its ``replace`` snapshots, ``everywhere`` or where that reads fewer bytes.

    Cut into (from, parent of the replace] and (replace, to], a range does not read a compaction.
    """
    path, by_id = step.path or (), metadata.by_id
    line = (step.from_snapshot_id, *path)
    is_straight = all(by_id[b].parent_snapshot_id == a for a, b in zip(line, path, strict=False))
    if step.from_snapshot_id is None or not is_straight:
        return [step]
    replaces = [i for i, s in enumerate(path) if by_id[s].operation == "replace"]
    # Node k of the graph is "everything up to and with replace k is done"; an edge is one stretch that is read.
    starts = [0, *(i + 1 for i in replaces)]
    ends = [*replaces, len(path)]
    stretches = [*zip(starts, ends, strict=True)]
    if not everywhere:
        # The cheapest cuts, by node: the bytes up to it, the stretches up to it, and the node before.
        best = [(0, 0, 0), *[(sys.maxsize, 0, 0)] * len(ends)]
        for first, begin in enumerate(starts):
            size, count, _ = best[first]
            sizes = _bytes_so_far(path[begin:], files)
            for last, end in enumerate(ends[first:], first + 1):
                best[last] = min(best[last], (size + sizes[end - begin], count + (begin < end), first))
        stretches, node = [], len(ends)
        while node:
            node, end = best[node][2], ends[node - 1]
            stretches.insert(0, (starts[node], end))
    cut = [(begin, end) for begin, end in stretches if begin < end]
    return [Step(n, line[begin], path[end - 1], path[begin:end]) for n, (begin, end) in enumerate(cut)]


def _bytes_so_far(path: Sequence[int], files: Mapping[int, tuple[Sizes, Sizes]]) -> list[int]:
    """Return the bytes that are read of a range up to each of its commits; first of none."""
    added: dict[str, int] = {}
    removed: set[str] = set()
    sums = [0]
    for snapshot_id in path:
        gone, new = files.get(snapshot_id, ({}, {}))
        size = sums[-1] + sum(new.values())
        for location, old in gone.items():
            if location in added:
                size -= added.pop(location)
            elif location not in removed:
                size += old
                removed.add(location)
        added.update(new)
        sums.append(size)
    return sums
