"""Documents of an index: one of them beside its row and what happened to it, and the hits of a query."""

import hashlib
import json
from collections.abc import Sequence
from contextlib import closing
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import pandas as pd
from opensearchpy import OpenSearch
from pyspark.sql import DataFrame, SparkSession, functions as F

from icecdc_core.changes.row_changes import changes_frame
from icecdc_core.changes.scan_planning import StepScan, plan_scans
from icecdc_core.columns import CHANGE_TYPE, COMMIT_SNAPSHOT_ID, is_insert
from icecdc_core.documents.bulk_lines import MAX_ID_BYTES, document_json
from icecdc_core.documents.changed_roots import used_changes
from icecdc_core.documents.nested_documents import TreeProjection
from icecdc_core.documents.nested_tables import Relation, Tree, key_names, matching_keys
from icecdc_core.errors import ConfigError, IcecdcError, OpenSearchRequestError
from icecdc_core.explore.config import ExplainConfig
from icecdc_core.explore.differences import (
    DELETED,
    INSERTED,
    UPDATED,
    Document,
    RowChange,
    collect_changes,
    complete_id,
    row_changes,
    shown_fields,
    value_text,
)
from icecdc_core.explore.view import OTHER_DOCUMENTS, Part, View
from icecdc_core.opensearch.checksums import WHOLE, content_digests, without_fields
from icecdc_core.opensearch.client import typed_errors
from icecdc_core.opensearch.indexes import with_suffixes
from icecdc_core.reporting.reports import Report
from icecdc_core.runs.plan import is_at_head
from icecdc_core.runs.run import Run, connect
from icecdc_core.table.snapshots import Snapshot, ancestors, committed_at
from icecdc_core.table.source import Selection, Source
from icecdc_core.table.vectors import with_vectors


def look_up_document(view: View, differences: Part) -> Part:
    document_id = view.config.document_id or differences.document_id
    if not view.source.identifier_columns:
        return _part("The table has no identifier columns: an id does not say which row a document is.")
    if not document_id:
        return _part("No document changed; set document_id to look one up.")
    with view.reading() as source:
        current = source.current_rows(source.head, "fail")
        current = current.where(complete_id(current.schema, source.key_columns) == document_id)
        documents = with_vectors(source, current, required=False).select(document_json(source.schema))
        rows = [json.loads(row[0]) for row in documents.limit(10).collect()]  # one, unless identifiers are duplicates
        searched, history = _history(source, document_id, view.config.max_snapshots)
        if tables := list(source.nested):
            note = f"This document also has rows of {len(tables)} other tables, whose changes are not shown here"
            searched = f"{searched} {note}: {', '.join(tables)}.".strip()
    indexed, version, problem = None, None, view.missing
    if not problem:
        try:
            with closing(connect(view.config)) as client, typed_errors(view.config, "reading a document"):
                indexed, version = _indexed(client, view, document_id)
        except IcecdcError as error:
            problem = f"The index cannot be read. {error}"
    agrees, verdict = (None, problem) if problem else _verdict(view, indexed, rows)
    return _part(verdict, document_id, agrees, version, indexed, rows, searched, history)


def _part(
    verdict: str,
    document_id: str = "",
    agrees: bool | None = None,
    version: int | None = None,
    indexed: Document | None = None,
    rows: Sequence[Document] = (),
    searched: str = "",
    history: Sequence[tuple[Snapshot, RowChange]] = (),
) -> Part:
    both = RowChange("", document_id, indexed, rows[0] if rows else None)
    names = dict.fromkeys(name for side in (both.before, both.after) for name in side or ())
    sides = pd.DataFrame([[name, both.text(name)] for name in names], columns=["field", "in the index → in the table"])
    fields = shown_fields([change for _, change in history])
    changes = pd.DataFrame(
        [
            [each.snapshot_id, committed_at(each), each.operation, change.kind, *map(change.text, fields)]
            for each, change in history
        ],
        columns=["snapshot_id", "committed", "operation", "change", *fields],
    )
    report = {
        "document_id": document_id,
        "version": version,
        "in_table": bool(rows),
        "agrees": agrees,
        "changes": len(history),
    }
    return Part(report, [f"Document {document_id}" if document_id else "", verdict, sides, searched, changes])


