"""Table metadata as these tests write it."""

from __future__ import annotations

from icecdc_core.table.snapshots import TableMetadata
from tests.table_metadata import metadata_of

Snapshot = tuple[int, "int | None", str, dict[str, str]]


def metadata(*snapshots: Snapshot, **branches: int) -> TableMetadata:
    """A table with these snapshots (id, parent, operation, summary), a second apart, and these branches."""
    return metadata_of([(*each[:3], number * 1000, each[3]) for number, each in enumerate(snapshots, 1)], branches)
