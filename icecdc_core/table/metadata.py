"""What icecdc needs of a table's metadata, out of the JSON that Iceberg's own library writes in the JVM.

Iceberg alone decides whether metadata can be read. Nothing is parsed here but what a job uses: old schemas, sort
orders, statistics and whatever later format versions add cannot make a table unreadable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Snapshot:
    """One snapshot; ``operation`` is whatever its writer called it, "unknown" if it says nothing."""

    snapshot_id: int
    timestamp_ms: int
    parent_snapshot_id: int | None = None
    sequence_number: int = 0
    operation: str = "unknown"
    summary: Mapping[str, str] = field(default_factory=dict)
    has_manifest_list: bool = True
    schema_id: int | None = None

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Snapshot:
        summary = content.get("summary") or {}
        return cls(
            content["snapshot-id"],
            content["timestamp-ms"],
            content.get("parent-snapshot-id"),
            content.get("sequence-number") or 0,
            summary.get("operation") or "unknown",
            summary,
            bool(content.get("manifest-list")),
            content.get("schema-id"),
        )


@dataclass(frozen=True)
class Ref:
    snapshot_id: int
    is_branch: bool = True


@dataclass(frozen=True)
class TableMetadata:
    """A table's metadata; the current schema is JSON as Iceberg's specification defines it."""

    table_uuid: str
    location: str
    schema: Mapping[str, Any]
    snapshots: tuple[Snapshot, ...]
    refs: Mapping[str, Ref]
    current_snapshot_id: int | None
    has_metadata_log: bool

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> TableMetadata:
        """Read the metadata as ``TableMetadataParser.toJson`` writes them."""
        current = content.get("current-snapshot-id")
        return cls(
            str(content["table-uuid"]),
            content["location"],
            next(each for each in content["schemas"] if each["schema-id"] == content["current-schema-id"]),
            tuple(map(Snapshot.from_json, content.get("snapshots", ()))),
            {name: Ref(ref["snapshot-id"], ref["type"] == "branch") for name, ref in content.get("refs", {}).items()},
            None if current == -1 else current,
            bool(content.get("metadata-log")),
        )

    def snapshot_by_id(self, snapshot_id: int | None) -> Snapshot | None:
        """Return a snapshot; None if it has expired."""
        return next((each for each in self.snapshots if each.snapshot_id == snapshot_id), None)
