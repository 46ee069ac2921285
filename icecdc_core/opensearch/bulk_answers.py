"""What an answer to a bulk request says of each operation: exactly one outcome for every one that was sent."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from opensearchpy.serializer import JSONSerializer

from icecdc_core.opensearch.answers import unusable

FILTER = "errors,items.*.status,items.*.error.type,items.*.error.reason,items.*.error.caused_by.reason"
# How an answer without errors begins and ends, and the operations in it, when it is filtered like this.
_NO_ERRORS = '{"errors":false,'
_BEGIN, _END = _NO_ERRORS + '"items":[', "]}"
_CREATED, _UPDATED = '{"index":{"status":201}}', '{"index":{"status":200}}'
_DELETED, _ABSENT = '{"delete":{"status":200}}', '{"delete":{"status":404}}'


class BulkAnswers(JSONSerializer):
    """Leaves answers without errors as they are: their operations are counted, and need not be made objects of."""

    def loads(self, s: str) -> Any:
        """Read an answer."""
        return s if s.startswith(_NO_ERRORS) else super().loads(s)


def counted(answer: object, are_upserts: np.ndarray[Any, Any]) -> tuple[int, int, int] | None:
    """Count the operations of an answer without errors: written, deleted, absent; None where it must be parsed.

    Args:
        answer: As `BulkAnswers` reads it.
        are_upserts: For each operation that was sent, whether it is an index operation; else it is a delete.
    """
    if not isinstance(answer, str):
        return None
    written = answer.count(_CREATED) + answer.count(_UPDATED)
    deleted, absent = answer.count(_DELETED), answer.count(_ABSENT)
    items = written * len(_CREATED) + (deleted + absent) * len(_DELETED) + len(are_upserts) - 1
    # With nothing else in it, the answer is just as long as its parts are.
    exact = len(answer) == len(_BEGIN) + items + len(_END) and answer.startswith(_BEGIN) and answer.endswith(_END)
    upserts = int(np.count_nonzero(are_upserts))
    as_sent = (written, deleted + absent) == (upserts, len(are_upserts) - upserts)
    return (written, deleted, absent) if exact and as_sent else None


def outcomes(answer: Any, are_upserts: np.ndarray[Any, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Operation and outcome of each item, in the order of the operations that were sent.

    Args:
        answer: As `BulkAnswers` reads it.
        are_upserts: As in `counted`.

    Raises:
        UnusableAnswerError: There is not just one fit item for each operation.
    """
    try:
        items = (json.loads(answer) if isinstance(answer, str) else answer).get("items")
    except (ValueError, RecursionError) as error:
        raise unusable("the answer is no JSON", answer) from error
    if not isinstance(items, list) or len(items) != len(are_upserts):
        found = len(items) if isinstance(items, list) else "no"
        raise unusable(f"the answer has {found} items for {len(are_upserts)} operations", answer)
    for item, is_upsert in zip(items, are_upserts, strict=True):
        kind = "index" if is_upsert else "delete"
        outcome = item.get(kind) if isinstance(item, dict) and len(item) == 1 else None
        if not isinstance(outcome, dict) or not _is_outcome(outcome.get("status"), outcome.get("error")):
            raise unusable(f"the answer has an item that is not the outcome of '{kind}'", item)
    return [next(iter(item.items())) for item in items]


def _is_outcome(status: object, error: object) -> bool:
    """Whether an item has a status that OpenSearch gives, and no error or one of OpenSearch's shape."""
    if type(status) is not int or not (status in (200, 201) or 400 <= status < 600):
        return False
    if error is None:
        return True
    if status in (200, 201) or not isinstance(error, dict):
        return False
    cause = error.get("caused_by") or {}
    if not isinstance(cause, dict):
        return False
    texts = (error.get("type"), error.get("reason"), cause.get("reason"))
    return all(text is None or isinstance(text, str) for text in texts)