def _history(source: Source, document_id: str, most: int) -> tuple[str, list[tuple[Snapshot, RowChange]]]:
    """Return which of the newest snapshots of the branch were searched, and what they did to a document."""
    metadata, (note, scans) = source.metadata, _searched(source, most)
    if not scans:
        return note, []
    changes = changes_frame(source.table, scans, replace(source.selection, with_row_position=False))
    of_document = changes.where(complete_id(changes.schema, source.key_columns) == document_id)
    found = collect_changes(row_changes(of_document, source.key_columns), source.key_columns)
    chain = ancestors(metadata, source.head)
    found.sort(key=lambda each: chain.index(each.snapshot_id))
    return note, [(metadata.by_id[each.snapshot_id], each) for each in found]


def _searched(source: Source, most: int) -> tuple[str, Sequence[StepScan]]:
    metadata, chain = source.metadata, ancestors(source.metadata, source.head)
    if not chain:
        return "", []
    # What the oldest one changed is not known if the one before it has expired.
    start = None if metadata.by_id[chain[-1]].parent_snapshot_id is None else chain[-1]
    if len(chain) > most:
        start = chain[most]
    scans = plan_scans(source.table, metadata, start, chain[0], "snapshot")
    searched = len(chain) if start is None else chain.index(start)
    older = "" if start is None else f" What happened up to snapshot {start} is not known, or was not searched."
    return f"{searched:,} snapshots were searched.{older}", scans


def _history_of_tables(source: Source, tree: Tree, document_id: str) -> tuple[str, list[tuple[str, Snapshot, str]]]:
    """Return what was searched, and the snapshots that changed rows of a document, or to which its links ever led."""
    rows, notes, found = dict[str, DataFrame](), [], list[DataFrame]()
    sources = {source.table.name: source, **source.nested}
    for name, each in sources.items():
        used = Selection(tuple(sorted(tree.used[name].names)))
        note, scans = _searched(each, len(each.metadata.snapshots))
        changes = used_changes(tree, name, changes_frame(each.table, scans, used))
        rows[name] = changes.unionByName(used.select(each.table.read(each.files(each.head))), allowMissingColumns=True)
        notes.append(f"{name}: {note}")
    of_document = dict[Relation, DataFrame]()
    for relation in reversed([*tree.root.relations()]):  # from the root on
        reached = relation.matching(rows[relation.table])
        if relation.parent is None:
            reached = reached.where(complete_id(reached.schema, source.identifier_columns) == document_id)
        else:
            around = relation.parent.with_keys(of_document[relation.parent], relation.parent_keys)
            wanted = around.select(*key_names(relation.keys)).distinct()
            reached = matching_keys(relation, reached, relation.keys, wanted)
        of_document[relation] = reached
        found.append(reached.select(F.lit(relation.table).alias("table"), COMMIT_SNAPSHOT_ID, CHANGE_TYPE))
    changed = reduce(DataFrame.unionAll, found).where(F.col(CHANGE_TYPE).isNotNull())
    kinds = F.when(F.count_distinct(CHANGE_TYPE) > 1, UPDATED).when(F.first(is_insert()), INSERTED).otherwise(DELETED)
    collected = changed.groupBy("table", COMMIT_SNAPSHOT_ID).agg(kinds).collect()
    history = [(name, sources[name].metadata.by_id[snapshot_id], kind) for name, snapshot_id, kind in collected]
    return " ".join(notes), sorted(history, key=lambda each: each[1].timestamp_ms, reverse=True)


_MOST_BATCHES = 1000
_IF_THERE = {"ignore_unavailable": "true"}


