"""What icecdc needs of a table's metadata (JSON of Iceberg's own library), and what it says about snapshots.

Nothing is parsed here but what a job uses, so that nothing else can make a table unreadable.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Self

from icecdc_core.errors import HistoryGapError

MAIN_BRANCH = "main"


@dataclass(frozen=True)
class Snapshot:
    """One snapshot; ``operation`` is whatever its writer called it, "unknown" if it says nothing."""

    snapshot_id: int
    timestamp_ms: int
    parent_snapshot_id: int | None = None
    sequence_number: int = 0
    operation: str = "unknown"
    summary: Mapping[str, str] = field(default_factory=dict)
    manifest_list: str = ""

    @property
    def identity(self) -> str:
        """What another snapshot does not have, even if its writer gave it the id of an earlier one."""
        return f"{self.sequence_number} {self.timestamp_ms} {self.manifest_list.rpartition('/')[2]}"


@dataclass(frozen=True)
class TableMetadata:
    """A table's metadata; the current schema is JSON as Iceberg's specification defines it."""

    table_uuid: str
    location: str
    schema: Mapping[str, Any]
    snapshots: tuple[Snapshot, ...]
    refs: Mapping[str, int]
    current_snapshot_id: int | None
    has_metadata_log: bool
    has_name_mapping: bool

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        current = content.get("current-snapshot-id")
        return cls(
            str(content["table-uuid"]),
            content["location"],
            next(each for each in content["schemas"] if each["schema-id"] == content["current-schema-id"]),
            tuple(
                Snapshot(
                    each["snapshot-id"],
                    each["timestamp-ms"],
                    each.get("parent-snapshot-id"),
                    each.get("sequence-number", 0),
                    each.get("summary", {}).get("operation", "unknown"),
                    each.get("summary", {}),
                    each.get("manifest-list", ""),
                )
                for each in content.get("snapshots", ())
            ),
            {name: ref["snapshot-id"] for name, ref in content.get("refs", {}).items()},
            None if current == -1 else current,
            bool(content.get("metadata-log")),
            "schema.name-mapping.default" in content.get("properties", {}),
        )

    @cached_property
    def by_id(self) -> Mapping[int | None, Snapshot]:
        return {snapshot.snapshot_id: snapshot for snapshot in self.snapshots}


def head_snapshot_id(metadata: TableMetadata, branch: str = MAIN_BRANCH) -> int | None:
    if branch == MAIN_BRANCH and branch not in metadata.refs:
        return metadata.current_snapshot_id
    if branch not in metadata.refs:
        raise HistoryGapError(
            f"The table has no branch '{branch}'",
            subject="branch",
            value=branch,
            remedy="use one of: " + ", ".join(sorted(metadata.refs) or [MAIN_BRANCH]),
        )
    return metadata.refs[branch]


def ancestors(metadata: TableMetadata, snapshot_id: int | None) -> list[int]:
    chain: list[int] = []
    while snapshot_id is not None and snapshot_id in metadata.by_id:
        chain.append(snapshot_id)
        snapshot_id = metadata.by_id[snapshot_id].parent_snapshot_id
    return chain


def common_ancestor(metadata: TableMetadata, one: int | None, other: int | None) -> int | None:
    chain = set(ancestors(metadata, one))
    return next((snapshot_id for snapshot_id in ancestors(metadata, other) if snapshot_id in chain), None)


def sequence_number(metadata: TableMetadata, snapshot_id: int | None) -> int:
    """Return a snapshot's sequence number; 0 for format v1, which has none."""
    return metadata.by_id[snapshot_id].sequence_number if snapshot_id is not None else 0


def rows_added(snapshot: Snapshot) -> int:
    return _in_summary(snapshot, "added-records")


def rows_removed(snapshot: Snapshot) -> int:
    # A delete file that replaces another repeats the deletes of that one.
    repeated = _in_summary(snapshot, "removed-position-deletes")
    positions = max(0, _in_summary(snapshot, "added-position-deletes") - repeated)
    return _in_summary(snapshot, "deleted-records") + positions + _in_summary(snapshot, "added-equality-deletes")


def committed_at(snapshot: Snapshot) -> datetime:
    """The second of a commit; Python has none after year 9999, where one lies that a writer took in microseconds."""
    return datetime.fromtimestamp(min(max(snapshot.timestamp_ms, 0), 253_402_300_799_000) // 1000, UTC)


def snapshot_as_of(metadata: TableMetadata, timestamp_ms: int, branch: str = MAIN_BRANCH) -> int | None:
    """The newest snapshot of a branch committed at or before a time (milliseconds since 1970); None before all."""
    chain = ancestors(metadata, head_snapshot_id(metadata, branch))
    found = next((each for each in chain if metadata.by_id[each].timestamp_ms <= timestamp_ms), None)
    if found is None and chain and metadata.by_id[chain[-1]].parent_snapshot_id is not None:
        raise _gap_error(metadata, "start_from", datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat())
    return found


def identity_of(metadata: TableMetadata, snapshot_id: int | None) -> str:
    return metadata.by_id[snapshot_id].identity if snapshot_id in metadata.by_id else ""


def history_gap_error(metadata: TableMetadata, snapshot_id: int, identity: str = "") -> HistoryGapError | None:
    """Return why a snapshot cannot be read; with an identity, also that another one has its id."""
    if snapshot_id not in metadata.by_id:
        return _gap_error(metadata, "snapshot", snapshot_id)
    if identity in ("", identity_of(metadata, snapshot_id)):
        return None
    return HistoryGapError(
        f"Snapshot {snapshot_id} is another one than the index was written from: its id was used again",
        subject="snapshot",
        value=snapshot_id,
        remedy="set on_history_gap=reexport, or run the export; give every snapshot an id of its own",
    )


def require_first_snapshot(metadata: TableMetadata, snapshot_id: int) -> None:
    if metadata.by_id[ancestors(metadata, snapshot_id)[-1]].parent_snapshot_id is not None:
        raise _gap_error(metadata, "start_snapshot_id", "before the first snapshot")


def _in_summary(snapshot: Snapshot, name: str) -> int:
    text = str(snapshot.summary.get(name, ""))
    return int(text) if text.isdecimal() else 0


def _gap_error(metadata: TableMetadata, subject: str, value: object) -> HistoryGapError:
    known = sorted(metadata.snapshots, key=lambda s: s.timestamp_ms)
    oldest = f"; the oldest is {known[0].snapshot_id} of {committed_at(known[0]).isoformat()}" if known else ""
    return HistoryGapError(
        f"The history needed for the changes is gone: {subject} {value} is not in the table's metadata{oldest}",
        subject=subject,
        value=value,
        remedy="set on_history_gap=reexport, or run the export; keep snapshots longer than the pause between two syncs",
    )


def lag(metadata: TableMetadata, position: int | None, head: int | None, now: float | None = None) -> tuple[int, float]:
    """Return the number of snapshots that the index lacks, and the age of the oldest of them in seconds."""
    common = common_ancestor(metadata, position, head) if position is not None else None
    chain = ancestors(metadata, head)
    behind = chain[: chain.index(common)] if common in chain else chain
    if not behind or position == head:
        return 0, 0.0
    times = [metadata.by_id[each].timestamp_ms for each in behind]
    return len(behind), round(max(0.0, (time.time() if now is None else now) - min(times) / 1000), 3)
