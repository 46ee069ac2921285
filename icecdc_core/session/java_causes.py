"""The Java exceptions behind a failure of Spark: what each is, what it says, and who threw it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from icecdc_core.secrets import masked

_MISSING = frozenset({"FileNotFoundException", "NoSuchFileException", "NotFoundException", "NoSuchKeyException"})
_OF_FILES = re.compile(r"org\.apache\.(hadoop|iceberg)\.|software\.amazon\.|com\.(azure|google)\.")
# What decodes files; each throws whatever Java has when the bytes make no sense, but not these.
_DECODERS = re.compile(
    r"org\.apache\.iceberg\.(shaded\.)?(org\.apache\.)?(parquet|orc|avro|puffin|deletes|arrow)\.|"
    r"org\.apache\.(parquet|orc|avro)\.(?!crypto\.)|com\.github\.luben\.zstd\.|org\.xerial\.snappy\.|io\.airlift\."
)
_NO_DAMAGE = re.compile(r"UnsupportedOperation|Interrupt|Crypto|Error$")
_BROKEN_OFF = frozenset({"EOFException", "ChecksumException"})
_JAVA = re.compile(r"(java|jdk|sun)\.|.*\.common\.base\.Preconditions$")
_FRAMES = 12
_TRACEBACK = "Traceback (most recent call last)"
_IN_A_TEXT = re.compile(r"^(?:Caused by: |.*: )?((?:\w+\.)+\w+)(?:: ([^\n]*))?((?:\n\s+at [^\n]+)+)", re.MULTILINE)


@dataclass(frozen=True)
class Cause:
    """One exception of a chain: its class, what it says, and the class that threw it, Java's own left out."""

    kind: str
    text: str
    thrower: str

    @property
    def is_missing_file(self) -> bool:
        """Whether a file is not there; Spark's own temporary files do not count."""
        return self.kind in _MISSING and _OF_FILES.match(self.thrower) is not None

    @property
    def is_damaged_file(self) -> bool:
        """Whether a file's content makes no sense."""
        if self.kind in _BROKEN_OFF and _OF_FILES.match(self.thrower):
            return True
        return _DECODERS.match(self.thrower) is not None and _NO_DAMAGE.search(self.kind) is None


def root_cause(error: PySparkException | Py4JError) -> str:
    """The whole text, with the innermost Java cause first: Spark's outer message rarely says what happened."""
    text = str(error)
    if isinstance(error, Py4JJavaError):
        cause = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        return f"{cause.toString()}\n{text}"
    found = re.findall(r"Caused by: ([^\n]+)", text)
    return f"{found[-1]}\n{text}" if found else text


def causes(error: PySparkException | Py4JError) -> list[Cause]:
    """The exceptions behind a failure, outermost first; those of Spark Connect are there as text only."""
    each = _java_exception(error)
    if each is None:
        return _in_text(str(error))
    chain: list[Cause] = []
    while each is not None:
        kind, text = str(each.getClass().getSimpleName()), str(each.getMessage() or "")
        frames = each.getStackTrace()
        throwers = (str(frames[number].getClassName()) for number in range(min(len(frames), _FRAMES)))
        chain.append(Cause(kind, text, next((name for name in throwers if not _JAVA.match(name)), "")))
        each = each.getCause()
    # An executor's exception that the driver could not load is in the text of Spark's own.
    return chain + (_in_text(chain[-1].text) if chain[-1].kind == "SparkException" else [])


def _java_exception(error: BaseException) -> Any:
    """Java's exception behind one of Python; PySpark hides that of a Python worker in the context."""
    if isinstance(error, Py4JJavaError):
        return error.java_exception
    origin = getattr(error, "_origin", None)
    return getattr(error.__context__, "java_exception", None) if origin is None else origin


def _in_text(text: str) -> list[Cause]:
    found = []
    for name, said, frames in _IN_A_TEXT.findall(text):
        throwers = (frame.strip().removeprefix("at ").split("(")[0] for frame in frames.strip().splitlines())
        throwers = (name.rsplit("/", 1)[-1].rsplit(".", 1)[0] for name in throwers)
        found.append(
            Cause(name.rsplit(".", 1)[-1], said, next((name for name in throwers if not _JAVA.match(name)), ""))
        )
    return found


def said(text: str) -> str:
    """What a failure says, in a line: of an exception in Python its last line, not that a traceback follows."""
    lines = text.strip().splitlines() or [text]
    if any(_TRACEBACK in line for line in lines[:2]):
        traceback = text[text.index(_TRACEBACK) :].splitlines()[1:]
        lines = [line for line in traceback if line and not line[0].isspace()] or lines
    return masked(lines[0])[:500]
