"""An example query for each field of a mapping: how a reader of the index searches it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from icecdc_core.documents.mapping import OBJECTS, VECTOR, Properties, find_field

Query = dict[str, Any]

_MOST_WORDS = 5
_NUMBERS = ("byte", "short", "integer", "long", "unsigned_long", "half_float", "float", "double", "scaled_float")
# By field type: a kind of query, and what it asks of the field.
_BY_TYPE: dict[str, tuple[str, Any]] = {
    **dict.fromkeys(("text", "match_only_text", "search_as_you_type"), ("match", "some words")),
    **dict.fromkeys(("keyword", "constant_keyword"), ("term", "exact text")),
    **dict.fromkeys(_NUMBERS, ("range", {"gte": 1, "lt": 100})),
    **dict.fromkeys(("date", "date_nanos"), ("range", {"gte": "now-7d/d"})),
    "boolean": ("term", True),
    "ip": ("term", "10.0.0.0/8"),
    "wildcard": ("wildcard", "*part*"),
    "semantic": ("neural", {"query_text": "some words"}),
}


def example_queries(properties: Properties, path: str) -> list[Query]:
    """Return queries that find documents by a field; none if it is not searchable."""
    field = find_field(properties, path)
    target = find_field(properties, str(field.get("path", ""))) if field.get("type") == "alias" else {}
    return _queries(path, target or field)


def with_values(query: Query, document: Mapping[str, Any]) -> Query:
    """Return a query with the value that a document has in its field, and as it is if the document has none."""
    [(kind, body)] = query.items()
    if kind == "nested":
        return {kind: {**body, "query": with_values(body["query"], document)}}
    path = next(iter(body))
    if kind not in ("term", "match", "range") or (value := _first_value(document, path)) is None:
        return query
    if kind == "range":
        return {kind: {path: {"gte": value, "lte": value}}}
    return {kind: {path: " ".join(str(value).split()[:_MOST_WORDS]) if kind == "match" else value}}


def _first_value(value: Any, path: str) -> Any:
    """The first scalar at a path; a multi-field has the value of its field."""
    for name in path.split("."):
        value = value[0] if isinstance(value, list) and value else value
        value = value.get(name) if isinstance(value, Mapping) else value
    value = value[0] if isinstance(value, list) and value else value
    return None if isinstance(value, (list, Mapping)) else value


def as_text(queries: list[Query]) -> str:
    """Return queries as JSON, one a line."""
    return "\n".join(json.dumps(query) for query in queries)


def _queries(path: str, field: Mapping[str, Any]) -> list[Query]:
    kind = str(field.get("type", "object"))
    if field.get("enabled") is False or field.get("index") is False or (kind == "binary" and "doc_values" not in field):
        return []
    if kind in OBJECTS:  # that of the first field inside that has one
        inside = (_queries(f"{path}.{name}", inner)[:1] for name, inner in field.get("properties", {}).items())
        found = next(filter(None, inside), [])
        return [{"nested": {"path": path, "query": query}} for query in found] if kind == "nested" else found
    if kind == VECTOR:
        return [{"knn": {path: {"vector": f"<{field.get('dimension', 'all')} numbers>", "k": 10}}}]
    if kind not in _BY_TYPE:
        return [{"exists": {"field": path}}]
    query, asked = _BY_TYPE[kind]
    keywords = [name for name, inner in field.get("fields", {}).items() if inner.get("type") == "keyword"]
    return [{query: {path: asked}}, *({"term": {f"{path}.{name}": "exact text"}} for name in keywords[:1])]