@dataclass(frozen=True)
class ExplainReport(Report):
    """What is known of one document.

    Attributes:
        id: The document's id.
        in_table: Whether the table's current snapshot has its row.
        documents: Index, routing and version of each document that has the id now, in any shard of the index and of
            the one that `keep_index` keeps.
        changes: Each snapshot that changed the row, or rows of nested tables to which its links led at any time, newest
            first: ``table``, ``snapshot_id``, ``committed_at``, ``change``, and of the batch that brought it to the
            index ``epoch`` and ``followed_at``; null if none is known.
        searched: Which snapshots were searched, and since which of them.
        seconds: Seconds the run took.
    """

    table: str
    index: str
    id: str
    in_table: bool
    documents: list[dict[str, Any]]
    changes: list[dict[str, Any]]
    searched: str
    seconds: float

    @property
    def line(self) -> str:
        change = "{change} by snapshot {snapshot_id} of {table}, {committed_at}; the index followed {followed_at}, "
        change += "batch {epoch}"
        has = "has" if self.in_table else "does not have"
        found = f"{len(self.documents)} documents have the id {self.id}, the table {has} its row"
        return "\n".join([found, *(change.format(**each) for each in self.changes), self.searched])


def explain(spark: SparkSession, config: ExplainConfig) -> ExplainReport:
    """Say which snapshots changed the row of a document, when the index followed, and what has the id now."""
    identity = config.id
    if len(identity.encode()) > MAX_ID_BYTES:
        identity = hashlib.sha256(identity.encode()).hexdigest()  # as `document_id` does
    with Run("explain", spark, config) as run:
        with run.stage("check"):
            position, source = run.look(needs_history=False)
            run.require_position(position, source, needs_history=False)
            source.require_identifier_columns("the id of a document says which row it is")
        with run.stage("history"):
            rows = source.current_rows(source.head, "fail")
            in_table = not rows.where(complete_id(rows.schema, source.key_columns) == identity).isEmpty()
            if isinstance(source.projection, TreeProjection):
                searched, history = _history_of_tables(source, source.projection.tree, identity)
            else:
                searched, found = _history(source, identity, len(source.metadata.snapshots))
                history = [(config.table, snapshot, change.kind) for snapshot, change in found]
        followed, written, of_nested = dict[int, tuple[int, str]](), position.physical_index, set[int]()
        brief = ("from_snapshot_id", "snapshot_id", "epoch", "updated_at", "physical_index", "kind", "nested")
        log = run.positions.log(_MOST_BATCHES, fields=brief)
        for batch in log:  # the newest first: an older one brought its own
            if written not in ("", batch["physical_index"]):  # of an index that a rollback left
                continue
            written = "" if batch["kind"] == "export" else batch["physical_index"]  # before it, of whichever was there
            before = ancestors(source.metadata, batch["from_snapshot_id"])
            brought = {*ancestors(source.metadata, batch["snapshot_id"])}.difference(before)
            at = {name: found["snapshot_id"] for name, found in batch["nested"].items()}
            of_nested = set().union(*(ancestors(each.metadata, at.get(name)) for name, each in source.nested.items()))
            followed |= dict.fromkeys(brought | of_nested, (batch["epoch"], batch["updated_at"]))
        if written:  # before the oldest batch, something else may have brought them
            followed = {each: batch for each, batch in followed.items() if each not in of_nested}
        with run.stage("look up"):
            kept = position.earlier.uuids if position.earlier else ()  # a rollback would show it again
            names = ",".join([with_suffixes(config, position.physical_index), *kept])
            run.client.indices.refresh(index=names, params=_IF_THERE)
            body = {"query": {"ids": {"values": [identity]}}, "_source": False, "version": True, "size": 1000}
            hits = run.client.search(index=names, body=body, params={**WHOLE, **_IF_THERE})["hits"]["hits"]
        documents = [{name: hit.get(name) for name in ("_index", "_routing", "_version")} for hit in hits]
        fields = "table", "snapshot_id", "committed_at", "change", "epoch", "followed_at"
        changes = [
            dict(zip(fields, (name, each.snapshot_id, committed_at(each).isoformat(), kind, *batch), strict=True))
            for name, each, kind in history
            for batch in [followed.get(each.snapshot_id, (None, None))]
        ]
        known = config.table, config.index, identity, in_table, documents, changes, searched, run.seconds
        return run.finish(ExplainReport(*known))


