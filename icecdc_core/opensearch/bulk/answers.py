"""Answers to bulk requests: the outcome of every operation that was sent, counted, and which of them to send again."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from icecdc_core.opensearch.answers import unusable_answer_error
from icecdc_core.opensearch.bulk import failures
from icecdc_core.opensearch.bulk.counts import Counts
from icecdc_core.opensearch.bulk.request import are_upserts, document_id_of
from icecdc_core.opensearch.bulk.result import FAILED_DEAD_LETTERS, SAMPLES, BulkResult
from icecdc_core.opensearch.retry import RETRIED_STATUSES
from icecdc_core.secrets import shorten

FILTER = "items.*.status,items.*.result,items.*.error.type,items.*.error.reason,items.*.error.caused_by.reason"
"""The `filter_path` of a bulk request: only what `item_outcomes` reads."""

# Refusals with the status of a wrong document (400) that are about the index.
_INDEX_ERRORS = frozenset({"index_closed_exception"})
_DROPPED = {"type": "dropped", "reason": "an ingest pipeline dropped the document"}
# Greedy, so that it finds the last version in a conflict's reason: the document id before it may be any text.
_CURRENT_VERSION = re.compile(r".*current version \[(\d+)\]", re.DOTALL)


class CountedOutcomes(NamedTuple):
    """What one request achieved."""

    result: BulkResult
    again: pa.Array
    reason: Any


def count_outcomes(
    answer: Any, actions: pa.Array, alias: str, max_rejected_documents: int, highest_version: int
) -> CountedOutcomes:
    """Count the outcomes of the operations of one request."""
    upserts = deletes = already_applied = 0
    newest_version, newest_id = 0, ""
    rejected: list[dict[str, Any]] = []
    failure: dict[str, Any] | None = None
    again: list[int] = []
    reason: Any = None
    for number, (operation, outcome) in enumerate(item_outcomes(answer, are_upserts(actions))):
        status, error = outcome["status"], outcome.get("error") or {}
        if status in (200, 201) and outcome.get("result") == "noop":
            rejected.append(_dead_letter(actions[number].as_py(), status, _DROPPED))
        elif status in (200, 201):
            if operation == "index":
                upserts += 1
            else:
                deletes += 1
        elif status == 409:
            if (version := _current_version(error)) > newest_version:
                newest_version, newest_id = version, document_id_of(actions[number].as_py())
            if version <= highest_version:
                already_applied += 1
            else:
                rejected.append(_dead_letter(actions[number].as_py(), status, _foreign_version(version)))
        elif status == 404 and operation == "delete" and "error" not in outcome:
            already_applied += 1
        elif status == 404:
            failure = failures.alias_missing(alias)
        elif status in RETRIED_STATUSES:
            again.append(number)
            reason = error
        elif status == 400 and error.get("type") not in _INDEX_ERRORS:
            rejected.append(_dead_letter(actions[number].as_py(), status, error))
        else:
            # A closed (400) or blocked (403) index or a broken shard (500) says nothing about the document.
            failure = failures.writes_refused(alias, status, error)
    counts = Counts(upserts=upserts, deletes=deletes, already_applied=already_applied)
    result = BulkResult(counts, failure=failure, newest_version=newest_version, newest_id=newest_id)
    if rejected:
        result += _rejections(rejected, max_rejected_documents)
    return CountedOutcomes(result, actions.take(pa.array(again, pa.int64())) if again else actions[:0], reason)


def too_large_result(action: str) -> BulkResult:
    """Return the result of one operation that is larger than any request may be (413)."""
    error = {"type": "too_large", "reason": "larger than a request may be"}
    return _rejections([_dead_letter(action, 413, error)], 0)


def item_outcomes(answer: Any, upserts: np.ndarray[Any, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return operation and outcome of each item, in the order of the operations that were sent."""
    items = answer.get("items") if isinstance(answer, dict) else None
    if not isinstance(items, list) or len(items) != len(upserts):
        found = len(items) if isinstance(items, list) else "no"
        raise unusable_answer_error(f"the answer has {found} items for {len(upserts)} operations", answer)
    for item, is_upsert in zip(items, upserts.tolist(), strict=True):
        kind = "index" if is_upsert else "delete"
        outcome = item.get(kind) if isinstance(item, dict) and len(item) == 1 else None
        if not isinstance(outcome, dict) or not _is_outcome(outcome.get("status"), outcome.get("error")):
            raise unusable_answer_error(f"the answer has an item that is not the outcome of '{kind}'", item)
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


def _dead_letter(action: str, status: int, error: dict[str, Any]) -> dict[str, Any]:
    reason = f"{error.get('type')}: {error.get('reason')}"
    cause = (error.get("caused_by") or {}).get("reason")
    return {"action": action, "status": status, "reason": shorten(f"{reason} ({cause})" if cause else reason)}


def _foreign_version(version: int) -> dict[str, Any]:
    reason = f"the index has version {version} of the document, which icecdc did not give it: somebody else wrote it"
    return {"type": "foreign_version", "reason": reason}


def _rejections(dead_letters: list[dict[str, Any]], max_rejected_documents: int) -> BulkResult:
    samples = [
        {"id": document_id_of(letter["action"]), "status": letter["status"], "reason": letter["reason"]}
        for letter in dead_letters[:SAMPLES]
    ]
    kept = dead_letters[: max_rejected_documents + FAILED_DEAD_LETTERS]
    return BulkResult(Counts(rejected=len(dead_letters)), samples, kept)


def _current_version(error: dict[str, Any]) -> int:
    """Return the document's version that a conflict names; only the text of its reason has it."""
    found = _CURRENT_VERSION.match(error.get("reason") or "")
    return int(found[1]) if found else 0
