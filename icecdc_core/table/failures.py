"""Spark's failures as typed errors that name the real cause.

Only a missing or a damaged file is called that. A file that went with an expired snapshot is a gap in the history, and
what has nothing to do with the files (memory, a lost executor, an expression) is named as what it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

from icecdc_core import errors
from icecdc_core.errors import (
    DUPLICATE_MESSAGE,
    NULL_MESSAGE,
    ConfigError,
    DataReadError,
    DiskFullError,
    DuplicateIdentifierError,
    IcecdcError,
    IdentifierColumnsError,
    SparkJobError,
    TableNotFoundError,
    TableReplacedError,
)
from icecdc_core.secrets import mask_secrets
from icecdc_core.session.java_causes import Cause, causes, failure_message, root_cause
from icecdc_core.table.catalogs import is_refused_access
from icecdc_core.table.iceberg_table import IcebergTable
from icecdc_core.table.snapshots import history_gap_error

if TYPE_CHECKING:
    from icecdc_core.config import SyncConfig


# What a condition fails with: a data exception of SQL, its own raise_error, an error in a user's function, a format or
# a pattern. Of the jobs' own expressions only those of identifiers raise, with texts of their own.
_EVALUATION = re.compile(
    r"\[[A-Z_.]+\] [^\n]*SQLSTATE: (?:22\w{3}|P0001|39000)|\[INVALID_FORMAT[^\n]+|PatternSyntaxException: [^\n]+"
)
# The same in expressions of select: the value that a text shows may have several lines. 23505 is a key that a map has
# twice.
_SELECT_EVALUATION = re.compile(
    r"\[[A-Z_.]+\](?=(?s:.)*?SQLSTATE: (?:22\w{3}|23505|P0001|39000))|\[INVALID_FORMAT[\w.]*\]|PatternSyntaxException"
)
# What the jobs' own expressions raise. A value may have the same words, but not at the beginning of the text.
_IDENTIFIER = re.compile(rf"\[USER_RAISED_EXCEPTION\] ((?:{DUPLICATE_MESSAGE}: |{NULL_MESSAGE} in column )[^\n]*)")
# The name of a failure: an error class of Spark, or the class of an exception.
_NAME = re.compile(r"\[[A-Z_.\d]+\]|[\w.$]*(?:Error|Exception)\b")
# Spark has no classes for these: it says them in the text of an exception.
_LOST_EXECUTOR = re.compile(
    r"ExecutorLostFailure|FetchFailed|Executor heartbeat timed out|SparkContext was shut down|stopped SparkContext"
)
_LOST_PYTHON = re.compile(r"Python worker (exited|failed|process)")
_FILE_NAME = re.compile(r"/([\w.-]+\.(?:parquet|orc|avro|puffin|json))\b")
_HIDDEN = "(the text is not shown, as it may have a value that select masks)"
_STAYS = "the position did not move"


@contextmanager
def spark_errors(config: SyncConfig, table: IcebergTable | None = None) -> Iterator[None]:
    """Turn Spark's failures into icecdc's."""
    try:
        yield
    except IcecdcError:
        raise
    except (ConnectionError, Py4JNetworkError) as error:
        raise _java_ended_error(error, config) from error
    except (PySparkException, Py4JError) as error:
        try:
            typed = _typed_error(error, config, table)
        except (ConnectionError, Py4JNetworkError) as ended:  # the causes are asked of the Java process
            typed = _java_ended_error(ended, config)
        # Spark's text may show a value that select masks.
        raise typed from (None if config.select else error)


def _java_ended_error(error: Exception, config: SyncConfig) -> SparkJobError:
    return SparkJobError(
        f"Spark's Java process ended while it worked on '{config.table}' ({type(error).__name__})",
        subject="spark_conf",
        remedy="restart the kernel or the program; if it ends again, give it more memory (spark.driver.memory "
        f"through spark_conf); {_STAYS}",
    )


def _typed_error(error: PySparkException | Py4JError, config: SyncConfig, table: IcebergTable | None) -> IcecdcError:
    text = root_cause(error)
    chain = causes(error)
    # A file can be what everything else follows from, but nothing else makes a file disappear.
    missing = next((cause for cause in chain if cause.is_missing_file), None)
    network = next((cause for cause in chain if cause.is_network), None)
    reason = failure_message(text)
    if config.select and network is not None:
        reason = mask_secrets(f"{network.kind}: {network.text}")[:500]
    elif config.select:  # the text of any other failure may show a value that select masks
        named = _NAME.match(reason)
        reason = f"{named[0] if named else 'an error'} {_HIDDEN}"
    # The text of a failed expression has values of rows, which may read like any other failure.
    if missing is None and (
        known := _row_error(text, chain, config) or known_failure(text) or _spark_error(text, chain, reason)
    ):
        return known
    gone = _table_gone_error(table) if table is not None else None
    if gone is not None:
        return gone
    if missing is not None:
        return DataReadError(
            f"A file of '{config.table}' is missing: {_describe_file(missing, config)}",
            subject="table",
            value=config.table,
            remedy=f"restore the file or roll the table back; {_STAYS}",
        )
    if _is_refused(text, chain):
        return DataReadError(
            f"The store does not let the files of '{config.table}' be read: {reason}",
            subject="catalog_properties",
            remedy="check the store's credentials: those in catalog_properties (s3.access-key-id and "
            "s3.secret-access-key, ...), else those of the environment of driver and executors",
        )
    # Iceberg's readers report a broken connection too, so it rules out damage.
    damaged = None if network else next((cause for cause in chain if cause.is_damaged_file), None)
    if damaged is not None:
        return DataReadError(
            f"A file of '{config.table}' is damaged: {damaged.kind}: {_describe_file(damaged, config)}",
            subject="table",
            value=config.table,
            remedy=f"restore the file or roll the table back; {_STAYS}",
        )
    return SparkJobError(
        f"Spark failed while it worked on '{config.table}': {reason}",
        subject="table",
        value=config.table,
        remedy=f"Spark's log has the full error; {_STAYS}, so that the next run does the same work",
    )


def _row_error(text: str, chain: list[Cause], config: SyncConfig) -> IcecdcError | None:
    """The error if rows or the condition caused the failure."""
    raised = next((found[1] for cause in chain if (found := _IDENTIFIER.match(cause.text))), "")
    if raised.startswith(DUPLICATE_MESSAGE):
        return DuplicateIdentifierError(
            f"Two rows of '{config.table}' share one identifier: {raised}",
            subject="identifier_columns",
            value=list(config.identifier_columns),
            remedy="choose columns that are unique together, remove the duplicate rows, "
            "or set on_duplicate_identifier=last (for one run, if the duplicates have since been removed)",
        )
    if raised:
        return IdentifierColumnsError(
            f"A row of '{config.table}' has no identifier: {raised}",
            subject="identifier_columns",
            value=list(config.identifier_columns),
            remedy="choose columns that are never null, or leave those rows out with row_filter",
        )
    if config.select and (failed := _SELECT_EVALUATION.search(text)):
        return ConfigError(
            f"select or row_filter fails for a row of '{config.table}': {failed[0]} {_HIDDEN}",
            subject="select",
            value=list(config.select) if not callable(config.select) else "a function",
            remedy="write expressions that every row can answer, with try_cast, try_divide or coalesce for instance",
        )
    failed = _EVALUATION.search(text) if config.row_filter and not config.select else None
    if failed:
        return ConfigError(
            f"row_filter fails for a row of '{config.table}': {mask_secrets(failed.group(0))[:500]}",
            subject="row_filter",
            value=config.row_filter,
            remedy="write a condition that every row can answer, with try_cast, try_divide or coalesce for instance",
        )
    return None


def _describe_file(cause: Cause, config: SyncConfig) -> str:
    """What an exception says about a file; with ``select`` its name only: its path has values of partition columns."""
    if not config.select:
        return mask_secrets(cause.text)[:500]
    named = _FILE_NAME.search(cause.text)
    return f"{named[1] if named else 'a file'} {_HIDDEN}"


def _is_refused(text: str, chain: list[Cause]) -> bool:
    """Whether the store refuses to let a file be read; Spark's own folders are not the store."""
    if any(cause.is_refused_file for cause in chain):
        return True
    of_spark = bool(chain) and chain[-1].thrower.startswith("org.apache.spark.")
    return not of_spark and is_refused_access(text.strip().splitlines()[0])


