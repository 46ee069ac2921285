"""Bulk writing: requests of bounded size, sent and sent again, and a result for every operation."""

from __future__ import annotations

import json
import pickle
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
from opensearchpy import OpenSearch
from opensearchpy.exceptions import NotFoundError, OpenSearchException, TransportError
from pyspark import TaskContext
from pyspark.sql.pandas.types import from_arrow_schema

from icecdc_core import errors
from icecdc_core.dependencies import keep_archive_caches
from icecdc_core.documents.bulk_lines import place_of, write_alias
from icecdc_core.logs import current_fields, log_fields, logging_to
from icecdc_core.opensearch.client import (
    RETRIED_STATUSES,
    Backoff,
    Connection,
    error_reason,
    is_transient,
    reading,
    typed_error,
    unusable_answer_error,
)
from icecdc_core.opensearch.counts import Counts
from icecdc_core.session.jvm import persisted
from icecdc_core.session.spark import collect_at_once

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from icecdc_core.config import SyncConfig


def bulk_requests(actions: pa.Array, bulk_bytes: int) -> Iterator[pa.Array]:
    offsets = _offsets(actions)
    start = 0
    while start < len(actions):
        limit = offsets[start] + bulk_bytes
        stop = max(int(np.searchsorted(offsets[1:], limit, side="right")), start + 1)
        yield actions[start:stop]
        start = stop


def request_body(actions: pa.Array) -> memoryview:
    """Return the concatenated text of all actions, which is the body of a bulk request; nothing is copied."""
    offsets = _offsets(actions)
    return memoryview(actions.buffers()[2])[int(offsets[0]) : int(offsets[-1])]


def parse_action(action: str) -> tuple[str, dict[str, Any], str | None]:
    """Return the operation of a bulk line, its head, and the document as JSON; None for a delete."""
    head, _, document = action.partition("\n")
    ((operation, values),) = json.loads(head).items()
    return operation, values, document.rstrip("\n") or None


def _offsets(actions: pa.Array) -> np.ndarray[Any, Any]:
    offsets = np.frombuffer(actions.buffers()[1], np.int64 if pa.types.is_large_string(actions.type) else np.int32)
    return offsets[actions.offset : actions.offset + len(actions) + 1]


SAMPLES = 20  # rejected documents that a result shows
# Dead letters that are kept of a batch that fails: enough to see what is wrong with its documents.
FAILED_DEAD_LETTERS = 1000

# By the status of the first rejected document.
_REMEDIES = {
    **dict.fromkeys((200, 500), "correct the ingest pipeline, or leave the rows out with `row_filter`"),
    409: "find out who else writes to the index, then run the export (it builds a new index behind the alias, without "
    "downtime)",
}


@dataclass(frozen=True)
class BulkResult:
    counts: Counts = Counts()  # noqa: RUF009 (it is frozen)
    dead_letters: list[dict[str, Any]] = field(default_factory=list)
    failure: errors.IcecdcError | None = None
    newest: tuple[int, str] = 0, ""  # the newest version that a conflict named, and its document
    duplicates: int = 0  # operations that met a document though the table had no row before
    unchecked: int = 0  # operations whose document should not have been there, where no answer says whether it was
    duplicate_ids: tuple[str, ...] = ()
    drifted_ids: tuple[str, ...] = ()
    largest: int = 0  # bytes of an operation

    def __add__(self, other: BulkResult) -> BulkResult:
        return BulkResult(
            self.counts + other.counts,
            [*self.dead_letters, *other.dead_letters],
            self.failure or other.failure,
            max(self.newest, other.newest),
            self.duplicates + other.duplicates,
            self.unchecked + other.unchecked,
            (*self.duplicate_ids, *other.duplicate_ids)[:SAMPLES],
            (*self.drifted_ids, *other.drifted_ids)[:SAMPLES],
            max(self.largest, other.largest),
        )

    @property
    def rejected_samples(self) -> list[dict[str, Any]]:
        return [
            {"id": letter["document_id"], "status": letter["status"], "reason": letter["reason"]}
            for letter in self.dead_letters[:SAMPLES]
        ]


