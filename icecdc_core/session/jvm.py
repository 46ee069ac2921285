"""Spark's JVM: its classes, our own one, which is compiled in it, and the Java exceptions behind a failure of Spark."""

import itertools
import json
import re
import threading
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import resources
from typing import Any
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from icecdc_core.errors import IcecdcError
from icecdc_core.secrets import mask_secrets

SPARK_HAS_ENDED = (Py4JError, OSError)
"""What cleaning up raises once Spark's Java process is gone. It must not hide the error that ended it."""

_PART = 2500  # characters that fit into 8 KB, however many bytes each takes
_LONG = 1_000_000  # characters from which the parts take longer than the wait that they avoid

_compiled: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
_compiling = threading.Lock()
_numbers = itertools.count(1)


def java_class(spark: SparkSession, name: str) -> Any:
    """Return a class of Spark's JVM by its whole name: part by part, the JVM looks into all its jars for each."""
    return getattr(spark._jvm, name)


def java_ended(kind: type[IcecdcError], error: Exception | None = None) -> IcecdcError:
    return kind(
        f"Spark's Java process ended ({type(error).__name__})" if error else "Spark was stopped",
        subject="spark_conf",
        remedy="restart the kernel or the program; if it ends again, give it more memory "
        "(spark.driver.memory through spark_conf)",
    )


def has_ended(spark: SparkSession) -> bool:
    """Whether Spark's Java process has ended, or lives on without its context, which YARN for instance may stop."""
    try:
        return bool(spark._jsparkSession.sparkContext().isStopped())
    except SPARK_HAS_ENDED:
        return True


@contextmanager
def active_session(spark: SparkSession) -> Iterator[None]:
    """Make the session the active one of this thread: Spark creates catalogs and parses by its settings."""
    sessions = java_class(spark, "org.apache.spark.sql.classic.SparkSession")
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        with suppress(*SPARK_HAS_ENDED):  # an error on the way here says why
            if before.isDefined():
                sessions.setActiveSession(before.get())
            else:
                sessions.clearActiveSession()


@contextmanager
def persisted(frame: DataFrame) -> Iterator[DataFrame]:
    cached = frame.persist()
    try:
        yield cached
    finally:
        unpersist(cached)


def unpersist(frame: DataFrame) -> None:
    with suppress(*SPARK_HAS_ENDED):
        frame.unpersist()


def iceberg_class(spark: SparkSession, name: str) -> Any:
    return java_class(spark, f"org.apache.iceberg.{name}")


def java_helper(spark: SparkSession) -> Any:
    """Return an object of our Java class, whose source is beside this module; Spark brings the compiler."""
    gateway: Any = spark.sparkContext._gateway
    loader = java_class(spark, "java.lang.Thread").currentThread().getContextClassLoader()
    with _compiling:
        known = _compiled.get(gateway)
        # Classes of a session may come from elsewhere: a Databricks notebook with jars of its own.
        if known is None or not known.getClass().getClassLoader().getParent().equals(loader):
            # The gateway knows methods by the name of their class, so each class has one of its own.
            name = f"JavaHelper{next(_numbers)}"
            source = resources.files("icecdc_core.session").joinpath("JavaHelper.java").read_text(encoding="utf-8")
            compiler = java_class(spark, "org.codehaus.janino.SimpleCompiler")()
            compiler.setParentClassLoader(loader)
            compiler.cook(re.sub(r"\bJavaHelper\b", name, source))
            known = _compiled[gateway] = compiler.getClassLoader().loadClass(name).newInstance()
        return known


def fetch_text(answer: Any) -> str:
    """Return a text from ``java_helper``: a short one is a ``str``, a long one a Java object that is read in parts."""
    if isinstance(answer, str):
        return answer
    # The gateway sends more than 8 KB in two writes, and the second waits 40 ms for Python's delayed acknowledgement.
    length = int(answer.length())
    # A part that ends within a surrogate pair would lose the character.
    has_pairs = answer.codePointCount(0, length) < length
    part = length if has_pairs or length >= _LONG else _PART
    return "".join(answer.substring(start, min(start + part, length)) for start in range(0, length, part))


def struct_type(spark: SparkSession, java_type: Any) -> StructType:
    return StructType.fromJson(json.loads(fetch_text(java_helper(spark).json(java_type))))


