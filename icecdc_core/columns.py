"""Name and quote columns: the columns that a change row has beside the table's, and any column name, in Spark SQL."""

from __future__ import annotations

import functools
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import ParamSpec, TypeVar

from py4j.protocol import Py4JError
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, MapType, NullType, StructType, VariantType

from icecdc_core.errors import ColumnNotFoundError, IdentifierColumnsError
from icecdc_core.quoting import quoted as quoted

P = ParamSpec("P")
R = TypeVar("R")

_SETTING = "spark.sql.parser.quotedRegexColumnNames"
_lock = threading.Lock()
# By session: the number of running calls, and whether the last of them restores the setting.
_inside: dict[int, tuple[int, bool]] = {}

CHANGE_TYPE = "_change_type"
"""What happened to the row: ``INSERT`` or ``DELETE`` (an update is a DELETE and an INSERT)."""

CHANGE_ORDINAL = "_change_ordinal"
"""The step in which it happened, from 0, oldest first."""

COMMIT_SNAPSHOT_ID = "_commit_snapshot_id"
"""The snapshot the step ends with."""

ROW_POSITION = "_row_position"
"""Where the row is in its data file; only in frames of tables without identifier columns."""

RESERVED = (ROW_POSITION, CHANGE_TYPE, CHANGE_ORDINAL, COMMIT_SNAPSHOT_ID)

OWN_PREFIX = "_icecdc_"
"""Helper columns beside those of the table begin with it, so no column of the table may."""

NUMBER, ROWS = f"{OWN_PREFIX}row", f"{OWN_PREFIX}rows"
"""The number of a narrow row, see ``remove_narrow_carryovers``, and how many of them were compared."""

KIND, DELETED, UPSERTED = f"{OWN_PREFIX}kind", 1, 2
"""What a step did to an identifier."""

IS_DUPLICATE = f"{OWN_PREFIX}duplicate"
"""Whether two rows have an identifier."""

_IDENTIFIER_PREFIX = f"{OWN_PREFIX}id_"

JSON_OPTIONS = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "dateFormat": "yyyy-MM-dd",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""How Spark writes values as JSON, in documents and wherever values are compared as JSON."""

UNFIT_IDENTIFIERS: tuple[type[DataType], ...] = (
    FloatType,
    DoubleType,
    ArrayType,
    MapType,
    StructType,
    VariantType,
    NullType,
)
"""Types whose equal values may have different texts, so that they make no document id."""

INSERT = "INSERT"
DELETE = "DELETE"

IS_INSERT = f"{CHANGE_TYPE} = '{INSERT}'"
"""SQL text: whether a change row is an INSERT."""


def is_insert() -> Column:
    """Whether a change row is an INSERT."""
    return F.col(CHANGE_TYPE) == INSERT


def private_identifier(name: str) -> str:
    """Return the column in which an identifier column travels beside the fields of a projected document."""
    return f"{_IDENTIFIER_PREFIX}{name}"


def identifier_name(column: str) -> str:
    """Return the table's name of an identifier column, which may travel under a private name."""
    return column.removeprefix(_IDENTIFIER_PREFIX)


def is_document_column(name: str) -> bool:
    """Whether a column of a change row is a field of the document."""
    return name not in RESERVED and not name.startswith(_IDENTIFIER_PREFIX)


def unused_name(name: str, columns: Sequence[str]) -> str:
    """Return ``name``, with underscores appended until no column has it, in upper or lower case."""
    taken = {column.lower() for column in columns}
    while name.lower() in taken:
        name += "_"
    return name


def require_change_columns(changes: DataFrame) -> None:
    """Check that a frame says which step each row belongs to and what happened to it."""
    missing = [name for name in (CHANGE_TYPE, CHANGE_ORDINAL) if name not in changes.columns]
    if missing:
        raise ColumnNotFoundError(
            f"This DataFrame has no change rows: {missing} is missing, it has {changes.columns}",
            subject="changes",
            value=missing,
            remedy="pass the frame that read_changes returns, its change columns included",
        )


