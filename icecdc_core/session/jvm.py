"""Classes of the session's JVM, and our own one, which is compiled in it."""

import itertools
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import resources
from typing import Any
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

from icecdc_core.errors import IcecdcError

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


def java_ended(kind: type[IcecdcError], error: Exception) -> IcecdcError:
    return kind(
        f"Spark's Java process ended ({type(error).__name__})",
        subject="spark_conf",
        remedy="restart the kernel or the program; if it ends again, give it more memory "
        "(spark.driver.memory through spark_conf)",
    )


def has_ended(spark: SparkSession) -> bool:
    try:
        java_class(spark, "java.lang.System").nanoTime()
    except SPARK_HAS_ENDED:
        return True
    return False


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
