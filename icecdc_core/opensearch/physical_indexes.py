"""The physical indexes of a table: their names, and what the cluster knows of them."""

from __future__ import annotations

from typing import Any

from opensearchpy import OpenSearch
from opensearchpy.exceptions import NotFoundError


def physical_index(index: str, epoch: int) -> str:
    """Return the name of the index that an export builds behind the alias."""
    return f"{index}--{epoch:06d}"


def write_alias(physical: str) -> str:
    """Return the alias through which a physical index is written; it disappears with the index."""
    return f"{physical}--write"


def index_uuid(client: OpenSearch, physical: str) -> str:
    """Return the identity of a physical index, an empty string when there is none."""
    entry = indexes_behind(client, physical).get(physical, {})
    return str(entry["settings"]["index"]["uuid"]) if entry else ""


def count_operations(client: OpenSearch, physical: str) -> int:
    """Return how many writes an index has seen, the refused ones included: OpenSearch's own counters."""
    answer = client.indices.stats(index=physical, metric="indexing")["_all"]["primaries"]["indexing"]
    return sum(int(answer[name]) for name in ("index_total", "index_failed", "delete_total"))


def indexes_behind(client: OpenSearch, index: str) -> dict[str, dict[str, Any]]:
    """Return the physical indexes behind a name, with their aliases, mappings and settings."""
    try:
        return dict(client.indices.get(index=index))
    except NotFoundError:
        return {}


def icecdc_meta(entry: dict[str, Any]) -> dict[str, Any]:
    """Return what icecdc stored in the mapping of an index: `table`, `index`, `run`; empty for other indexes."""
    meta = (entry.get("mappings") or {}).get("_meta") or {}
    return dict(meta.get("icecdc") or {})
