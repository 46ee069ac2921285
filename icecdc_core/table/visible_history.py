"""Detects a catalog that shows only the latest snapshot, through which no changes can be read.

Snapshots that really expired leave a trace: expiry writes a new version of the metadata, and the metadata log lists the
version before it. If the only snapshot is not the table's first and there is no metadata log, the catalog hides the
others. A REST catalog can also omit snapshots from its answer; then the metadata file has more of them.
"""

from __future__ import annotations

from pyiceberg.table.metadata import TableMetadata

from icecdc_core.errors import HiddenHistoryError
from icecdc_core.table.catalogs import CatalogView

_NESSIE = "nessie.is-nessie-catalog"


def require_visible_history(table: str, metadata: TableMetadata, view: CatalogView) -> None:
    """Refuse a table whose catalog hides its history."""
    reason = _hidden(metadata, view)
    if reason:
        raise HiddenHistoryError(
            f"The catalog of '{table}' hides its history: {reason}",
            subject="catalog_properties",
            remedy="use a catalog that shows every snapshot (with Nessie its own catalog type, for all writers: "
            "type=nessie, uri=.../api/v2), or set on_history_gap=reexport: then every sync that finds something new "
            "exports the whole table, behind the alias",
        )


def _hidden(metadata: TableMetadata, view: CatalogView) -> str:
    if len(metadata.snapshots) > 1:
        return ""
    if view.is_rest and _NESSIE in view.property_names and not metadata.metadata_log:
        return "Nessie's REST endpoint shows only the latest snapshot of a table"
    if not metadata.snapshots:
        return ""
    only = metadata.snapshots[0]
    if only.parent_snapshot_id is None and (only.sequence_number or 0) <= 1:
        return ""
    if not metadata.metadata_log:
        return (
            f"it shows only snapshot {only.snapshot_id}, which has sequence number {only.sequence_number}, "
            "and the metadata log says that none has expired"
        )
    recorded = view.recorded_snapshots() if view.is_rest else frozenset()
    if recorded - {only.snapshot_id}:
        return f"it shows only snapshot {only.snapshot_id}, but the table's metadata file has {len(recorded)}"
    return ""