def require_accepted(result: BulkResult, max_rejected_documents: int, before: int = 0) -> None:
    rejected = result.counts.rejected + before
    if result.counts.rejected and rejected > max_rejected_documents:
        first = result.rejected_samples[0]
        remedy = _REMEDIES.get(first["status"], "correct the rows or leave the column out with `columns`")
        error = errors.RejectedDocumentsError(
            f"At least {rejected} documents were rejected, {max_rejected_documents} are allowed; "
            f"the first is '{first['id']}': {first['reason']}",
            subject="max_rejected_documents",
            value=max_rejected_documents,
            remedy=f"{remedy}, or allow that many rejected documents",
        )
        error.dead_letters = result.rejected_samples
        raise error


# Refusals with the status of a wrong document (400) that are about the index: by type, or by the begin of the reason.
_INDEX_ERRORS = (
    "index_closed_exception",
    "illegal_argument_exception: no write index is defined",
    "illegal_argument_exception: pipeline with id [",
    "illegal_argument_exception: Number of documents in shard",
)
# Of a request with deletes alone OpenSearch tries to create the alias as an index, and refuses its capitals.
_MISSING = ("index_not_found_exception", "invalid_index_name_exception")
_REFUSED = "fail_processor_exception"  # by an ingest pipeline, with the status 500
_DROPPED = {"type": "dropped", "reason": "an ingest pipeline dropped the document"}
# Greedy, so that it finds the last version in a conflict's reason: the document id before it may be any text.
_CURRENT_VERSION = re.compile(r".*current version \[(\d+)\]", re.DOTALL)


def count_outcomes(
    answer: Any,
    actions: pa.Array,
    alias: str,
    max_rejected_documents: int,
    highest_version: int,
    was_there: Sequence[bool | None] | None = None,
) -> tuple[BulkResult, pa.Array, Any]:
    """Count what one request achieved; return the operations to send again, too, and why OpenSearch refused them."""
    upserts = deletes = already_applied = 0
    newest = 0, ""
    rejected: list[tuple[int, int, dict[str, Any]]] = []
    failure: errors.IcecdcError | None = None
    again: list[int] = []
    reason: Any = None
    outcomes = item_outcomes(answer, actions)
    for number, (operation, outcome) in enumerate(outcomes):
        status, error = outcome["status"], outcome.get("error") or {}
        if status in (200, 201) and outcome.get("result") == "noop":
            rejected.append((number, status, _DROPPED))
        elif status in (200, 201):
            if operation == "index":
                upserts += 1
            else:
                deletes += 1
        elif status == 409:
            # Only the text of the reason names the version of the document.
            found = _CURRENT_VERSION.match(str(error.get("reason")))
            if (version := int(found[1]) if found else 0) > newest[0]:
                newest = version, _id_of(actions[number])
            if version <= highest_version:
                already_applied += 1
            else:
                text = f"the index has version {version} of the document, which icecdc did not give it"
                foreign = {"type": "foreign_version", "reason": f"{text}: somebody else wrote it"}
                rejected.append((number, status, foreign))
        elif status == 404 and operation == "delete" and "error" not in outcome:
            already_applied += 1
        elif error.get("type") in _MISSING:
            failure = _alias_missing(alias)
        elif status in RETRIED_STATUSES:
            again.append(number)
            reason = error
        elif error.get("type") == _REFUSED or (status == 400 and not error_reason(error).startswith(_INDEX_ERRORS)):
            rejected.append((number, status, error))
        else:
            # A closed (400) or blocked (403) index or a broken shard (500) says nothing about the document.
            failure = errors.OpenSearchRequestError(
                errors.shorten(f"OpenSearch rejects all writes: {status} {error_reason(error)}"),
                subject="index",
                value=alias,
                remedy="remove the cause (a write block, a full disk or shard, missing permissions, a missing ingest "
                "pipeline, a copy of the index with the same alias), then run again",
            )
    duplicates, drifted, unchecked = _unlike_the_table(outcomes, was_there or ())
    most = max_rejected_documents + FAILED_DEAD_LETTERS
    result = BulkResult(
        Counts(upserts, deletes, already_applied, len(rejected), len(drifted)),
        [_dead_letter(actions[number], alias, status, error) for number, status, error in rejected[:most]],
        failure,
        newest,
        duplicates=len(duplicates),
        unchecked=unchecked,
        duplicate_ids=tuple(_id_of(actions[number]) for number in duplicates[:SAMPLES]),
        drifted_ids=tuple(_id_of(actions[number]) for number in drifted[:SAMPLES]),
    )
    return result, actions.take(pa.array(again, pa.int64())) if again else actions[:0], reason


