"""An example query for each field of a mapping: how a reader of the index searches it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from icecdc_core.documents.mapping import OBJECTS, VECTOR, Properties, find_field

Query = dict[str, Any]


def _match(path: str) -> Query:
    return {"match": {path: "some words"}}


def _exact(path: str) -> Query:
    return {"term": {path: "exact text"}}


def _number(path: str) -> Query:
    return {"range": {path: {"gte": 1, "lt": 100}}}


def _recent(path: str) -> Query:
    return {"range": {path: {"gte": "now-7d/d"}}}


def _shape(path: str) -> Query:
    box = {"type": "envelope", "coordinates": [[11, 49], [12, 48]]}
    return {"geo_shape": {path: {"shape": box, "relation": "intersects"}}}


def _prefix(path: str) -> Query:
    return {"multi_match": {"query": "some wo", "type": "bool_prefix", "fields": [path, f"{path}._2gram"]}}


_BY_TYPE: dict[str, Callable[[str], Query]] = {
    **dict.fromkeys(("text", "match_only_text", "completion"), _match),
    **dict.fromkeys(("keyword", "constant_keyword"), _exact),
    **dict.fromkeys(("byte", "short", "integer", "long", "unsigned_long", "token_count"), _number),
    **dict.fromkeys(("half_float", "float", "double", "scaled_float"), _number),
    **dict.fromkeys(("date", "date_nanos"), _recent),
    **dict.fromkeys(("integer_range", "long_range", "float_range", "double_range"), lambda path: {"term": {path: 1}}),
    "boolean": lambda path: {"term": {path: True}},
    "date_range": lambda path: {"term": {path: "2026-01-31"}},
    "ip": lambda path: {"term": {path: "10.0.0.0/8"}},
    "ip_range": lambda path: {"term": {path: "10.0.0.1"}},
    "wildcard": lambda path: {"wildcard": {path: "*part*"}},
    "search_as_you_type": _prefix,
    "geo_point": lambda path: {"geo_distance": {"distance": "10km", path: {"lat": 48.1, "lon": 11.5}}},
    "geo_shape": _shape,
    "flat_object": lambda path: _exact(f"{path}.key"),
    "rank_feature": lambda path: {"rank_feature": {"field": path}},
    "rank_features": lambda path: {"rank_feature": {"field": f"{path}.key"}},
    "semantic": lambda path: {"neural": {path: {"query_text": "some words"}}},
}


def example_queries(properties: Properties, path: str) -> list[Query]:
    """Return queries that find documents by a field; none if it is not searchable or its type is not known."""
    field = find_field(properties, path) or {}
    target = find_field(properties, str(field.get("path", ""))) if field.get("type") == "alias" else None
    return _queries(path, field if target is None else target)


def as_text(queries: list[Query]) -> str:
    """Return queries as JSON, one a line."""
    return "\n".join(json.dumps(query) for query in queries)


def _queries(path: str, field: Mapping[str, Any]) -> list[Query]:
    field_type = str(field.get("type", "object"))
    if field.get("enabled") is False or field.get("index") is False:
        return []
    if field_type in OBJECTS:
        return _inside(path, field, field_type)
    if field_type == VECTOR:
        return [{"knn": {path: {"vector": f"<{field.get('dimension', 'all')} numbers>", "k": 10}}}]
    if field_type == "binary" and field.get("doc_values") is True:
        return [{"exists": {"field": path}}]
    if field_type not in _BY_TYPE:
        return []
    keywords = [name for name, inner in field.get("fields", {}).items() if inner.get("type") == "keyword"]
    return [_BY_TYPE[field_type](path), *(_exact(f"{path}.{name}") for name in keywords[:1])]


def _inside(path: str, field: Mapping[str, Any], field_type: str) -> list[Query]:
    """The query of the first field inside that has one."""
    for name, inner in field.get("properties", {}).items():
        if queries := _queries(f"{path}.{name}", inner):
            return [{"nested": {"path": path, "query": queries[0]}}] if field_type == "nested" else queries[:1]
    return []
