"""The counters of a run: what was read, what happened to each document, and how many requests that needed."""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields


@dataclass(frozen=True)
class Counts:
    upserts: int = 0
    deletes: int = 0
    already_applied: int = 0
    rejected: int = 0
    drifted: int = 0
    carryovers_removed: int = 0
    snapshots: int = 0
    requests: int = 0
    retries: int = 0
    bytes: int = 0

    @property
    def operations(self) -> int:
        """Operations on documents that are done: each was applied, had been applied before, or was rejected."""
        return self.upserts + self.deletes + self.already_applied + self.rejected

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))


# Report, log, commit log and traces have them.
COUNTERS = tuple(counter.name for counter in fields(Counts))
