"""One document: in the index, in the table now, and what happened to its row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from opensearchpy import OpenSearch
from opensearchpy.exceptions import NotFoundError
from py4j.protocol import Py4JJavaError

from icecdc_core.changes.row_changes import changes_frame
from icecdc_core.changes.scan_planning import StepScan, plan_scans
from icecdc_core.columns import CHANGE_TYPE, COMMIT_SNAPSHOT_ID
from icecdc_core.commits.store import PositionStore
from icecdc_core.documents.bulk_lines import document_json, epoch_of
from icecdc_core.errors import IcecdcError
from icecdc_core.explore.figures import Part, heading, paragraphs, table, value_text
from icecdc_core.explore.rows import (
    UPDATED,
    Document,
    RowChange,
    WantedDocument,
    find_wanted,
    net_pairs,
    parse_document,
)
from icecdc_core.explore.view import OTHER_DOCUMENTS
from icecdc_core.opensearch.checksums import without_fields
from icecdc_core.reporting.figures import Cell
from icecdc_core.table.snapshots import ancestors, committed_at, operation
from icecdc_core.table.source import Source

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from icecdc_core.explore.differences import Differences
    from icecdc_core.explore.view import View


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
    try:
        files = source.table.plan_matching(source.head, wanted.filter_values)
    except Py4JJavaError:  # Iceberg refuses a value that a column's type of that time cannot have
        files = source.table.plan(source.head)
    rows = replace(source.selection, with_row_position=False).select(source.table.read(files))
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
    files = sum(map(_file_count, scans))
    searched = len(chain) if start is None else chain.index(start)
    events = _events(source, wanted, scans) if scans else ()
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


def _file_count(scan: StepScan) -> int:
    return sum(len(tasks) for tasks in (*scan.read_older, *scan.read_newer))


_LONGEST_ROW = 600


@dataclass(frozen=True)
class IndexedDocument:
    """A document as the index has it."""

    fields: Document | None = None
    version: int | None = None
    written: str = ""
    problem: str = ""


@dataclass(frozen=True, repr=False)
class DocumentView(Part):
    """One document, from both sides."""

    document_id: str = ""
    indexed: IndexedDocument = field(default_factory=IndexedDocument)
    rows: tuple[Document, ...] = ()
    agrees: bool | None = None
    verdict: str = ""
    history: History = field(default_factory=History)

    @property
    def line(self) -> str:
        """The document, and whether both sides agree."""
        return f"{self.document_id}: {self.verdict}" if self.document_id else self.verdict

    def to_dict(self) -> dict[str, Any]:
        """What was found, for the report; no value of a field, but the id, which is made of the identifier columns."""
        return {
            "document_id": self.document_id,
            "version": self.indexed.version,
            "in_table": bool(self.rows),
            "agrees": self.agrees,
            "changes": len(self.history.events),
            "files_read": self.history.files,
        }

    def _repr_html_(self) -> str:
        if not self.document_id:
            return paragraphs(self.verdict)
        text = heading(f"Document {self.document_id}") + paragraphs(self.verdict, self.indexed.written)
        return text + self._sides() + self._events()

    def _sides(self) -> str:
        index, row = self.indexed.fields or {}, self.rows[0] if self.rows else {}
        names = list({**row, **index})
        if not names:
            return ""
        rows: list[list[str | Cell]] = []
        for name in names:
            differs = bool(self.indexed.fields and self.rows) and index.get(name) != row.get(name)
            cells = [
                Cell(value_text(side.get(name)) if there else "-", kind if differs else "")
                for side, there, kind in ((index, self.indexed.fields, "before"), (row, self.rows, "after"))
            ]
            rows.append([name, *cells])
        return table(("field", "in the index", "in the table now"), rows)

    def _events(self) -> str:
        found = self.history
        searched = f"{found.snapshots:,} snapshots, {found.files:,} of their changed files read"
        older = "" if found.is_complete else "What happened before them is not known, or was not searched."
        if found.problem:
            return heading("History") + paragraphs(found.problem)
        if not found.events:
            return heading("History") + paragraphs(f"No snapshot changed it ({searched}).", older)
        rows = [
            (
                str(event.snapshot_id),
                f"{event.committed_at:%Y-%m-%d %H:%M:%S}",
                event.operation,
                Cell(event.change.kind, event.change.kind),
                *shown,
            )
            for event in found.events
            for shown in _fields_of(event.change)
        ]
        head = ("snapshot", "committed (UTC)", "operation", "change", "field", "value")
        return heading(f"History: {searched}") + table(head, rows) + paragraphs(older)


def _fields_of(change: RowChange) -> list[tuple[str, Cell]]:
    """The fields that an update changed, each with its values; of a row that came or went, all on one line."""
    if change.kind == UPDATED:
        return [(name, change.cell(name)) for name in change.changed_fields]
    row = {**(change.before or {}), **(change.after or {})}
    text = ", ".join(f"{name}: {value_text(value)}" for name, value in row.items())
    return [("all", Cell(text if len(text) <= _LONGEST_ROW else f"{text[:_LONGEST_ROW]}…", change.kind))]


def look_up_document(view: View, differences: Differences) -> DocumentView:
    """Look a document up in the index and in the table, and find what snapshots did to it."""
    given = view.config.document_id or differences.example_id
    if not view.source.identifier_columns:
        return DocumentView(
            verdict="The table has no identifier columns, so the id of a document does not say which row it is."
        )
    if not given:
        return DocumentView(verdict="No document changed; set document_id to look one up.")
    with view.reading() as source:
        is_id = not view.config.document_id
        wanted = find_wanted(source.table.spark, source.table.schema(), source.identifier_columns, given, is_id)
        rows = current_rows(source, wanted)
        history = find_history(source, wanted, view.config.max_snapshots)
    indexed = _indexed(view, wanted)
    found = DocumentView(wanted.document_id, indexed, tuple(rows), history=history)
    agrees, verdict = _verdict(view, found)
    return replace(found, agrees=agrees, verdict=verdict)


def _indexed(view: View, wanted: WantedDocument) -> IndexedDocument:
    if view.missing:
        return IndexedDocument(problem=view.missing)
    try:
        with view.searching("reading a document") as client:
            try:
                found = client.get(index=view.config.index, id=wanted.document_id)
            except NotFoundError:
                return IndexedDocument()
            version = int(found["_version"])
            written = _writing_batch(client, view, version)
    except IcecdcError as error:
        return IndexedDocument(problem=f"The index cannot be read. {error}")
    return IndexedDocument(view.visible_fields(found.get("_source") or {}), version, written)


def _writing_batch(client: OpenSearch, view: View, version: int) -> str:
    """Which batch wrote a document, from its version and the commit log."""
    epoch = epoch_of(version)
    log = PositionStore(client, view.config).log(1, highest_epoch=epoch)
    by = f"Its version in the index is {version:,}: it was written in epoch {epoch:,}"
    if log and log[0].get("epoch") == epoch:
        when, kind = str(log[0].get("updated_at", ""))[:19].replace("T", " "), log[0].get("kind")
        return f"{by}, by the {kind} of {when} UTC to snapshot {log[0].get('to_snapshot_id')}."
    return f"{by}."


def _verdict(view: View, found: DocumentView) -> tuple[bool | None, str]:
    indexed, rows = found.indexed, found.rows
    if indexed.problem:
        return None, indexed.problem
    if len(rows) > 1:
        more = " or more" if len(rows) == MOST_ROWS else ""
        return None, f"The table has {len(rows)}{more} rows of this identifier."
    if view.hides_documents:
        return (
            None,
            f"{OTHER_DOCUMENTS}, so its fields are not shown here.",
        )
    if indexed.fields is None and not rows:
        return True, "Neither the index nor the table has it now."
    behind = view.position_snapshot_id != view.source.head
    remedy = (
        "The index is behind the table, so the next sync may bring it."
        if behind
        else "The index is up to date, so something else wrote there: 30_validation with repair=true corrects it."
    )
    if indexed.fields is None:
        return False, f"Only the table has it. {remedy}"
    if not rows:
        return False, f"Only the index has it. {remedy}"
    if is_same(indexed.fields, rows[0], view.config.pipeline_fields, view.source.schema):
        return True, "The index and the table agree."
    return False, f"The index and the table differ. {remedy}"


def is_same(indexed: Document, row: Document, pipeline_fields: Sequence[str], schema: StructType) -> bool:
    """Return whether a document is what its row makes; what an ingest pipeline adds does not count."""
    ours = without_fields(deepcopy(dict(indexed)), pipeline_fields, schema)
    return bool(_without_nulls(ours) == _without_nulls(row))


def _without_nulls(value: Any) -> Any:
    """A field that is null is the same as none."""
    if isinstance(value, Mapping):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value