def resolve_identifiers(changes: DataFrame, identifier_columns: Sequence[str]) -> list[str]:
    """Find the identifier columns of a frame, spelled as the frame spells them.

    As everywhere in Spark, upper and lower case differ only if ``spark.sql.caseSensitive`` is on. A column that is
    spelled exactly as given takes precedence.
    """
    if isinstance(identifier_columns, str) or not all(isinstance(name, str) for name in identifier_columns or (None,)):
        raise _identifier_error("identifier columns are needed, as a list of column names", identifier_columns, changes)
    folded = {} if _case_sensitive(changes) else {name.lower(): name for name in reversed(changes.columns)}
    found = {name: name if name in changes.columns else folded.get(name.lower()) for name in identifier_columns}
    missing = [name for name, column in found.items() if column is None]
    if missing:
        raise _identifier_error("identifier columns are missing", missing, changes)
    names = [column for name in identifier_columns if (column := found[name]) is not None]
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise _identifier_error("identifier columns are given twice", twice, changes)
    reserved = [name for name in names if name in RESERVED]
    if reserved:
        raise _identifier_error("identifier columns must be the table's own", reserved, changes)
    unfit = [name for name in names if isinstance(_type_of(changes, name), _NESTED)]
    if unfit:
        raise _identifier_error("identifier columns must hold single values, not nested ones", unfit, changes)
    return names


_NESTED = (ArrayType, MapType, StructType, VariantType)


def _type_of(changes: DataFrame, name: str) -> DataType:
    return changes.schema[name].dataType


def _case_sensitive(changes: DataFrame) -> bool:
    return str(changes.sparkSession.conf.get("spark.sql.caseSensitive", "false")).lower() == "true"


def _identifier_error(message: str, value: object, changes: DataFrame) -> IdentifierColumnsError:
    own = [f"{f.name} {f.dataType.simpleString()}" for f in changes.schema if f.name not in RESERVED]
    return IdentifierColumnsError(
        f"{message}; the columns are {own}",
        subject="identifier_columns",
        value=value,
        remedy="name columns of the table that together identify a row",
    )


@contextmanager
def literal_names(spark: SparkSession) -> Iterator[None]:
    """Let Spark read quoted names literally inside, whatever ``spark.sql.parser.quotedRegexColumnNames`` says.

    Calls may be nested, and run in several threads. The last one to end restores the setting.
    """
    key = _key(spark)
    with _lock:
        calls, changed = _inside.get(key, (0, False))
        if str(spark.conf.get(_SETTING, "false")).lower() == "true":
            spark.conf.set(_SETTING, "false")
            changed = True
        _inside[key] = calls + 1, changed
    try:
        yield
    finally:
        with _lock:
            calls, changed = _inside.pop(key)
            if calls > 1:
                _inside[key] = calls - 1, changed
            elif changed:
                with suppress(Py4JError, OSError):  # Spark has ended; the error that ended it must not be hidden
                    spark.conf.set(_SETTING, "true")


def with_literal_names(function: Callable[P, R]) -> Callable[P, R]:
    """Run a function inside ``literal_names``, for the session of the first session or frame among its arguments."""

    @functools.wraps(function)
    def literal(*args: P.args, **kwargs: P.kwargs) -> R:
        session = next(filter(None, map(_session_of, (*args, *kwargs.values()))), None)
        if session is None:
            return function(*args, **kwargs)
        with literal_names(session):
            return function(*args, **kwargs)

    return literal


def _session_of(value: object) -> SparkSession | None:
    if isinstance(value, DataFrame):
        return value.sparkSession
    return value if isinstance(value, SparkSession) else None


def _key(spark: SparkSession) -> int:
    """Several Python objects may stand for one session of the JVM."""
    java = getattr(spark, "_jsparkSession", None)
    return id(spark) if java is None else int(java.hashCode())
