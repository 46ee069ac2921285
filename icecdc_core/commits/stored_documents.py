"""Documents of the positions index in answers of OpenSearch: their source and their version."""

from __future__ import annotations

from typing import Any

from icecdc_core.errors import OpenSearchRequestError, PositionError


def source_of(answer: Any, doing: str) -> dict[str, Any]:
    """Return the source of a document."""
    found = answer.get("_source") if isinstance(answer, dict) else None
    if isinstance(answer, dict) and "_id" in answer and "_source" not in answer:
        raise PositionError(
            f"The index '{answer.get('_index')}' does not store `_source`, so no position can be read from it",
            subject="positions_index",
            value=answer.get("_index"),
            remedy="find the index template that switches `_source` off and exclude this index; then restore the "
            "index, or delete it and run the exports",
        )
    if not isinstance(found, dict):
        raise _unusable_error(doing)
    return found


def sources_of(answer: Any, doing: str) -> list[dict[str, Any]]:
    """Return the sources of the hits of a search."""
    hits = answer.get("hits") if isinstance(answer, dict) else None
    found = hits.get("hits") if isinstance(hits, dict) else None
    if not isinstance(found, list):
        raise _unusable_error(doing)
    return [source_of(hit, doing) for hit in found]


def version_of(answer: Any, doing: str) -> tuple[int, int]:
    """Return the sequence number and the primary term of a document."""
    found = (answer.get("_seq_no"), answer.get("_primary_term")) if isinstance(answer, dict) else (None, None)
    if not isinstance(found[0], int) or not isinstance(found[1], int):
        raise _unusable_error(doing)
    return found[0], found[1]


def _unusable_error(doing: str) -> OpenSearchRequestError:
    return OpenSearchRequestError(
        f"OpenSearch gave no usable answer while {doing}",
        subject="opensearch_url",
        remedy="check the proxy or gateway in front of OpenSearch; run again",
    )
