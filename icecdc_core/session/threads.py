"""Threads that use Spark: the session of a thread, and a thread of its own for each of several runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from icecdc_core.session.jvm import java_class


@contextmanager
def active_session(spark: SparkSession) -> Iterator[None]:
    """Make the session the active one of this thread.

    Spark creates a catalog and parses expressions by the settings of the active session.
    """
    sessions = java_class(spark, "org.apache.spark.sql.classic.SparkSession")
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()
