"""Bulk indexing from the executors: parallel requests, retries under back-pressure, a counted result."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from contextvars import copy_context
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa
from opensearchpy import OpenSearch
from opensearchpy.exceptions import OpenSearchException, TransportError

from icecdc_core.logs import current_fields, event, log_fields, logging_to
from icecdc_core.opensearch.answers import FastAnswers
from icecdc_core.opensearch.bulk import failures
from icecdc_core.opensearch.bulk.answers import FILTER, count_outcomes, too_large_result
from icecdc_core.opensearch.bulk.counts import Counts
from icecdc_core.opensearch.bulk.request import bulk_requests, request_body
from icecdc_core.opensearch.bulk.result import BulkResult, require_accepted
from icecdc_core.opensearch.client import Connection
from icecdc_core.opensearch.retry import Backoff, is_transient
from icecdc_core.session.python_workers import reread_only_changed_archives

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from icecdc_core.config import SyncConfig

_FIRST_PAUSE_SECONDS = 0.1
ANY_VERSION = 2**63 - 1
"""As `highest_version`: a conflict with whatever version counts as already applied."""


@dataclass(frozen=True)
class BulkSettings:
    """Where and how to write."""

    connection: Connection
    alias: str
    bulk_bytes: int
    bulk_connections: int
    retry_timeout_seconds: float
    max_rejected_documents: int
    highest_version: int = ANY_VERSION

    @classmethod
    def of(cls, config: SyncConfig, alias: str, highest_version: int = ANY_VERSION) -> BulkSettings:
        """Return the settings of a job."""
        return cls(
            Connection.of(config),
            alias,
            config.bulk_bytes,
            config.bulk_connections,
            config.retry_timeout_seconds,
            config.max_rejected_documents,
            highest_version,
        )


def write_actions(actions: DataFrame, settings: BulkSettings) -> BulkResult:
    """Send every bulk action of a frame to OpenSearch, from the executors."""
    writer = BulkWriter(settings, current_fields())
    partitions = actions.select("action").mapInArrow(writer.write_partition, "result string").collect()
    total = sum((BulkResult.from_json(row["result"]) for row in partitions), BulkResult())
    if total.failure:
        raise failures.failure_error(total.failure)
    require_accepted(total, settings.max_rejected_documents)
    return total


class BulkWriter:
    """Writes partitions, each in a Spark task: it prepares the next request while earlier ones are in flight."""

    def __init__(self, settings: BulkSettings, fields: Mapping[str, Any] | None = None) -> None:
        self._settings = settings
        self._fields = dict(fields or {})
        self._path = bulk_path(settings.alias)
        self._parameters = {"require_alias": "true", "filter_path": FILTER}

    def write_partition(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Send all actions; stop early when more are rejected than allowed or a request cannot succeed."""
        reread_only_changed_archives()
        settings, total = self._settings, BulkResult()
        client = settings.connection.client(settings.bulk_connections, answers=FastAnswers())
        pending: deque[Future[BulkResult]] = deque()
        # An executor has no log file of the job; Spark keeps what it writes to its standard error.
        log = logging_to("-")
        with log, log_fields(**self._fields), closing(client), ThreadPoolExecutor(settings.bulk_connections) as pool:
            requests = (part for batch in batches for part in bulk_requests(batch.column(0), settings.bulk_bytes))
            for actions in requests:
                pending.append(pool.submit(copy_context().run, self._send, client, actions))
                # One request more than there are connections waits, so that no connection idles.
                if len(pending) > settings.bulk_connections:
                    total += pending.popleft().result()
                if total.failure or total.counts.rejected > settings.max_rejected_documents:
                    break
            for future in pending:
                total += future.result()
        yield pa.RecordBatch.from_pydict({"result": [total.to_json()]})

    def _send(self, client: OpenSearch, actions: pa.Array) -> BulkResult:
        """Send one request until each of its operations is applied, already applied or rejected."""
        settings = self._settings
        result = BulkResult(Counts(bytes=request_body(actions).nbytes))
        backoff = Backoff(settings.retry_timeout_seconds, _FIRST_PAUSE_SECONDS)
        while len(actions):
            result += BulkResult(Counts(requests=1))
            try:
                answer = client.transport.perform_request(
                    "POST", self._path, params=dict(self._parameters), body=bytes(request_body(actions))
                )
                part, actions, cause = count_outcomes(
                    answer, actions, settings.alias, settings.max_rejected_documents, settings.highest_version
                )
                result += part
            except OpenSearchException as error:
                if _status(error) == 413 and len(actions) > 1:
                    half = len(actions) // 2
                    result += _without_bytes(self._send(client, actions[:half]))
                    if result.failure:
                        return result
                    actions = actions[half:]
                    continue
                if not is_transient(error):
                    return result + self._refused(error, actions)
                cause = error
            if not len(actions):
                break
            if backoff.is_exhausted():
                return result + BulkResult(failure=self._retries_exhausted(cause))
            event(
                "bulk operations failed; they are retried",
                logging.WARNING,
                operations=len(actions),
                seconds_left=backoff.seconds_left,
            )
            backoff.sleep()
            result += BulkResult(Counts(retries=1))
        return result

    def _refused(self, error: OpenSearchException, actions: pa.Array) -> BulkResult:
        """Return the result of a request that was refused as a whole and is not retried."""
        if _status(error) == 413:
            return too_large_result(actions[0].as_py())
        if _status(error) == 404:
            return BulkResult(failure=failures.alias_missing(self._settings.alias))
        return BulkResult(failure=failures.request_failed(error, self._settings.connection))

    def _retries_exhausted(self, cause: Any) -> dict[str, Any]:
        if isinstance(cause, OpenSearchException):
            return failures.request_failed(cause, self._settings.connection)
        return failures.retries_exhausted(cause, self._settings.retry_timeout_seconds)


def bulk_path(alias: str) -> str:
    """Return the path of bulk requests to one alias, whatever characters its name has."""
    return f"/{quote(alias, safe='')}/_bulk"


def _status(error: OpenSearchException) -> Any:
    return error.status_code if isinstance(error, TransportError) else None


def _without_bytes(result: BulkResult) -> BulkResult:
    """Return the result of a part of a request, whose bytes are counted with the whole."""
    return replace(result, counts=replace(result.counts, bytes=0))