def _unlike_the_table(
    outcomes: Sequence[tuple[str, dict[str, Any]]], was_there: Sequence[bool | None]
) -> tuple[list[int], list[int], int]:
    """Return the operations that met a document without a row, those that met none of a row, and how many are unknown.

    OpenSearch answers 200 if there was a document, else 201 to an index operation and 404 to a delete.
    """
    duplicates, drifted, unchecked = [], [], 0
    for number, (had_row, (_, outcome)) in enumerate(zip(was_there, outcomes, strict=False)):
        met = outcome["status"] == 200
        met_none = outcome["status"] == 201 or (outcome["status"] == 404 and "error" not in outcome)
        if had_row is False and met:
            duplicates.append(number)
        elif had_row is False and outcome["status"] in _SHOW_NOTHING:  # a conflict, or it is sent again
            unchecked += 1
        elif had_row and met_none:
            drifted.append(number)
    return duplicates, drifted, unchecked


def item_outcomes(answer: Any, actions: pa.Array) -> list[tuple[str, dict[str, Any]]]:
    """Return operation and outcome of each item; there must be one of every operation that was sent, in its order."""
    items = answer.get("items") if isinstance(answer, dict) else None
    if not isinstance(items, list) or len(items) != len(actions):
        raise unusable_answer_error(f"the answer has no items for {len(actions)} operations", answer)
    outcomes = []
    # The third character of {"index" and {"delete" distinguishes them.
    upserts = np.frombuffer(actions.buffers()[2], dtype=np.uint8)[_offsets(actions)[:-1] + 2] == ord("i")
    for item, is_upsert in zip(items, upserts.tolist(), strict=True):
        kind = "index" if is_upsert else "delete"
        outcome: Any = item.get(kind) if isinstance(item, dict) and len(item) == 1 else None
        status, error = (outcome.get("status"), outcome.get("error")) if isinstance(outcome, dict) else (None, None)
        is_success = status in (200, 201) and error is None
        if type(status) is not int or not (is_success or (400 <= status < 600 and isinstance(error or {}, dict))):
            raise unusable_answer_error(f"the answer has an item that is not the outcome of '{kind}'", item)
        outcomes.append((kind, outcome))
    return outcomes


def _alias_missing(alias: str) -> errors.IndexNotFoundError:
    return errors.IndexNotFoundError(
        f"The write alias '{alias}' is gone: the index was deleted while it was written",
        subject="index",
        value=alias,
        remedy="run the export again; it builds a new index behind the alias",
    )


def _id_of(action: pa.Scalar) -> str:
    return str(parse_action(action.as_py())[1]["_id"])


def _dead_letter(action: pa.Scalar, alias: str, status: int, error: dict[str, Any]) -> dict[str, Any]:
    operation, head, document = parse_action(action.as_py())
    return {
        "document_id": head["_id"],
        "place": place_of(head, alias.removesuffix(write_alias(""))),
        "version": head["version"],
        "operation": operation,
        "document": document,
        "status": status,
        "reason": errors.shorten(error_reason(error)),
    }


_SHOW_NOTHING = {409, *RETRIED_STATUSES}
_IDS = 5_000  # of a search; OpenSearch returns at most 10,000 documents

ANY_VERSION = 2**63 - 1  # as `highest_version`: a conflict with whatever version counts as already applied

# Only what `count_outcomes` reads of an answer.
_FILTER = "items.*.status,items.*.result,items.*.error.type,items.*.error.reason,items.*.error.caused_by.reason"


# A rejected operation, or the result of a partition.
_TEXTS = ("document_id", "place", "operation", "document", "reason")
_WRITTEN = pa.schema(
    {**dict.fromkeys(_TEXTS, pa.string()), "version": pa.int64(), "status": pa.int32(), "result": pa.binary()}
)


