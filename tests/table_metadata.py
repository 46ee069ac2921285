"""Table metadata made by hand."""

from collections.abc import Mapping, Sequence
from typing import Any

from icecdc_core.table.snapshots import TableMetadata

Snapshot = tuple[int, "int | None", str, int, dict[str, str]]
"""Id, parent, operation, time of the commit in milliseconds, and the rest of the summary."""


UUID = "9c12d441-03fe-4693-9a96-a0705ddf69c1"
SCHEMA = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "a", "required": True, "type": "long"}]}


def metadata_of(
    snapshots: Sequence[Snapshot],
    branches: Mapping[str, int],
    *,
    schema: Mapping[str, Any] = SCHEMA,
    log: Sequence[Mapping[str, Any]] = (),
    first_number: int = 1,
    properties: Mapping[str, str] | None = None,
) -> TableMetadata:
    """Return the metadata of a table with these snapshots, committed in this order, and these branches."""
    return TableMetadata.from_json(
        {
            "format-version": 2,
            "table-uuid": UUID,
            "location": "file:/t",
            "last-sequence-number": len(snapshots),
            "last-updated-ms": 1,
            "last-column-id": 1,
            "current-schema-id": 0,
            "schemas": [schema],
            "default-spec-id": 0,
            "partition-specs": [{"spec-id": 0, "fields": []}],
            "last-partition-id": 999,
            "default-sort-order-id": 0,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "metadata-log": list(log),
            "properties": dict(properties or {}),
            "current-snapshot-id": branches.get("main"),
            "snapshots": [
                {
                    "snapshot-id": snapshot_id,
                    **({"parent-snapshot-id": parent} if parent is not None else {}),
                    "sequence-number": number,
                    "timestamp-ms": committed,
                    "manifest-list": f"file:/t/{snapshot_id}.avro",
                    "summary": {"operation": operation, **summary},
                    "schema-id": 0,
                }
                for number, (snapshot_id, parent, operation, committed, summary) in enumerate(snapshots, first_number)
            ],
            "refs": {name: {"snapshot-id": target, "type": "branch"} for name, target in branches.items()},
        }
    )


def metadata(
    *snapshots: tuple[int, int | None, str], current: int, branches: dict[str, int] | None = None
) -> TableMetadata:
    """Table metadata with these (id, parent, operation) snapshots; snapshot n is committed at n seconds."""
    made = [(*each, each[0] * 1000, {"total-records": str(each[0] * 1000)}) for each in snapshots]
    return metadata_of(made, {"main": current, **(branches or {})})
