"""Backticks quote names, also in a session in which they quote regular expressions."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import ParamSpec, TypeVar

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

P = ParamSpec("P")
R = TypeVar("R")

_SETTING = "spark.sql.parser.quotedRegexColumnNames"
_lock = threading.Lock()
# By session: how many calls are inside, and whether the last of them restores the setting.
_inside: dict[int, tuple[int, bool]] = {}


@contextmanager
def literal_names(spark: SparkSession) -> Iterator[None]:
    """Let Spark take quoted names literally inside; calls may be nested, and run in several threads."""
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
                with suppress(Py4JError, OSError):  # Spark has ended, which must not hide why
                    spark.conf.set(_SETTING, "true")


def with_literal_names(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function run inside ``literal_names`` of the first session, or frame's session, among its arguments."""

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
