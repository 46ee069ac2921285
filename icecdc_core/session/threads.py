"""Threads that use Spark: the session of a thread, and a thread of its own for each of several runs."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

from pyspark import InheritableThread
from pyspark.sql import SparkSession

from icecdc_core.session.jvm import SPARK_HAS_ENDED, java_class
from icecdc_core.session.processes import Stopped, StopRequest

_LOOK_SECONDS = 0.1
_CANCEL_SECONDS = 10.0


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
def slot(free: threading.Semaphore, stop: StopRequest) -> Iterator[None]:
    """Run the block when a slot is free; raises ``Stopped`` if the run is asked to stop before."""
    while not free.acquire(timeout=_LOOK_SECONDS):
        if stop.requested:
            raise Stopped
    try:
        if stop.requested:
            raise Stopped
        yield
    finally:
        free.release()


def run_in_threads(spark: SparkSession, runs: Mapping[str, Callable[[], None]], stop: StopRequest) -> None:
    """Run each in a thread, and wait for all; an interrupt cancels Spark's jobs and asks the runs to stop."""
    threads = [InheritableThread(target=run, name=f"icecdc-{name}", daemon=True) for name, run in runs.items()]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except KeyboardInterrupt:
        stop.requested = True
        spark.sparkContext.cancelAllJobs()
        deadline = time.monotonic() + _CANCEL_SECONDS  # until then the runs release their locks
        for thread in threads:
            if thread.ident:  # an interrupt may come before all have started
                thread.join(max(0.0, deadline - time.monotonic()))
        raise
    finally:
        with suppress(*SPARK_HAS_ENDED):  # the reports say so
            # For PySpark the active session is the last one that made a frame, in whatever thread.
            spark.createDataFrame([], "none int")
