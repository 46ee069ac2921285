"""One run of a job: its identity, its clock, and Spark's failures turned into typed errors."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from opensearchpy.exceptions import OpenSearchException
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from icecdc_core import errors
from icecdc_core.catalogs import is_refused_access
from icecdc_core.cluster import Connection, typed_errors
from icecdc_core.errors import (
    ConfigError,
    DataReadError,
    DiskFullError,
    DuplicateIdentifierError,
    IcecdcError,
    IdentifierColumnsError,
)
from icecdc_core.observation import run_id, timed_stage
from icecdc_core.patience import at_once
from icecdc_core.positions import HeldTable, PositionStore
from icecdc_core.secrets import masked
from icecdc_core.source import Source, open_source

if TYPE_CHECKING:
    from types import TracebackType

    from opensearchpy import OpenSearch
    from pyspark.sql import SparkSession

    from icecdc_core.config import SyncConfig

KEEP_ALIVE = "10m"
# What a condition fails with: a data exception of SQL, its own raise_error, an error in a user's function, a format or
# a pattern. Of the jobs' own expressions only those of identifiers raise, with texts of their own.
_EVALUATION = re.compile(
    r"\[[A-Z_.]+\] [^\n]*SQLSTATE: (?:22\w{3}|P0001|39000)|\[INVALID_FORMAT[^\n]+|PatternSyntaxException: [^\n]+"
)


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
        self._ends = ExitStack()
        # A server that is not there at the start is told at once; one that goes away later is waited for.
        self.client: OpenSearch = Connection.of(config).client(patience_seconds=config.retry_timeout_seconds)
        self.positions = PositionStore(self.client, config)
        with self.talking("the first request"), at_once(self.client):
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
        self._ends.callback(source.table.release)
        return source

    @contextmanager
    def holding(self, source: Source) -> Iterator[HeldTable]:
        """Hold the index against other runs.

        Raises:
            TableLockedError: Another run holds it.
        """
        held = self.positions.hold(self.config.table, source.table_uuid, self.run_id)
        try:
            yield held
        finally:
            held.release()

    @property
    def seconds(self) -> float:
        """Seconds since the run started."""
        return round(time.monotonic() - self.started, 3)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage; failures of Spark and OpenSearch inside it become typed errors."""
        with timed_stage(name, self.stage_seconds), self.talking(name), spark_errors(self.config):
            yield

    @contextmanager
    def talking(self, doing: str) -> Iterator[None]:
        """Turn the client's failures into typed errors."""
        with typed_errors(self.config.opensearch_url, doing, self.config.opensearch_username):
            yield

    def point_in_time(self, index: str) -> str:
        """Open a point in time of an index, of all its shards, for readers on the executors; it ends with the run."""
        params = {"keep_alive": KEEP_ALIVE, "allow_partial_pit_creation": "false"}
        self._points.append(self.client.create_pit(index=index, params=params)["pit_id"])
        return self._points[-1]

    def close(self) -> None:
        """Let go of the table, the points in time and the client."""
        try:
            self._ends.close()
            if self._points:
                with at_once(self.client):
                    self.client.delete_pit(body={"pit_id": self._points})
        except OpenSearchException:
            pass  # they expire by themselves
        finally:
            self.client.close()


@contextmanager
def spark_errors(config: SyncConfig) -> Iterator[None]:
    """Turn Spark's failures into icecdc's.

    Raises:
        DuplicateIdentifierError: The merge found two different rows of one identifier.
        IdentifierColumnsError: A row's identifier is null.
        DiskFullError: Spark ran out of disk.
        ConfigError: ``row_filter`` fails for a row.
        DataReadError: Anything else, most often a data file that is missing or unreadable.
    """
    try:
        yield
    except IcecdcError:
        raise
    except (PySparkException, Py4JError) as error:
        raise _typed(error, config) from error


def _typed(error: PySparkException | Py4JError, config: SyncConfig) -> IcecdcError:
    text = root_cause(error)
    known = known_failure(text)
    if known is not None:
        return known
    named = re.search(r"duplicate identifier[^\n]*", text)
    if named:
        return DuplicateIdentifierError(
            f"Two different rows of '{config.table}' share one identifier: {named.group(0)}",
            subject="identifier_columns",
            value=list(config.identifier_columns),
            remedy="choose columns that are unique together, remove the duplicate rows, "
            "or set on_duplicate_identifier=last",
        )
    named = re.search(r"null identifier[^\n]*", text)
    if named:
        return IdentifierColumnsError(
            f"A row of '{config.table}' has no identifier: {named.group(0)}",
            subject="identifier_columns",
            value=list(config.identifier_columns),
            remedy="choose columns that are never null, or leave those rows out with row_filter",
        )
    reason = text.strip().splitlines()[0]
    failed = _EVALUATION.search(text) if config.row_filter else None
    if failed:
        return ConfigError(
            f"row_filter fails for a row of '{config.table}': {masked(failed.group(0))[:500]}",
            subject="row_filter",
            value=config.row_filter,
            remedy="write a condition that every row can answer, with try_cast, try_divide or coalesce for instance",
        )
    if is_refused_access(reason):
        return DataReadError(
            f"The store does not let the files of '{config.table}' be read: {masked(reason)[:500]}",
            subject="catalog_properties",
            remedy="check the store's credentials: those in catalog_properties (s3.access-key-id and "
            "s3.secret-access-key, ...), else those of the environment of driver and executors",
        )
    return DataReadError(
        f"Reading '{config.table}' failed: {reason[:500]}",
        subject="table",
        value=config.table,
        remedy="if a data file is missing or damaged, restore it or roll the table back; the position did not move",
    )


def known_failure(text: str) -> IcecdcError | None:
    """The typed error for what Spark says of a failure, whatever it was doing; None if that does not tell."""
    raised = re.search(r"icecdc_core\.errors\.(\w+): ([^\n]+)", text)
    if raised:
        # Raised on an executor; its text already names the value and the remedy.
        kind: type[IcecdcError] = getattr(errors, raised.group(1), IcecdcError)
        return kind(raised.group(2))
    if "No space left on device" in text:
        return DiskFullError(
            "Spark ran out of disk space for its shuffle or spill files",
            subject="spark.local.dir",
            remedy="free space, or point spark.local.dir (through spark_conf) to a larger disk",
        )
    return None


def root_cause(error: PySparkException | Py4JError) -> str:
    """The whole text, with the innermost Java cause first: Spark's outer message rarely says what happened."""
    text = str(error)
    if isinstance(error, Py4JJavaError):
        cause = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        return f"{cause.toString()}\n{text}"
    causes = re.findall(r"Caused by: ([^\n]+)", text)
    return f"{causes[-1]}\n{text}" if causes else text