def _table_gone_error(table: IcebergTable) -> IcecdcError | None:
    """Look at the table again: what was read and is no longer there explains every failure to read it."""
    try:
        now = IcebergTable(table.spark, table.name).metadata()
    except TableNotFoundError as error:
        return error
    except (IcecdcError, ConnectionError):
        return None
    if str(now.table_uuid) != table.table_uuid:
        return TableReplacedError(
            f"'{table.name}' was dropped and created again while it was read",
            subject="table_uuid",
            value=str(now.table_uuid),
            remedy="set on_history_gap=reexport, or run the export",
        )
    return next((gap for each in sorted(table.read_snapshots) if (gap := history_gap_error(now, each))), None)


def known_failure(text: str) -> IcecdcError | None:
    """Return the typed error of a failure that its text identifies, whatever Spark was doing; else None."""
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


def _spark_error(text: str, chain: list[Cause], reason: str) -> IcecdcError | None:
    """The error if memory, a process or a machine caused the failure."""
    if any(cause.kind.endswith("OutOfMemoryError") for cause in chain):
        return SparkJobError(
            f"Spark ran out of memory: {reason}",
            subject="spark_conf",
            remedy="give driver and executors more memory (spark.driver.memory, spark.executor.memory), "
            f"or fewer tasks at a time; {_STAYS}",
        )
    if _LOST_PYTHON.search(text):
        return SparkJobError(
            f"A Python worker of Spark died: {reason}",
            subject="spark_conf",
            remedy="look at the executor's log, most often it ran out of memory (spark.executor.memoryOverhead); "
            f"run again; {_STAYS}",
        )
    if _LOST_EXECUTOR.search(text):
        return SparkJobError(
            f"Spark lost an executor, or was stopped: {reason}",
            subject="spark_conf",
            remedy=f"look at the executors' logs for what ended them, most often memory; run again; {_STAYS}",
        )
    return None
