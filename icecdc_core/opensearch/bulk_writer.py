"""Bulk indexing from the executors: back-pressure, retries, and the fate of every single document."""

from __future__ import annotations

import json
import logging
import random
import re
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
from opensearchpy import OpenSearch
from opensearchpy.exceptions import OpenSearchException, TransportError

from icecdc_core.errors import (
    IcecdcError,
    IndexNotFoundError,
    OpenSearchAuthError,
    OpenSearchRequestError,
    OpenSearchUnreachableError,
    RejectedDocumentsError,
)
from icecdc_core.logs import current_fields, event, log_fields, logging_to
from icecdc_core.opensearch.bulk_answers import FILTER, BulkAnswers, counted, outcomes
from icecdc_core.opensearch.client import Connection, typed
from icecdc_core.opensearch.retry import RETRIED_STATUSES, is_transient
from icecdc_core.secrets import shortened
from icecdc_core.session.python_workers import map_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from icecdc_core.config import SyncConfig

SAMPLES = 20
# How many rejected documents of a failing batch are kept: enough to see what is wrong.
_FAILED_LETTERS = 1000
# Refusals with the status of a wrong document that are about the index.
_INDEX_ERRORS = frozenset({"index_closed_exception"})
# The last one in a conflict's reason: the document's id, which may hold any text, stands before it.
_CURRENT_VERSION = re.compile(r".*current version \[(\d+)\]", re.DOTALL)
_RESULT = "counts string"
_ERRORS: dict[str, type[IcecdcError]] = {
    error.__name__: error
    for error in (IndexNotFoundError, OpenSearchAuthError, OpenSearchRequestError, OpenSearchUnreachableError)
}


@dataclass(frozen=True)
class BulkSettings:
    """Where and how to write.

    Attributes:
        connection: How to reach the cluster.
        alias: The write alias; it must exist, so that no index is ever created by accident.
        bulk_bytes: Size of one bulk request in bytes.
        bulk_connections: Requests in flight for each Spark task.
        retry_timeout_seconds: How long a failing request is tried again.
        max_rejected_documents: Rejected documents that are tolerated; more end the batch.
    """

    connection: Connection
    alias: str
    bulk_bytes: int
    bulk_connections: int
    retry_timeout_seconds: float
    max_rejected_documents: int

    @classmethod
    def of(cls, config: SyncConfig, alias: str) -> BulkSettings:
        """Take the sink's part of the parameters."""
        return cls(
            Connection.of(config),
            alias,
            config.bulk_bytes,
            config.bulk_connections,
            config.retry_timeout_seconds,
            config.max_rejected_documents,
        )


