"""What TLC checks: the protocol, what is admitted, and wrong protocols."""

from typing import Any

from tests.model.tlc import Check

_SYNC: dict[str, Any] = {"Commits": 2, "Rollbacks": 1}
_REDUCED = {"Reduced": "TRUE"}
_EXPORT: dict[str, Any] = {"Commits": 1, "Exports": 2, "Rollbacks": 0}
_UNDO: dict[str, Any] = {**_EXPORT, **_REDUCED, "Exports": 1, "Batches": 4, "Undos": 1}
_NESTED: dict[str, Any] = {**_SYNC, "Nested": '{"child"}', "Ids": "{a}"}
_MOVING: dict[str, Any] = {**_SYNC, "Moving": "TRUE", "Ids": "{a}", "Values": "{x, y}"}

PROOFS = [
    Check("syncs", {"Commits": 3, "Batches": 3, "Rollbacks": 1}),
    Check("syncs of rows that change", {"Values": "{x, y}", **_SYNC, "Batches": 2}),
    Check("exports and syncs", {"Commits": 3, "Batches": 2, "Exports": 1, "Rollbacks": 0, "Expirations": 1}),
    Check("exports that start over", {**_EXPORT, "Batches": 2, "Rollbacks": 1, "Expirations": 1, "Losses": 1}),
    Check("a first export", {**_EXPORT, "Batches": 2, "Rollbacks": 1, "Expirations": 1, "Losses": 1,
        "Synced": "FALSE"}),
    Check("syncs and repairs", {**_SYNC, "Batches": 3, "Repairs": 1}),
    Check("every step of syncs", {**_SYNC, "Batches": 2, "Reduced": "FALSE"}),
    Check("every step of exports", {**_EXPORT, "Batches": 2, "Losses": 1, "Reduced": "FALSE"}),
    Check("a DELETE and an INSERT of one document", {"Values": "{x, y}", "Commits": 1, "Batches": 2, "Expirations": 1,
        "Pairs": "TRUE"}),
    Check("documents of two tables", {**_NESTED, "Batches": 3, "Expirations": 1}),
    Check("every step of documents of two tables", {**_NESTED, "Batches": 2, "Reduced": "FALSE"}),
    Check("exports of two tables", {**_NESTED, "Exports": 2, "Batches": 2, "Rollbacks": 0}),
    Check("documents that move", {**_MOVING, "Batches": 2}),
    Check("exports that are undone", {**_EXPORT, "Batches": 3, "Undos": 1}),
    Check("every row is indexed although tombstones are forgotten",
        {**_SYNC, "Commits": 1, "Batches": 2, "Values": "{x, y}", "Collects": "TRUE"}, ("RowsAreIndexed",)),
]  # fmt: skip
"""The protocol: all of it must hold."""

ADMITTED = [
    Check("an old request after index.gc_deletes restores a document", {**_SYNC, "Collects": "TRUE"},
        ("NoExtraDocuments",), "NoExtraDocuments"),
]  # fmt: skip
"""What docs/guarantees.md admits: TLC must find it."""


_EVERY_STEP = {"Batches": 2, "Reduced": "FALSE"}


def _mutant(name: str, violated: str, constants: dict[str, Any]) -> Check:
    return Check(name, {**_EVERY_STEP, **constants, "Mutations": f'{{"{name}"}}'}, (violated,), violated)


MUTANTS = [
    _mutant("lock without compare-and-set", "EpochsGrow", _SYNC),
    _mutant("the table is opened before the position is read", "RunsKnowThePosition", _SYNC),
    _mutant("begin without compare-and-set", "IndexIsSnapshot", _SYNC),
    _mutant("commit without lease check", "IndexIsSnapshot", _SYNC),
    _mutant("write before begin", "IndexIsSnapshot", _SYNC),
    _mutant("position before write", "IndexIsSnapshot", _SYNC),
    _mutant("reused epoch", "IndexIsSnapshot", _SYNC),
    _mutant("replay with a new epoch", "EpochsAreUnique", _SYNC),
    _mutant("no cut", "IndexIsSnapshot", _SYNC),
    _mutant("internal versions", "IndexIsSnapshot", _SYNC),
    _mutant("any version", "VersionsNeverFall", _SYNC),
    _mutant("equal versions", "IndexIsSnapshot", {"Commits": 1, "Rollbacks": 1, "Values": "{x, y}", "Pairs": "TRUE",
        **_REDUCED}),
    _mutant("resume by count", "ReadersSeeWholeExports", _EXPORT),
    _mutant("resume with the current snapshot", "IndexIsSnapshot", _EXPORT),
    _mutant("resume in an index created again", "ReadersSeeWholeExports", {**_EXPORT, "Losses": 1}),
    _mutant("group recorded before it is written", "ReadersSeeWholeExports", _EXPORT),
    _mutant("alias before the last group", "ReadersSeeWholeExports", _EXPORT),
    _mutant("export into the live index", "IndexIsSnapshot", _EXPORT),
    _mutant("a batch forgets its cuts", "IndexIsSnapshot", {**_SYNC, **_REDUCED, "Batches": 3}),
    _mutant("a re-export forgets the begun batch", "IndexIsSnapshot",
        {**_SYNC, **_REDUCED, "Commits": 1, "Exports": 1, "Expirations": 1}),
    _mutant("a repair replaces a begun batch", "IndexIsSnapshot",
        {**_SYNC, **_REDUCED, "Commits": 1, "Batches": 3, "Repairs": 1}),
    _mutant("a repair writes what it compared with an older position", "IndexIsSnapshot",
        {**_SYNC, **_REDUCED, "Rollbacks": 0, "Batches": 3, "Repairs": 1}),
    _mutant("a nested table is opened before the position is read", "RunsKnowThePosition", _NESTED),
    _mutant("a cut is the snapshot of the root alone", "IndexIsSnapshot", {**_NESTED, **_REDUCED}),
    _mutant("the position moves for the root alone", "IndexIsSnapshot", _NESTED),
    _mutant("resume with current snapshots of nested tables", "IndexIsSnapshot",
        {**_NESTED, **_REDUCED, "Exports": 2, "Rollbacks": 0}),
    _mutant("deletes go to the place at the position", "IndexIsSnapshot", {**_MOVING, **_REDUCED}),
    _mutant("a delete creates no index", "IndexIsSnapshot", {**_MOVING, **_REDUCED}),
    _mutant("a kept index forgets its begun batch", "IndexIsSnapshot", {**_UNDO, "Rollbacks": 1, "Batches": 3}),
    _mutant("a stalled rollback moves the alias", "ReadersSeeTheCommittedIndex", {**_UNDO, "Exports": 2}),
    _mutant("a rollback leaves other indexes writable", "ReadersSeeTheCommittedIndex", {**_UNDO, "Exports": 2}),
    _mutant("a run without the lock moves the alias", "ReadersSeeTheCommittedIndex", {**_EXPORT, **_REDUCED}),
    _mutant("a run without the lock deletes a newer index", "IndexIsSnapshot", {**_EXPORT, **_REDUCED}),
]  # fmt: skip
"""Wrong protocols: TLC must refuse each, by the invariant that is named. A check that cannot fail is no check."""