def _of_result(result: BulkResult) -> pa.RecordBatch:
    # Of buffers: to convert a Python value, pyarrow imports pandas, and a new worker would end 0.9 CPU s later.
    pickled = pickle.dumps(result)
    buffers = [None, pa.py_buffer(np.array([0, len(pickled)], np.int32)), pa.py_buffer(pickled)]
    columns = [pa.nulls(1, each.type) for each in _WRITTEN][:-1]
    return pa.RecordBatch.from_arrays([*columns, pa.Array.from_buffers(pa.binary(), 1, buffers)], schema=_WRITTEN)


@contextmanager
def write_actions(actions: DataFrame, writer: BulkWriter) -> Iterator[tuple[BulkResult, DataFrame]]:
    """Write operations; yield the result, and those that were rejected, which stay on the executors."""
    fields = current_fields()

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with log_fields(**fields):
            yield from writer.write_partition(batches)

    # A part that is lost is written again: the same operations, with the same outcome.
    with persisted(actions.mapInArrow(write, from_arrow_schema(_WRITTEN))) as written:
        results = collect_at_once(written.where("result IS NOT NULL").select("result"))
        total = sum((pickle.loads(row["result"]) for row in results), BulkResult())  # noqa: S301 (our own tasks wrote it)
        if total.failure:
            raise total.failure
        yield total, written.where("result IS NULL").drop("result")


def try_workers(spark: SparkSession) -> None:
    """Run a task on each core that imports what writing takes."""
    cores = spark.sparkContext.defaultParallelism
    spark.range(0, cores, 1, cores).mapInArrow(_unchanged, "id long").count()


