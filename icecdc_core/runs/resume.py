"""Resuming a begun export: everything it depends on is proven unchanged, else the export starts over.

It depends on the physical index it created, on its snapshot and the groups that its files were cut into, and on the
parameters that decide what a document contains and which row becomes one. A count of finished groups proves none of
these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from icecdc_core.opensearch.indexes import probe_new_index_digest
from icecdc_core.opensearch.physical_indexes import index_uuid
from icecdc_core.runs.file_groups import FileGroups, file_groups

if TYPE_CHECKING:
    from icecdc_core.commits.position_format import Batch
    from icecdc_core.config import SyncConfig
    from icecdc_core.runs.run import Run
    from icecdc_core.table.source import Source


def resumed_groups(run: Run, source: Source, begun: Batch, may_probe: bool = True) -> tuple[FileGroups | None, str]:
    """Return the groups of a begun export that can continue; else None, and the reason.

    Only creating an index shows which settings a new one gets. A dry run must not create one and assumes no change.
    """
    reason = changed_since(begun, source, run.config)
    if reason:
        return None, reason
    groups = file_groups(source, begun.to_snapshot_id, begun.group_bytes, begun.on_duplicate_identifier)
    reason = _unproven(run, source, begun, groups, may_probe)
    return (None, reason) if reason else (groups, "")


def changed_since(begun: Batch, source: Source, config: SyncConfig) -> str:
    """Return what changed in the table or the parameters since an export began; empty: nothing."""
    snapshots = {None, *(snapshot.snapshot_id for snapshot in source.metadata.snapshots)}
    changes = {
        "documents were rejected when it ran last": bool(begun.failure),
        "the table was created again": begun.table_uuid != source.table_uuid,
        "the selection changed": begun.selection != source.stored_selection,
        "the table's schema changed": begun.schema != source.schema_json,
        "its snapshot expired": begun.to_snapshot_id not in snapshots,
        "it did not record its index": not begun.index_uuid,
        "on_duplicate_identifier changed": begun.on_duplicate_identifier != config.on_duplicate_identifier,
        "max_rejected_documents is now below what was rejected": begun.rejected > config.max_rejected_documents,
    }
    return next((reason for reason, true in changes.items() if true), "")


def _unproven(run: Run, source: Source, begun: Batch, groups: FileGroups, may_probe: bool) -> str:
    if groups.digest != begun.groups_digest:
        return "its files are grouped differently"
    if index_uuid(run.client, begun.physical_index) != begun.index_uuid:
        return "its index was deleted or created again"
    if not may_probe:
        return ""
    now = probe_new_index_digest(run.client, run.config, source.schema, run.run_id, begun.epoch + 1)
    return "" if now == begun.index_digest else "the settings or the mapping of a new index changed"
