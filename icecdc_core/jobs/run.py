"""One run of a job: its identity, its clock, its clients, and what it lets go of at its end."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from opensearchpy.exceptions import OpenSearchException, RequestError

from icecdc_core.commits.positions import IndexLock, PositionStore
from icecdc_core.documents.mapping import check_supported
from icecdc_core.opensearch.client import Connection, typed_errors
from icecdc_core.opensearch.retry import without_retries
from icecdc_core.reporting.instrumentation import run_id, timed_stage
from icecdc_core.table.read_failures import spark_errors
from icecdc_core.table.source import Source, open_source

if TYPE_CHECKING:
    from types import TracebackType

    from opensearchpy import OpenSearch
    from pyspark.sql import SparkSession

    from icecdc_core.config import SyncConfig
    from icecdc_core.table.iceberg_table import IcebergTable

_KEEP_ALIVE = "10m"
_KEEP_ALIVE_LIMIT = re.compile(r"must be less than \(([\d.]+)(d|h|m|s|ms)\)[^\n]*point_in_time\.max_keep_alive")
_MILLISECONDS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}


class Run:
    """A run: its id, a client of the cluster, the positions, and seconds per stage; to be used in a `with`.

    Args:
        config: The job's parameters.

    Raises:
        OpenSearchUnreachableError: The cluster does not answer.
        OpenSearchAuthError: The credentials are refused.
    """

    def __init__(self, config: SyncConfig) -> None:
        self.config = config
        self.run_id = run_id()
        self.started = time.monotonic()
        self.stage_seconds: dict[str, float] = {}
        self._points: list[str] = []
        self._table: IcebergTable | None = None
        self._ends = ExitStack()
        # A server that is not there at the start is told at once; one that goes away later is waited for.
        self.client: OpenSearch = Connection.of(config).client(retry_seconds=config.retry_timeout_seconds)
        self.positions = PositionStore(self.client, config)
        with self.talking("the first request"), without_retries(self.client):
            self.client.info()

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def source(self, spark: SparkSession, needs_history: bool = True) -> Source:
        """Open the table, see ``open_source``; what is staged of it is forgotten with the run."""
        source = open_source(spark, self.config, needs_history=needs_history)
        check_supported(source.schema)
        self._ends.callback(source.table.release)
        self._table = source.table
        return source

    def source_again(self, source: Source) -> Source:
        """Open the table as it is now, after it changed under this run."""
        with self.stage("check"):
            source.table.release()
            return self.source(source.table.spark)

    @contextmanager
    def lock(self, source: Source) -> Iterator[IndexLock]:
        """Hold the index against other runs.

        Raises:
            TableLockedError: Another run holds it.
        """
        lock = self.positions.lock(self.config.table, source.table_uuid, self.run_id)
        try:
            yield lock
        finally:
            lock.release()

    @property
    def seconds(self) -> float:
        """Seconds since the run started."""
        return round(time.monotonic() - self.started, 3)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage; failures of Spark and OpenSearch inside it become typed errors."""
        with timed_stage(name, self.stage_seconds), self.talking(name), spark_errors(self.config, self._table):
            yield

    @contextmanager
    def talking(self, doing: str) -> Iterator[None]:
        """Turn the client's failures into typed errors."""
        with typed_errors(self.config.opensearch_url, doing, self.config.opensearch_username):
            yield

    def point_in_time(self, index: str) -> str:
        """Open a point in time of an index, of all its shards, for readers on the executors; it ends with the run.

        Every reader's search prolongs it: it may only not be left alone for longer than 10 minutes, or than the cluster
        allows (`point_in_time.max_keep_alive`).
        """
        params = {"keep_alive": _KEEP_ALIVE, "allow_partial_pit_creation": "false"}
        try:
            made = self.client.create_pit(index=index, params=params)
        except RequestError as error:
            limit = _KEEP_ALIVE_LIMIT.search(str(error.info))
            if limit is None:
                raise
            # The server names its limit rounded down, such as 1.5m, but takes no fractions.
            shorter = f"{int(float(limit[1]) * _MILLISECONDS[limit[2]])}ms"
            made = self.client.create_pit(index=index, params={**params, "keep_alive": shorter})
        self._points.append(made["pit_id"])
        return self._points[-1]

    def close(self) -> None:
        """Let go of the table, the points in time and the client."""
        try:
            self._ends.close()
            if self._points:
                with without_retries(self.client):
                    self.client.delete_pit(body={"pit_id": self._points})
        except OpenSearchException:
            pass  # they expire by themselves
        finally:
            self.client.close()