def schema_of(frame: DataFrame) -> StructType:
    """Return the schema of a frame as `DataFrame.schema` does, which waits 40 ms for that of many columns."""
    return struct_type(frame.sparkSession, frame._jdf.schema())


RETRIED_COMMITS = frozenset({"CommitFailedException", "CommitStateUnknownException"})
COMMIT_CONFLICTS = RETRIED_COMMITS | {"ValidationException"}
"""What Iceberg raises if another writer committed in between, and for some failures that no retry helps."""

NETWORK = re.compile(
    "Socket.*Exception|(Http)?(Host)?Connect(Timeout)?Exception|UnknownHost|NoRouteToHost|NoHttpResponse|SSL.*Exception"
)
# Clients of object stores have one class for every answer; their texts have the store's code.
REFUSED = re.compile(
    r"NotAuthorized|Forbidden|AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|Unable to load credentials"
    r"|UnrecognizedClientException|MissingAuthenticationToken|ExpiredToken|InvalidClientTokenId"
    r"|Status Code: 40[13]\b|\bcode: 40[13]\b"
)
_JAVA = re.compile(r"(java|jdk|sun)\.|.*\.common\.base\.Preconditions$")
_FRAMES = 12
_TRACEBACK = "Traceback (most recent call last)"
_IN_A_TEXT = re.compile(r"^(?:Caused by: |.*: )?((?:\w+\.)+\w+)(?:: ([^\n]*))?((?:\n\s+at [^\n]+)+)", re.MULTILINE)


@dataclass(frozen=True)
class Cause:
    """One exception of a chain; Spark's own have an error condition and an SQLSTATE."""

    kind: str
    text: str
    thrower: str
    condition: str = ""
    state: str = ""


def is_raised_as(error: BaseException, kinds: Collection[str]) -> bool:
    """Return whether Java raised an exception of one of these classes; what it was caused by does not count."""
    return isinstance(error, Py4JJavaError) and str(error.java_exception.getClass().getSimpleName()) in kinds


def root_cause(error: PySparkException | Py4JError) -> str:
    """Return the whole text with the innermost Java cause first: Spark's outer message rarely names the cause."""
    text = str(error) or type(error).__name__
    found = re.findall(r"^(?:Caused by)?: ([^\n]+)", text, re.MULTILINE)
    return f"{found[-1]}\n{text}" if found else text


def causes(error: PySparkException | Py4JError) -> list[Cause]:
    """Return the exceptions behind a failure, outermost first; some are known only from the text of another one."""
    # For a failed Python worker, PySpark has it only in the context.
    each = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    each = each or getattr(error.__context__, "java_exception", None)
    if each is None:
        return _in_text(str(error))
    chain: list[Cause] = []
    while each is not None:
        kind, text = str(each.getClass().getSimpleName()), str(each.getMessage() or "")
        frames = each.getStackTrace()
        classes = (str(frames[number].getClassName()) for number in range(min(len(frames), _FRAMES)))
        try:
            condition = str(each.getCondition() or ""), str(each.getSqlState() or "")
        except Py4JNetworkError:
            raise
        except Py4JError:  # it is none of Spark's
            condition = "", ""
        chain.append(Cause(kind, text, _thrower(classes), *condition))
        each = each.getCause()
    # An executor's exception whose class the driver does not have is only in the text of Spark's exception.
    return chain + (_in_text(chain[-1].text) if chain[-1].kind == "SparkException" else [])


def _in_text(text: str) -> list[Cause]:
    found = []
    for name, message, frames in _IN_A_TEXT.findall(text):
        classes = re.findall(r"at (?:\S*/)?(\S+)\.[^.(]+\(", frames)
        found.append(Cause(name.rsplit(".", 1)[-1], message, _thrower(classes)))
    return found


def _thrower(classes: Iterable[str]) -> str:
    return next((name for name in classes if not _JAVA.match(name)), "")


def failure_message(text: str) -> str:
    """Return the message of a failure as one line; for an exception in Python the line after the traceback."""
    lines = text.strip().splitlines() or [text]
    if any(_TRACEBACK in line for line in lines[:2]):
        traceback = text[text.index(_TRACEBACK) :].splitlines()[1:]
        lines = [line for line in traceback if line and not line[0].isspace()] or lines
    return mask_secrets(lines[0])[:500]
