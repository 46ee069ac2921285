"""Documents of an index: one of them beside its row and what happened to it, and the hits of a query."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark.sql import types as T

from icecdc_core.changes.row_changes import changes_frame
from icecdc_core.changes.scan_planning import plan_scans
from icecdc_core.documents.bulk_lines import document_json
from icecdc_core.errors import ConfigError, IcecdcError, OpenSearchRequestError
from icecdc_core.explore.differences import (
    Document,
    RowChange,
    collect_changes,
    complete_id,
    row_changes,
    shown_fields,
    value_text,
)
from icecdc_core.explore.view import OTHER_DOCUMENTS, Part
from icecdc_core.opensearch.checksums import WHOLE, content_digests, without_fields
from icecdc_core.table.snapshots import ancestors, committed_at
from icecdc_core.table.source import Source
from icecdc_core.table.vectors import with_vectors

if TYPE_CHECKING:
    from opensearchpy import OpenSearch

    from icecdc_core.explore.differences import Differences
    from icecdc_core.explore.view import View


_MOST_ROWS = 10


@dataclass(frozen=True, repr=False)
class DocumentView(Part):
    document_id: str = ""
    verdict: str = ""
    agrees: bool | None = None
    indexed: Document | None = None
    version: int | None = None
    rows: tuple[Document, ...] = ()
    history: tuple[tuple[dict[str, Any], RowChange], ...] = ()
    searched: str = ""

    def shown(self) -> Iterator[str | pd.DataFrame]:
        yield f"Document {self.document_id}" if self.document_id else ""
        yield self.verdict
        both = RowChange(self.document_id, self.indexed, self.rows[0] if self.rows else None)
        yield pd.DataFrame(
            [[name, both.text(name)] for name in {**(both.before or {}), **(both.after or {})}],
            columns=["field", "in the index → in the table"],
        )
        yield self.searched
        fields = shown_fields([change for _, change in self.history])
        yield pd.DataFrame(
            [[*snapshot.values(), change.kind, *map(change.text, fields)] for snapshot, change in self.history],
            columns=["snapshot_id", "committed", "operation", "change", *fields],
        )


def look_up_document(view: View, differences: Differences) -> DocumentView:
    """Look a document up in the index and in the table, and find what snapshots did to it."""
    changed = (each.document_id for each in differences.sample if each.document_id)
    document_id = view.config.document_id or next(changed, "")
    if not view.source.identifier_columns:
        return DocumentView(verdict="The table has no identifier columns: an id does not say which row a document is.")
    if not document_id:
        return DocumentView(verdict="No document changed; set document_id to look one up.")
    with view.reading() as source:
        found = DocumentView(document_id, rows=_current_rows(source, document_id))
        if source.head is not None:
            found = replace(found, **_history(source, source.head, document_id, view.config.max_snapshots))
        if tables := list(source.nested):
            note = f"This document also has rows of {len(tables)} other tables, whose changes are not shown here"
            found = replace(found, searched=f"{found.searched} {note}: {', '.join(tables)}.".strip())
    problem = view.missing
    if not problem:
        try:
            with view.searching("reading a document") as client:
                found = replace(found, **_indexed(client, view, document_id))
        except IcecdcError as error:
            problem = f"The index cannot be read. {error}"
    agrees, verdict = (None, problem) if problem else _verdict(view, found)
    return replace(found, agrees=agrees, verdict=verdict)


def _current_rows(source: Source, document_id: str) -> tuple[Document, ...]:
    """The rows of a document in the current snapshot, as documents; one, unless identifiers are duplicates."""
    rows = source.current_rows(source.head, "fail")
    rows = rows.where(complete_id(rows.schema, source.key_columns) == document_id)
    found = with_vectors(source, rows, required=False).select(document_json(source.schema))
    return tuple(json.loads(row[0]) for row in found.limit(_MOST_ROWS).collect())


def _history(source: Source, head: int, document_id: str, most: int) -> dict[str, Any]:
    """What the newest snapshots of the branch did to a document, and which were searched."""
    metadata, chain = source.metadata, ancestors(source.metadata, head)
    start = chain[most] if len(chain) > most else None
    oldest = metadata.by_id.get(chain[-1])
    if start is None and oldest is not None and oldest.parent_snapshot_id is not None:
        start = chain[-1]  # what it changed is not known, because the one before it has expired
    scans = plan_scans(source.table, metadata, start, head, "snapshot")
    searched = len(chain) if start is None else chain.index(start)
    older = "" if start is None else " What happened before them is not known, or was not searched."
    note = f"{searched:,} snapshots were searched.{older}"
    if not scans:
        return {"searched": note}
    changes = changes_frame(source.table, scans, replace(source.selection, with_row_position=False))
    found = row_changes(
        changes.where(complete_id(changes.schema, source.key_columns) == document_id), source.key_columns
    )
    events = sorted(collect_changes(found, source.key_columns), key=lambda each: chain.index(each.snapshot_id))
    known = {
        each.snapshot_id: {
            "snapshot_id": each.snapshot_id,
            "committed": committed_at(each),
            "operation": each.operation,
        }
        for each in metadata.snapshots
    }
    return {"searched": note, "history": tuple((known[each.snapshot_id], each) for each in events)}


def _indexed(client: OpenSearch, view: View, document_id: str) -> dict[str, Any]:
    query = {"query": {"ids": {"values": [document_id]}}, "version": True}  # it may be in any shard
    hits = client.search(index=view.config.index, body=query, params=WHOLE)["hits"]["hits"]
    if not hits:
        return {}
    return {"indexed": view.visible_fields(hits[0].get("_source") or {}), "version": int(hits[0]["_version"])}


def _verdict(view: View, found: DocumentView) -> tuple[bool | None, str]:
    if len(found.rows) > 1:
        return None, f"The table has {len(found.rows)} rows of this identifier, or more."
    if view.hides_documents:
        return None, f"{OTHER_DOCUMENTS}, so its fields are not shown here."
    if found.indexed is None and not found.rows:
        return True, "Neither the index nor the table has it now."
    if found.indexed is None:
        problem = "Only the table has it."
    elif not found.rows:
        problem = "Only the index has it."
    elif is_same(found.indexed, found.rows[0], view.config.pipeline_fields, view.source.schema):
        return True, "The index and the table agree."
    else:
        problem = "The index and the table differ."
    if view.is_behind:
        return False, f"{problem} The index is behind the table, so the next sync may bring it."
    cause = "it is a dead letter, or something else wrote there, which 30_validation with repair=true corrects"
    return False, f"{problem} The index is up to date: {cause}."


def is_same(indexed: Document, row: Document, pipeline_fields: Sequence[str], schema: T.StructType) -> bool:
    """Return whether a document is what its row makes; what an ingest pipeline adds does not count."""
    digest = content_digests(schema)
    return digest(without_fields(deepcopy(dict(indexed)), pipeline_fields, schema)) == digest(dict(row))


_MOST_FIELDS = 12
# What makes a JSON object the body of a search, and not a query alone.
_BODY_KEYS = frozenset({"query", "sort", "from", "size", "knn", "min_score", "post_filter", "collapse"})


@dataclass(frozen=True, repr=False)
class QueryResult(Part):
    query: Any
    total: int | None = None
    took_ms: int = 0
    hits: tuple[tuple[str, float | None, Document], ...] = ()
    problem: str = ""

    def shown(self) -> Iterator[str | pd.DataFrame]:
        if self.total is None:
            yield self.problem
            return
        yield f"{self.total:,} hits in {self.took_ms:,} ms"
        yield json.dumps(self.query, ensure_ascii=False)
        fields = list(dict.fromkeys(name for _, _, document in self.hits for name in document))[:_MOST_FIELDS]
        rows = [[key, score, *(value_text(hit.get(name)) for name in fields)] for key, score, hit in self.hits]
        yield pd.DataFrame(rows, columns=["_id", "score", *fields])


def try_query(view: View) -> QueryResult:
    """Ask the index what the parameter ``query`` says; without one, for all documents."""
    body = search_body(view.config.query, view.config.sample_rows)
    query = body["query"]
    if view.missing:
        return QueryResult(query, problem=view.missing)
    if view.hides_documents:
        return QueryResult(query, problem=f"{OTHER_DOCUMENTS}, so its documents are not shown here.")
    try:
        with view.searching("trying a query") as client:
            answer = client.search(index=view.config.index, body=body)
    except OpenSearchRequestError as error:
        raise _query_error(view.config.query, f"OpenSearch refuses the query: {error.message}") from error
    except IcecdcError as error:
        return QueryResult(query, problem=f"The index cannot be read. {error}")
    hits = [
        (hit["_id"], hit.get("_score"), view.visible_fields(hit.get("_source") or {})) for hit in answer["hits"]["hits"]
    ]
    return QueryResult(query, int(answer["hits"]["total"]["value"]), int(answer["took"]), tuple(hits))


def _query_error(query: str, problem: str) -> ConfigError:
    remedy = 'give a query string such as name:word, or a query as JSON such as {"match": {"name": "word"}}'
    return ConfigError(problem, subject="query", value=query, remedy=remedy)


def search_body(given: str, most: int) -> dict[str, Any]:
    if not given.startswith("{"):
        asked = {"query_string": {"query": given, "lenient": True}} if given else {"match_all": {}}
        return {"query": asked, "size": most, "track_total_hits": True}
    try:
        found = json.loads(given)
    except ValueError as error:
        raise _query_error(given, f"The query is not valid JSON: {error}") from None
    if not _BODY_KEYS & found.keys():
        found = {"query": found}
    size = found.get("size")
    size = min(size, most) if isinstance(size, int) else most
    return {"query": {"match_all": {}}, **found, "size": size, "track_total_hits": True}
