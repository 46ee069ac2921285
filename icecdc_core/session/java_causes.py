"""The Java exceptions behind a failure of Spark: the class, the message and the thrower of each."""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException

from icecdc_core.secrets import mask_secrets

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
        methods = (frame.strip().removeprefix("at ").split("(")[0] for frame in frames.strip().splitlines())
        classes = (method.rsplit("/", 1)[-1].rsplit(".", 1)[0] for method in methods)
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
