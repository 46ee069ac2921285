"""The session in which jobs work: tables and catalogs of the caller's session, SQL settings that nobody else chooses.

A document must not depend on what a session happens to have: its time zone, ANSI mode, legacy switches, temporary
functions, variables. So jobs have another session of the same Spark application. Of the caller's SQL settings it takes
over what says where tables are and how Spark executes; all others have Spark's own defaults, or the values below.
Engines that replace Spark's own are off, because each had wrong results of its own.
"""

import functools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from pyspark import InheritableThread
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from icecdc_core.errors import ConfigError, SparkJobError
from icecdc_core.session.compat import require_supported
from icecdc_core.session.jvm import SPARK_HAS_ENDED, active_session, has_ended, java_ended
from icecdc_core.session.processes import Stopped, StopRequest

_SQL = "spark.sql."
_TAKEN_OVER = tuple(
    f"{_SQL}{name}"
    for name in (
        *("artifact.", "catalog.", "iceberg.", "redaction.", "caseSensitive"),
        *("adaptive.", "autoBroadcastJoinThreshold", "codegen.", "execution.", "files."),
        *("inMemoryColumnarStorage.", "join.", "optimizer.", "shuffle.", "statistics.", "streaming.", "ui."),
    )
)
_COMET = "spark.comet.enabled"
_FIXED = {
    f"{_SQL}session.timeZone": "UTC",
    f"{_SQL}ansi.enabled": "true",
    # What takes long to broadcast takes as long again in the next run.
    f"{_SQL}broadcastTimeout": "30d",
    f"{_SQL}execution.arrow.maxBytesPerBatch": "16m",
    f"{_SQL}variable.substitute": "false",  # the text ${...} is no reference to the environment
    **dict.fromkeys((_COMET, "spark.gluten.enabled", "spark.rapids.sql.enabled"), "false"),
}


P = ParamSpec("P")
R = TypeVar("R")

_own: WeakSet[SparkSession] = WeakSet()
_by_caller: WeakKeyDictionary[SparkSession, tuple[dict[str, str], SparkSession]] = WeakKeyDictionary()
"""One for each caller, with what it took over: its catalogs are created once, and their connections kept."""


@contextmanager
def job_session(spark: SparkSession) -> Iterator[SparkSession]:
    """Yield the active session in which a job works for the caller's session; a session for jobs is its own."""
    try:
        require_supported(spark)
        if has_ended(spark):
            raise java_ended(SparkJobError)
        before = SparkSession._activeSession
        if spark in _own:
            own = spark
        else:
            settings = _taken_over(spark)
            if spark not in _by_caller or _by_caller[spark][0] != settings:
                _by_caller[spark] = settings, new_job_session(spark)
            own = _by_caller[spark][1]
    except SPARK_HAS_ENDED as error:
        if not has_ended(spark):
            raise
        raise java_ended(SparkJobError, error) from error
    try:
        with active_session(own):
            yield own
    finally:
        # For PySpark the last session that made a frame is the active one.
        SparkSession._activeSession = before if own is spark else spark


def with_job_session(function: Callable[Concatenate[SparkSession, P], R]) -> Callable[Concatenate[SparkSession, P], R]:
    @functools.wraps(function)
    def within(spark: SparkSession, *args: P.args, **kwargs: P.kwargs) -> R:
        with job_session(spark) as own:
            return function(own, *args, **kwargs)

    return within  # type: ignore[return-value]  # spark may be given by name, too


def _taken_over(spark: SparkSession) -> dict[str, str]:
    given = spark.conf.getAll.items()
    return {key: value for key, value in given if key.startswith(_TAKEN_OVER) or not key.startswith(_SQL)}


def new_job_session(spark: SparkSession) -> SparkSession:
    """Return another session for jobs, which nobody else uses: runs at the same time change SQL settings."""
    own = spark.newSession()
    present = own.conf.getAll
    wanted = {**_taken_over(spark), **_FIXED}
    for key in {*present, *wanted}:
        with suppress(PySparkException):  # a setting of the whole application
            if key not in wanted:
                own.conf.unset(key)
            elif present.get(key) != wanted[key]:
                own.conf.set(key, wanted[key])
    _own.add(own)
    return own


def require_accelerator(spark: SparkSession, accelerator: str) -> None:
    if accelerator and "CometPlugin" not in str(spark.conf.get("spark.plugins", "")):
        raise ConfigError(
            "Spark was started without the plugin of this engine",
            subject="accelerator",
            value=accelerator,
            remedy="leave accelerator out, or start Spark with the plugin (docs/databricks.md has its settings)",
        )


@contextmanager
def accelerated(spark: SparkSession, accelerator: str) -> Iterator[None]:
    """Let the engine of a plugin execute the block's jobs; none if it has no name."""
    if not accelerator:
        yield
        return
    spark.conf.set(_COMET, "true")
    try:
        yield
    finally:
        with suppress(*SPARK_HAS_ENDED):
            spark.conf.set(_COMET, "false")


@contextmanager
def slot(free: threading.Semaphore, stop: StopRequest) -> Iterator[None]:
    """Run the block when a slot is free; raises ``Stopped`` if the run is asked to stop before."""
    with free:
        if stop.requested:
            raise Stopped
        yield


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
        deadline = time.monotonic() + 10  # until then the runs release their locks
        for thread in threads:
            if thread.ident:  # an interrupt may come before all have started
                thread.join(max(0.0, deadline - time.monotonic()))
        raise
    finally:
        with suppress(*SPARK_HAS_ENDED):  # the reports say so
            # For PySpark the active session is the last one that made a frame, in whatever thread.
            spark.createDataFrame([], "none int")
