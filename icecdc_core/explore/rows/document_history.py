"""The rows of one document: now, and in the snapshots that changed it; reads only files that may have them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from py4j.protocol import Py4JJavaError

from icecdc_core.changes.row_changes import changes_frame
from icecdc_core.changes.scan_planning import plan_scans
from icecdc_core.changes.step_scan import SharedFiles, StepScan
from icecdc_core.columns import CHANGE_TYPE, COMMIT_SNAPSHOT_ID
from icecdc_core.documents.bulk_lines import document_json
from icecdc_core.explore.rows.changed import Document, RowChange, net_pairs, parse_document
from icecdc_core.explore.rows.document_ids import WantedDocument
from icecdc_core.table.file_tasks import FileTasks
from icecdc_core.table.snapshots import ancestors, committed_at, operation
from icecdc_core.table.source import Source

MOST_ROWS = 10
"""Rows of one identifier that are read of the current snapshot at most."""

_MOST_CHANGES = 10_000


@dataclass(frozen=True)
class Event:
    """What one snapshot did to a document."""

    snapshot_id: int
    committed_at: datetime
    operation: str
    change: RowChange


@dataclass(frozen=True)
class History:
    """The changes of one document."""

    events: tuple[Event, ...] = ()
    snapshots: int = 0
    files: int = 0
    is_complete: bool = True
    problem: str = ""


def current_rows(source: Source, wanted: WantedDocument) -> list[Document]:
    """Return the rows of a document in the current snapshot, as documents; one, unless identifiers are duplicates."""
    if source.head is None:
        return []
    rows = replace(source.selection, with_row_position=False).select(
        source.table.read(_files(source, source.head, wanted))
    )
    found = rows.where(wanted.condition(rows.schema, source.key_columns))
    return [
        dict(parse_document(row[0]) or {})
        for row in found.select(document_json(rows.schema)).limit(MOST_ROWS).collect()
    ]


def find_history(source: Source, wanted: WantedDocument, most: int) -> History:
    """Return what the newest snapshots of the branch did to a document."""
    if source.head is None:
        return History()
    known = source.snapshot_ids
    chain = ancestors(source.metadata, source.head)
    start = chain[most] if len(chain) > most else None
    if start is None:
        oldest = source.metadata.snapshot_by_id(chain[-1])
        # What the oldest snapshot changed is not known if the one before it has expired.
        start = chain[-1] if oldest is not None and oldest.parent_snapshot_id not in (None, *known) else None
    scans = plan_scans(source.table, source.metadata, start, source.head, "snapshot")
    planned = _Planned(source, wanted)
    narrowed = [each for scan in scans if _file_count(each := planned.narrowed(scan))]
    files = sum(map(_file_count, narrowed))
    searched = len(chain) if start is None else chain.index(start)
    events = _events(source, wanted, narrowed) if narrowed else ()
    problem = "" if events is not None else f"More than {_MOST_CHANGES:,} rows of this identifier changed."
    return History(events or (), searched, files, start is None, problem)


def _events(source: Source, wanted: WantedDocument, scans: list[StepScan]) -> tuple[Event, ...] | None:
    """What snapshots did to a document; None if so many rows changed that it is no identifier."""
    changes = changes_frame(source.table, scans, replace(source.selection, with_row_position=False))
    found = changes.where(wanted.condition(changes.schema, source.key_columns))
    wide = found.select(COMMIT_SNAPSHOT_ID, CHANGE_TYPE, document_json(changes.schema).alias("document"))
    rows = wide.limit(_MOST_CHANGES + 1).collect()
    if len(rows) > _MOST_CHANGES:
        return None
    by_snapshot: dict[int, list[tuple[str, Document]]] = {}
    for row in rows:
        by_snapshot.setdefault(row[COMMIT_SNAPSHOT_ID], []).append(
            (row[CHANGE_TYPE], parse_document(row["document"]) or {})
        )
    return tuple(
        _event(source, snapshot_id, RowChange(wanted.document_id, before, after))
        for snapshot_id in ancestors(source.metadata, source.head)
        for before, after in net_pairs(by_snapshot.get(snapshot_id, []))
    )


def _event(source: Source, snapshot_id: int, change: RowChange) -> Event:
    snapshot = source.metadata.snapshot_by_id(snapshot_id)
    assert snapshot is not None
    return Event(snapshot_id, committed_at(snapshot), operation(snapshot), change)


class _Planned:
    """The data files of snapshots that may have a document, each snapshot planned once."""

    def __init__(self, source: Source, wanted: WantedDocument) -> None:
        self._source = source
        self._wanted = wanted
        self._known: dict[int, frozenset[str]] = {}

    def narrowed(self, scan: StepScan) -> StepScan:
        """Return a scan without the files that cannot have the document, on either side."""
        table, step = self._source.table, scan.step
        either = self._at(step.to_snapshot_id)
        either |= self._at(step.from_snapshot_id) if step.from_snapshot_id is not None else frozenset()

        def kept(tasks: FileTasks) -> list[int]:
            return [place for place, location in enumerate(table.locations(tasks)) if location in either]

        def shared(files: SharedFiles) -> SharedFiles:
            places = kept(files.older)
            return SharedFiles(table.select(files.older, places), table.select(files.newer, places))

        return replace(
            scan,
            only_older=table.select(scan.only_older, kept(scan.only_older)),
            only_newer=table.select(scan.only_newer, kept(scan.only_newer)),
            deletes_added=shared(scan.deletes_added),
            deletes_removed=shared(scan.deletes_removed),
            deletes_changed=shared(scan.deletes_changed),
        )

    def _at(self, snapshot_id: int) -> frozenset[str]:
        if snapshot_id not in self._known:
            files = _files(self._source, snapshot_id, self._wanted)
            self._known[snapshot_id] = frozenset(self._source.table.locations(files))
        return self._known[snapshot_id]


def _files(source: Source, snapshot_id: int, wanted: WantedDocument) -> FileTasks:
    """The files of a snapshot that may have a document, by partitions and statistics."""
    values = _named_at(source, snapshot_id, wanted.filter_values)
    try:
        return source.table.plan_matching(snapshot_id, values)
    except Py4JJavaError:
        # Iceberg refuses a value that the column's type of that time cannot have.
        return source.table.plan(snapshot_id)


def _named_at(source: Source, snapshot_id: int, values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by the names that their columns had in a snapshot; columns that it did not have are left out."""
    metadata, schema = source.metadata, source.metadata.schema()
    snapshot = metadata.snapshot_by_id(snapshot_id)
    # Iceberg, too, reads a snapshot that names no schema with the current one.
    used = next((each for each in metadata.schemas if snapshot and each.schema_id == snapshot.schema_id), schema)
    names = {name: used.find_column_name(schema.find_field(name).field_id) for name in values}
    return {found: value for name, value in values.items() if (found := names[name]) is not None}


def _file_count(scan: StepScan) -> int:
    return sum(len(tasks) for tasks in (*scan.read_older, *scan.read_newer))