@dataclass
class BulkResult:
    """What became of the documents.

    Attributes:
        upserts: Documents written.
        deletes: Documents deleted.
        already_applied: Operations the index was already past (409), and deletes of absent documents (404).
        rejected: Documents the index refused for what they hold.
        rejected_samples: Up to 20 of them: id, status, reason.
        requests: Bulk requests sent.
        retries: Bulk requests sent again.
        bytes: Bytes of the bulk requests, without repetitions.
        dead_letters: The rejected operations: action, status and reason; not all of a batch that fails for them.
        newest_version: The highest version that the index had where it was past an operation.
        newest_id: The document with that version.
    """

    upserts: int = 0
    deletes: int = 0
    already_applied: int = 0
    rejected: int = 0
    requests: int = 0
    retries: int = 0
    bytes: int = 0
    rejected_samples: list[dict[str, Any]] = field(default_factory=list)
    dead_letters: list[dict[str, Any]] = field(default_factory=list)
    failure: dict[str, Any] | None = None
    newest_version: int = 0
    newest_id: str = ""

    def add(self, other: BulkResult) -> None:
        """Add the counts of another part."""
        for name in ("upserts", "deletes", "already_applied", "rejected", "requests", "retries", "bytes"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.rejected_samples = [*self.rejected_samples, *other.rejected_samples][:SAMPLES]
        self.dead_letters = [*self.dead_letters, *other.dead_letters]
        self.failure = self.failure or other.failure
        if other.newest_version > self.newest_version:
            self.newest_version, self.newest_id = other.newest_version, other.newest_id


def write_actions(actions: DataFrame, settings: BulkSettings) -> BulkResult:
    """Send every bulk action of a frame to OpenSearch, from the executors.

    Args:
        actions: A frame with the column ``action``: the NDJSON of one bulk operation with an external
            version.
        settings: Where and how to write.

    Returns:
        The counts over all partitions.

    Raises:
        RejectedDocumentsError: More documents were rejected than ``max_rejected_documents``.
        IndexNotFoundError: The write alias does not exist (any more).
        OpenSearchUnreachableError: The cluster gave no usable answer for ``retry_timeout_seconds``.
        OpenSearchAuthError: Credentials or permissions were refused.
        OpenSearchRequestError: The cluster refused a request as a whole.
    """
    fields = current_fields()

    def write_partition(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # An executor has no log of ours; Spark keeps what it writes to its standard error.
        with logging_to("-"), log_fields(**fields):
            result = BulkWriter(settings).write(batch.column(0) for batch in batches)
        yield pa.RecordBatch.from_pydict({"counts": [json.dumps(result.__dict__)]})

    total = BulkResult()
    for row in map_batches(actions.select("action"), write_partition, _RESULT).collect():
        total.add(BulkResult(**json.loads(row.counts)))
    if total.failure:
        failure = dict(total.failure)
        raise _ERRORS[failure.pop("error")](failure.pop("message"), **failure)
    require_accepted(total, settings.max_rejected_documents)
    return total


def require_accepted(result: BulkResult, max_rejected_documents: int, before: int = 0) -> None:
    """Raise RejectedDocumentsError when more documents were rejected, with those before, than allowed."""
    if result.rejected and result.rejected + before > max_rejected_documents:
        first = result.rejected_samples[0]
        error = RejectedDocumentsError(
            f"At least {result.rejected + before} documents were rejected, {max_rejected_documents} are allowed; "
            f"the first is '{first['id']}': {first['reason']}",
            subject="max_rejected_documents",
            value=max_rejected_documents,
            remedy="correct the rows or leave the column out with `columns`, or allow that many rejected documents",
        )
        error.dead_letters = result.dead_letters[:_FAILED_LETTERS]
        raise error


class BulkWriter:
    """Writes one partition: prepares the next request while earlier ones are under way."""

    def __init__(self, settings: BulkSettings) -> None:
        self._settings = settings
        self._path = f"/{quote(settings.alias, safe='')}/_bulk"
        self._parameters = {"require_alias": "true", "filter_path": FILTER}

    def write(self, columns: Iterable[pa.Array]) -> BulkResult:
        """Send all actions; stops early when more were rejected than allowed or a request cannot succeed."""
        total = BulkResult()
        client = self._settings.connection.client(self._settings.bulk_connections, answers=BulkAnswers())
        pending: deque[Future[BulkResult]] = deque()
        try:
            with ThreadPoolExecutor(self._settings.bulk_connections) as pool:
                for actions in (part for column in columns for part in _requests(column, self._settings.bulk_bytes)):
                    pending.append(pool.submit(copy_context().run, self._send, client, actions))
                    # One request more than connections waits ready, so that no connection idles.
                    if len(pending) > self._settings.bulk_connections:
                        total.add(pending.popleft().result())
                    if total.failure or total.rejected > self._settings.max_rejected_documents:
                        break
                for future in pending:
                    total.add(future.result())
        finally:
            client.close()
        return total

    def _send(self, client: OpenSearch, actions: pa.Array) -> BulkResult:
        """Send one request until every operation of it is applied, already applied or rejected."""
        result = BulkResult(bytes=_data(actions).nbytes)
        deadline = 0.0
        delay = 0.1
        while len(actions):
            body = _data(actions)
            trouble: Any
            result.requests += 1
            try:
                answer = client.transport.perform_request(
                    "POST", self._path, params=dict(self._parameters), body=bytes(body)
                )
                trouble, actions_left = self._take(result, answer, actions)
            except OpenSearchException as error:
                if isinstance(error, TransportError) and error.status_code == 413 and len(actions) > 1:
                    half = len(actions) // 2
                    result.add(replace(self._send(client, actions[:half]), bytes=0))  # counted with the whole
                    if result.failure:
                        return result
                    actions = actions[half:]
                    continue
                if not is_transient(error):
                    self._refused(result, error, actions)
                    return result
                trouble = error
                actions_left = actions
            if not len(actions_left):
                return result
            actions = actions_left
            # The clock runs from the first failure of this request, not from its first sending.
            now = time.monotonic()
            deadline = deadline or now + self._settings.retry_timeout_seconds
            if now >= deadline:
                result.failure = self._gave_up(trouble)
                return result
            time.sleep(min(delay, max(deadline - now, 0.0)) * random.uniform(0.5, 1.0))  # noqa: S311
            delay = min(delay * 2, 10.0)
            result.retries += 1
            left = round(deadline - time.monotonic(), 1)
            event(
                "OpenSearch pushes back; operations are sent again",
                logging.WARNING,
                left=len(actions),
                seconds_left=left,
            )
        return result

    def _take(self, result: BulkResult, answer: str | dict[str, Any], actions: pa.Array) -> tuple[Any, pa.Array]:
        """Count what became of each operation; return a reason and the operations to send again.

        Raises:
            UnusableAnswerError: The answer does not say of each operation what became of it.
        """
        are_upserts = _are_upserts(actions)
        counts = counted(answer, are_upserts)
        if counts is not None:
            result.upserts += counts[0]
            result.deletes += counts[1]
            result.already_applied += counts[2]
            return None, actions[:0]
        again: list[int] = []
        trouble: Any = None
        for number, (operation, outcome) in enumerate(outcomes(answer, are_upserts)):
            status = outcome["status"]
            if status in (200, 201):
                if operation == "index":
                    result.upserts += 1
                else:
                    result.deletes += 1
            elif status == 409:
                result.already_applied += 1
                _note_newest(result, actions[number], operation, outcome)
            elif status == 404 and operation == "delete" and "error" not in outcome:
                result.already_applied += 1
            elif status == 404:
                result.failure = self._alias_gone()
            elif status in RETRIED_STATUSES:
                again.append(number)
                trouble = outcome.get("error")
            elif status == 400 and (outcome.get("error") or {}).get("type") not in _INDEX_ERRORS:
                self._reject(result, actions[number].as_py(), operation, status, outcome.get("error") or {})
            else:
                # A closed (400) or blocked index (403) or a broken shard (500) says nothing about the document.
                result.failure = self._not_taken(status, outcome.get("error") or {})
        return trouble, actions.take(pa.array(again, pa.int64())) if again else actions[:0]

    def _reject(self, result: BulkResult, action: str, operation: str, status: int, error: dict[str, Any]) -> None:
        result.rejected += 1
        reason = f"{error.get('type')}: {error.get('reason')}"
        cause = (error.get("caused_by") or {}).get("reason")
        reason = shortened(f"{reason} ({cause})" if cause else reason)
        if len(result.dead_letters) < self._settings.max_rejected_documents + _FAILED_LETTERS:
            result.dead_letters.append({"action": action, "status": status, "reason": reason})
        if len(result.rejected_samples) < SAMPLES:
            result.rejected_samples.append({"id": _id_of(action, operation), "status": status, "reason": reason})

    def _refused(self, result: BulkResult, error: OpenSearchException, actions: pa.Array) -> None:
        status = error.status_code if isinstance(error, TransportError) else None
        if status == 413:
            first = actions[0].as_py()
            self._reject(result, first, "index", 413, {"type": "too_large", "reason": "larger than a request may be"})
        elif status == 404:
            result.failure = self._alias_gone()
        else:
            connection = self._settings.connection
            result.failure = _as_failure(typed(error, connection.url, "a bulk request", connection.username))

    def _alias_gone(self) -> dict[str, Any]:
        return {
            "error": "IndexNotFoundError",
            "message": f"The write alias '{self._settings.alias}' is gone: the index was deleted while it was written",
            "subject": "index",
            "value": self._settings.alias,
            "remedy": "run the export again; it builds a new index behind the alias",
        }

    def _not_taken(self, status: int, error: dict[str, Any]) -> dict[str, Any]:
        return {
            "error": "OpenSearchRequestError",
            "message": shortened(f"OpenSearch takes no writes: {status} {error.get('type')}: {error.get('reason')}"),
            "subject": "index",
            "value": self._settings.alias,
            "remedy": "remove the cause (a write block, a full disk, missing permissions), then run again",
        }

    def _gave_up(self, trouble: Any) -> dict[str, Any]:
        if isinstance(trouble, OpenSearchException):
            return _as_failure(typed(trouble, self._settings.connection.url, "a bulk request"))
        return {
            "error": "OpenSearchUnreachableError",
            "message": f"OpenSearch kept refusing documents for {self._settings.retry_timeout_seconds:g} s: "
            f"{shortened(str(trouble))}",
            "subject": "retry_timeout_seconds",
            "value": self._settings.retry_timeout_seconds,
            "remedy": "relieve the cluster (disk space, write queue) or allow more time; the position did not move",
        }


def _requests(actions: pa.Array, bulk_bytes: int) -> Iterator[pa.Array]:
    """Cut a column of actions into slices of about ``bulk_bytes``; the slices share the column's memory."""
    if isinstance(actions, pa.ChunkedArray):
        actions = actions.combine_chunks()
    ends = _offsets(actions)[1:]
    start = 0
    while start < len(actions):
        limit = (ends[start - 1] if start else _offsets(actions)[0]) + bulk_bytes
        stop = max(int(np.searchsorted(ends, limit, side="right")), start + 1)
        yield actions[start:stop]
        start = stop


def _offsets(actions: pa.Array) -> np.ndarray[Any, Any]:
    width = np.int64 if pa.types.is_large_string(actions.type) else np.int32
    offsets = np.frombuffer(actions.buffers()[1], dtype=width)
    return offsets[actions.offset : actions.offset + len(actions) + 1]


def _data(actions: pa.Array) -> memoryview:
    """The text of all actions, one behind the other: just what a bulk request's body is, without copying."""
    offsets = _offsets(actions)
    return memoryview(actions.buffers()[2])[int(offsets[0]) : int(offsets[-1])]


def _are_upserts(actions: pa.Array) -> np.ndarray[Any, Any]:
    """Which of the actions are index operations: those that begin with {"index", not with {"delete"."""
    starts = _offsets(actions)[:-1]
    kinds: np.ndarray[Any, Any] = np.frombuffer(actions.buffers()[2], dtype=np.uint8)[starts + 2] == ord("i")
    return kinds


def _id_of(action: str, operation: str) -> str:
    return str(json.loads(action.split("\n", 1)[0])[operation]["_id"])


def _note_newest(result: BulkResult, action: pa.Scalar, operation: str, outcome: dict[str, Any]) -> None:
    """Remember the version that a conflict names, if it is the highest so far; only the reason's text has it."""
    named = _CURRENT_VERSION.match((outcome.get("error") or {}).get("reason") or "")
    if named and int(named[1]) > result.newest_version:
        result.newest_version, result.newest_id = int(named[1]), _id_of(action.as_py(), operation)


def _as_failure(error: Exception) -> dict[str, Any]:
    known = error if isinstance(error, IcecdcError) else OpenSearchRequestError(str(error))
    return {
        "error": type(known).__name__,
        "message": known.message,
        "subject": known.subject,
        "value": known.value,
        "remedy": known.remedy,
    }