def _indexed(client: OpenSearch, view: View, document_id: str) -> tuple[Document | None, int | None]:
    body = {"query": {"ids": {"values": [document_id]}}, "version": True}  # it may be in any shard
    for hit in client.search(index=view.config.index, body=body, params=WHOLE)["hits"]["hits"]:
        return view.visible_fields(hit.get("_source") or {}), int(hit["_version"])
    return None, None


def _verdict(view: View, indexed: Document | None, rows: Sequence[Document]) -> tuple[bool | None, str]:
    if len(rows) > 1:
        return None, f"The table has {len(rows)} rows of this identifier, or more."
    if view.hides_documents:
        return None, f"{OTHER_DOCUMENTS}, so its fields are not shown here."
    if indexed is None and not rows:
        return True, "Neither the index nor the table has it now."
    if indexed is None:
        problem = "Only the table has it."
    elif not rows:
        problem = "Only the index has it."
    else:
        digest = content_digests(view.source.schema)
        # What an ingest pipeline adds does not count.
        own = without_fields(deepcopy(dict(indexed)), view.config.pipeline_fields, view.source.schema)
        if digest(own) == digest(dict(rows[0])):
            return True, "The index and the table agree."
        problem = "The index and the table differ."
    if not is_at_head(view.position, view.source):
        return False, f"{problem} The index is behind the table, so the next sync may bring it."
    return False, (
        f"{problem} The index is up to date: it is a dead letter, or something else wrote there, which 30_validation "
        "with repair=true corrects."
    )


_MOST_FIELDS = 12
# What makes a JSON object the body of a search, and not a query alone.
_BODY_KEYS = frozenset({"query", "sort", "from", "size", "knn", "min_score", "post_filter", "collapse"})


def try_query(view: View) -> Part:
    """Ask the index what the parameter ``query`` says; without one, for all documents."""
    body = search_body(view.config.query, view.config.sample_rows)
    problem = view.missing
    if not problem and view.hides_documents:
        problem = f"{OTHER_DOCUMENTS}, so its documents are not shown here."
    if not problem:
        try:
            with closing(connect(view.config)) as client, typed_errors(view.config, "trying a query"):
                answer = client.search(index=view.config.index, body=body)
        except OpenSearchRequestError as error:
            raise _query_error(view.config.query, f"OpenSearch refuses the query: {error.message}") from error
        except IcecdcError as error:
            problem = f"The index cannot be read. {error}"
    if problem:
        return Part({"hits": None, "took_ms": 0, "problem": problem}, [problem])
    total, took_ms = int(answer["hits"]["total"]["value"]), int(answer["took"])
    hits = [(hit, view.visible_fields(hit.get("_source") or {})) for hit in answer["hits"]["hits"]]
    fields = list(dict.fromkeys(name for _, document in hits for name in document))[:_MOST_FIELDS]
    rows = [[hit["_id"], hit.get("_score"), *(value_text(each.get(name)) for name in fields)] for hit, each in hits]
    return Part(
        {"hits": total, "took_ms": took_ms, "problem": ""},
        [
            f"{total:,} hits in {took_ms:,} ms",
            json.dumps(body["query"], ensure_ascii=False),
            pd.DataFrame(rows, columns=["_id", "score", *fields]),
        ],
    )


def _query_error(query: str, problem: str) -> ConfigError:
    remedy = 'give a query string such as name:word, or a query as JSON such as {"match": {"name": "word"}}'
    return ConfigError(problem, subject="query", value=query, remedy=remedy)


def search_body(given: str, most: int) -> dict[str, Any]:
    found: dict[str, Any] = {"query_string": {"query": given, "lenient": True}} if given else {"match_all": {}}
    if given.startswith("{"):
        try:
            found = json.loads(given)
        except ValueError as error:
            raise _query_error(given, f"The query is not valid JSON: {error}") from None
    if not _BODY_KEYS & found.keys():
        found = {"query": found}
    size = found.get("size")
    size = min(size, most) if isinstance(size, int) else most
    return {"query": {"match_all": {}}, **found, "size": size, "track_total_hits": True}
