"""Where documents are in an index, read without any code of icecdc, and where their rows say they must be."""

from __future__ import annotations

from typing import Any

from opensearchpy import OpenSearch
from opensearchpy.helpers import scan
from pyspark.sql import DataFrame

Placed = list[tuple[str, str | None, dict[str, Any]]]


def placed_documents(client: OpenSearch, index: str) -> Placed:
    """Id, routing and content of every document, in all shards and indexes behind the name."""
    client.indices.refresh(index=index)
    hits = [(hit["_id"], hit.get("_routing"), hit["_source"]) for hit in scan(client, index=index)]
    return sorted(hits, key=lambda hit: (hit[0], hit[1] or ""))


def placed_rows(rows: DataFrame, routing: str) -> Placed:
    """Id, routing and content of the document of every row."""
    found = [(str(row["id"]), str(row[routing]), row.asDict()) for row in rows.collect()]
    return sorted(found, key=lambda hit: (hit[0], hit[1]))
