"""Spark's failures as typed errors that quote the cause; a file is blamed only if it cannot be read."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

from icecdc_core import errors
from icecdc_core.config import SyncConfig
from icecdc_core.secrets import mask_secrets
from icecdc_core.session.jvm import NETWORK, REFUSED, Cause, causes, failure_message, java_ended, root_cause
from icecdc_core.table.iceberg_table import IcebergTable
from icecdc_core.table.schema import duplicate_error, null_error
from icecdc_core.table.snapshots import history_gap_error

# What the jobs' own expressions raise. A value may have the same words, but not at the beginning of the text.
_RAISED = re.compile(
    rf"\[USER_RAISED_EXCEPTION\] ((?:{errors.DUPLICATE_MESSAGE}:|{errors.NULL_MESSAGE} in column"
    rf"|{errors.SEVERAL_MESSAGE}|{errors.NO_VECTOR_MESSAGE}) [^\n]*?)( SQLSTATE: \w+)?(\n|$)"
)
# SQLSTATEs beside 22xxx: a key that a map has twice, `raise_error`, an error in a function, a text of another format.
_EVALUATION = frozenset({"23505", "P0001", "39000", "42601"})
# Each matches the first class on the stack that is not Java's, and the class of the exception.
_BLAMES_FILE = re.compile(
    r"(org\.apache\.(hadoop|iceberg)|software\.amazon|com\.(azure|google))\.\S+ "
    r"((FileNotFound|NoSuchFile|NotFound|NoSuchKey|AccessDenied|AccessControl)Exception)$"
    r"|org\.apache\.(hadoop\.fs|iceberg)\.\S+ (EOF|Checksum)Exception$"
    # For damaged bytes, decoders throw exceptions of any class except these.
    r"|(?!.*(UnsupportedOperation|Interrupt|[Cc]rypto))\S+\.(parquet|orc|avro|puffin|deletes|arrow|zstd|snappy|airlift)\."
)
# Iceberg wraps every failure of a file system in these, whatever happened.
_WRAPPERS = frozenset({"RuntimeIOException", "UncheckedIOException", "NotFoundException"})
_FILE_NAME = re.compile(r"/([\w.-]+\.(?:parquet|orc|avro|puffin|json))\b")
_HIDDEN = "(the text is not shown, as it may have a value that select masks)"
_WRONG_PYTHON = re.compile(
    r"^(pyspark\S*)?(ModuleNotFoundError: No module named|\S*\[?(PYTHON_VERSION_MISMATCH|PACKAGE_NOT_INSTALLED)\b)"
    r"|java\.io\.IOException: Cannot run program",
    re.MULTILINE,
)
_STAYS = "the position did not move"


@contextmanager
def spark_errors(config: SyncConfig, *tables: IcebergTable) -> Iterator[None]:
    try:
        yield
    except (ConnectionError, Py4JNetworkError) as error:
        raise java_ended(errors.SparkJobError, error) from error
    except (PySparkException, Py4JError) as error:
        try:
            typed = _typed_error(error, config, tables)
        except (ConnectionError, Py4JNetworkError) as ended:  # the causes are asked of the Java process
            typed = java_ended(errors.SparkJobError, ended)
        # Spark's text may show a value that select masks.
        raise typed from (None if config.select or config.nest else error)


def _typed_error(
    error: PySparkException | Py4JError, config: SyncConfig, tables: Sequence[IcebergTable]
) -> errors.IcecdcError:
    text, chain = root_cause(error), causes(error)
    where = f"'{config.table}'" + (" or a table nested in it" if config.nest else "")
    # The text of a failed expression has values of rows, which may read like any other failure.
    known = _raised_error(chain, config) or _expression_error(chain, config) or known_failure(text)
    known = known or next(filter(None, map(_table_gone_error, tables)), None)
    if known is not None:
        return known
    is_secret = bool(config.select or config.nest)
    file = blamed_file(chain)
    # Spark's own folders are not the store.
    of_spark = bool(chain) and chain[-1].thrower.startswith("org.apache.spark.")
    if file is not None or (not of_spark and REFUSED.search(text.strip().partition("\n")[0])):
        said = failure_message(text) if file is None else mask_secrets(f"{file.kind}: {file.text}")[:500]
        if is_secret:  # the path of a file has values of partition columns
            named = _FILE_NAME.search(said)
            said = f"{named[1] if named else 'a file'} {_HIDDEN}"
        return errors.DataReadError(
            f"A file of {where} cannot be read: {said}",
            subject="table",
            value=config.table,
            remedy=f"restore the file or roll its table back, or check the store's credentials; {_STAYS}",
        )
    reason = f"{chain[-1].kind if chain else 'an error'} {_HIDDEN}" if is_secret else failure_message(text)
    if any(cause.kind == "ValidationException" for cause in chain):
        return errors.DataReadError(
            f"Iceberg refuses to read {where}: {reason}",
            subject="table",
            value=config.table,
            remedy=f"Spark cannot read the table either; roll it back to a snapshot that can be read; {_STAYS}",
        )
    return errors.SparkJobError(
        f"Spark failed while it worked on '{config.table}': {reason}",
        subject="table",
        value=config.table,
        remedy=f"Spark's log has the full error; {_STAYS}. If memory ran out or a Python worker died, raise it by "
        "spark_conf (spark.driver.memory, spark.executor.memory, spark.executor.memoryOverhead)",
    )


def _raised_error(chain: Sequence[Cause], config: SyncConfig) -> errors.IcecdcError | None:
    raised = next((found[1] for cause in chain if (found := _RAISED.match(cause.text))), "")
    if not raised:
        return None
    if raised.startswith(errors.NO_VECTOR_MESSAGE):
        return errors.EmbeddingError(
            f"There is {raised}",
            subject="embed",
            remedy="run the export, which asks the model; a validation with repair does not",
        )
    if raised.startswith(errors.DUPLICATE_MESSAGE):
        identifier, _ = json.JSONDecoder().raw_decode(raised, raised.index("{"))
        if None not in identifier.values():  # a part of it that is null is what to correct first
            return duplicate_error(config.table, config.identifier_columns, raised)
    if raised.startswith((errors.DUPLICATE_MESSAGE, errors.NULL_MESSAGE)):
        return null_error(config.table, config.identifier_columns, raised)
    return errors.SeveralMatchesError(
        f"There are {raised}",
        subject="nest",
        remedy="nest them as an array, or narrow the rows down with row_filter or a further equality in on",
    )


def _is_of_a_row(cause: Cause) -> bool:
    # A wrong format or pattern has an SQLSTATE of wrong syntax, or none.
    is_format = cause.condition.startswith("INVALID_FORMAT") or cause.kind == "PatternSyntaxException"
    return is_format or cause.state.startswith("22") or cause.state in _EVALUATION


def _expression_error(chain: Sequence[Cause], config: SyncConfig) -> errors.ConfigError | None:
    """The error if an expression of the user failed for a row: no other expression of the jobs can."""
    failed = next(filter(_is_of_a_row, chain), None)
    given = [name for name in ("select", "nest", "row_filter", "embed") if getattr(config, name)]
    if failed is None or not given:
        return None
    is_secret, kind = config.select or config.nest, failed.condition or failed.kind
    said = f"{kind} {_HIDDEN}" if is_secret else failure_message(failed.text)
    return errors.ConfigError(
        f"{' or '.join(given)} fails for a row of '{config.table}': {said}",
        subject=given[0],
        value=getattr(config, given[0]),
        remedy="write expressions that every row can answer, with try_cast, try_divide or coalesce for instance",
    )


def blamed_file(chain: Sequence[Cause]) -> Cause | None:
    for cause in chain:
        # Iceberg's readers report a broken connection, and a lack of memory or of file handles, too.
        if NETWORK.match(cause.kind) or cause.kind.endswith("Error") or cause.text.endswith("(Too many open files)"):
            return None
    reasons = (cause for cause in chain if cause is chain[-1] or cause.kind not in _WRAPPERS)
    return next((cause for cause in reasons if _BLAMES_FILE.match(f"{cause.thrower} {cause.kind}")), None)


def _table_gone_error(table: IcebergTable) -> errors.IcecdcError | None:
    """Look at the table again: what was read and is no longer there explains every failure to read it."""
    try:
        now = IcebergTable(table.spark, table.name).metadata()
    except errors.TableNotFoundError as error:
        return error
    except (errors.IcecdcError, ConnectionError):
        return None
    if now.table_uuid != table.table_uuid:
        return errors.TableReplacedError(
            f"'{table.name}' was dropped and created again while it was read",
            subject="table_uuid",
            value=now.table_uuid,
            remedy="set on_history_gap=reexport, or run the export",
        )
    return next((gap for each in sorted(table.read_snapshots) if (gap := history_gap_error(now, each))), None)


def known_failure(text: str) -> errors.IcecdcError | None:
    raised = re.search(r"icecdc_core\.errors\.(\w+): ([^\n]+)", text)
    if raised:
        # Raised on an executor; its text already names the value and the remedy.
        kind: type[errors.IcecdcError] = getattr(errors, raised.group(1), errors.IcecdcError)
        return kind(raised.group(2))
    if _WRONG_PYTHON.search(text):
        return errors.DependencyError(
            f"The Python of Spark's executors cannot run icecdc: {failure_message(text)}",
            subject="spark.pyspark.python",
            remedy="install the driver's versions of Python, icecdc and pyarrow on every node (on Databricks as "
            "libraries of the cluster) and let PYSPARK_PYTHON name that Python, then restart the kernel or the program",
        )
    if "No space left on device" in text:
        return errors.DiskFullError(
            "Spark ran out of disk space for its shuffle or spill files",
            subject="spark.local.dir",
            remedy="free space, or point spark.local.dir (through spark_conf) to a larger disk",
        )
    return None