def _unchanged(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    return batches  # no lambda: workers find this function by importing its module


@dataclass(frozen=True)
class BulkWriter:
    """Writes partitions, each in a Spark task: it prepares the next request while earlier ones are in flight."""

    connection: Connection
    alias: str
    bulk_bytes: int
    bulk_connections: int
    retry_timeout_seconds: float
    max_rejected_documents: int
    highest_version: int = ANY_VERSION
    searched: str = ""
    """Where to search for earlier documents of added rows, if an answer shows only one of several shards or indexes."""

    @classmethod
    def of(cls, config: SyncConfig, alias: str, highest_version: int = ANY_VERSION, searched: str = "") -> BulkWriter:
        limits = config.bulk_bytes, config.bulk_connections, config.retry_timeout_seconds, config.max_rejected_documents
        return cls(Connection.of(config), alias, *limits, highest_version, searched)

    def write_partition(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Send all actions; return the rejected ones as they come, for there may be many, and then the result."""
        keep_archive_caches()
        total = BulkResult()
        for result in self._results(batches):
            if result.dead_letters:
                yield pa.RecordBatch.from_pylist(result.dead_letters, _WRITTEN)
            few = result.dead_letters[: SAMPLES - len(total.dead_letters)]
            total += replace(result, dead_letters=[{**letter, "document": None} for letter in few])
        yield _of_result(total)

    def _results(self, batches: Iterable[pa.RecordBatch]) -> Iterator[BulkResult]:
        """Send all actions; stop early when more are rejected than allowed or a request cannot succeed."""
        pending: deque[Future[BulkResult]] = deque()
        rejected = 0
        with (
            logging_to("-"),  # an executor has no log file of the job; Spark keeps its standard error
            closing(self.connection.client(self.bulk_connections)) as client,
            ThreadPoolExecutor(self.bulk_connections) as pool,
        ):
            requests = (part for batch in batches for part in self._requests(batch))
            for actions, was_there in requests:
                largest = int(np.diff(_offsets(actions)).max())
                yield BulkResult(Counts(bytes=request_body(actions).nbytes), largest=largest)
                pending.append(pool.submit(copy_context().run, self._send, client, actions, was_there))
                # One request more than there are connections waits, so that no connection idles.
                if len(pending) > self.bulk_connections:
                    result = pending.popleft().result()
                    yield result
                    rejected += result.counts.rejected
                    if result.failure or rejected > self.max_rejected_documents:
                        break
            for future in pending:
                yield future.result()

    def _requests(self, batch: pa.RecordBatch) -> Iterator[tuple[pa.Array, list[bool | None] | None]]:
        """The operations of each request, and whether their documents must be there, if the batch says it."""
        start = 0
        for actions in bulk_requests(batch.column(0), self.bulk_bytes):
            expected = batch.column(1)[start : start + len(actions)].to_pylist() if batch.num_columns > 1 else None
            yield actions, expected
            start += len(actions)

    def _send(
        self, client: OpenSearch, actions: pa.Array, was_there: Sequence[bool | None] | None = None
    ) -> BulkResult:
        """Send one request until each of its operations is applied, already applied or rejected."""
        result = BulkResult()
        task = TaskContext.get()
        if was_there and task and task.attemptNumber():  # it meets what its first attempt wrote
            result, was_there = BulkResult(unchecked=was_there.count(False)), None
        is_searched = not self.searched
        backoff = Backoff(self.retry_timeout_seconds, first_pause=0.1)
        while True:
            result += BulkResult(Counts(requests=1))
            try:
                if was_there and not is_searched:
                    result += self._search_earlier(client, actions, was_there)
                    is_searched, was_there = True, [had_row or None for had_row in was_there]
                answer = client.transport.perform_request(
                    "POST",
                    bulk_path(self.alias),
                    params={"require_alias": "true", "filter_path": _FILTER},
                    body=bytes(request_body(actions)),
                )
                part, actions, cause = count_outcomes(
                    answer, actions, self.alias, self.max_rejected_documents, self.highest_version, was_there
                )
                was_there = None
                result += part
                if not len(actions):
                    return result
            except OpenSearchException as error:
                if isinstance(error, TransportError) and error.status_code == 413:
                    if len(actions) == 1:
                        reason = {"type": "too_large", "reason": "larger than a request may be"}
                        return result + BulkResult(
                            Counts(rejected=1), [_dead_letter(actions[0], self.alias, 413, reason)]
                        )
                    half = len(actions) // 2
                    first, second = (was_there[:half], was_there[half:]) if was_there else (None, None)
                    result += self._send(client, actions[:half], first)
                    return result if result.failure else result + self._send(client, actions[half:], second)
                if not is_transient(error):
                    return result + BulkResult(failure=self._failure(error))
                if was_there and is_searched:  # the request may have been executed
                    result, was_there = result + BulkResult(unchecked=was_there.count(False)), None
                cause = error
            if not backoff.wait("bulk operations failed; they are retried", operations=len(actions)):
                return result + BulkResult(failure=self._failure(cause))
            result += BulkResult(Counts(retries=1))

    def _search_earlier(self, client: OpenSearch, actions: pa.Array, was_there: Sequence[bool | None]) -> BulkResult:
        """Search every shard and index for documents, of earlier batches, of rows that were not there before."""
        ids = [_id_of(action) for action, had_row in zip(actions, was_there, strict=True) if had_row is False]
        found: list[str] = []
        for start in range(0, len(ids), _IDS):
            query = {"ids": {"values": ids[start : start + _IDS]}}
            answer = client.search(
                index=self.searched,
                body={"query": query, "size": 2 * _IDS, "version": True, "_source": False},
                params={"allow_partial_search_results": "false"},
            )
            with reading(answer):
                hits = answer["hits"]["hits"]
                found += [hit["_id"] for hit in hits if hit["_version"] < self.highest_version - 1]
        return BulkResult(duplicates=len(found), duplicate_ids=tuple(found[:SAMPLES]))

    def _failure(self, cause: Any) -> errors.IcecdcError:
        if isinstance(cause, NotFoundError):
            return _alias_missing(self.alias)
        if isinstance(cause, OpenSearchException):
            return typed_error(cause, self.connection.url, "a bulk request", self.connection.username)
        return errors.OpenSearchUnreachableError(
            f"OpenSearch ({self.connection.url}) kept refusing documents for {self.retry_timeout_seconds:g} s: "
            f"{error_reason(cause)}",
            subject="retry_timeout_seconds",
            value=self.retry_timeout_seconds,
            remedy="relieve the cluster (disk space, write queue) or allow more time; the position did not move",
        )


def bulk_path(alias: str) -> str:
    return f"/{quote(alias, safe='')}/_bulk"
