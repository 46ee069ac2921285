"""The Spark session: the running one, or a local one with the Iceberg runtime that fits pyspark."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pyspark
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkConf, SparkContext, StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from icecdc_core.errors import DependencyError, JavaNotFoundError
from icecdc_core.session.catalog import catalog_settings, remember_catalog, secret_settings, with_catalog
from icecdc_core.session.compat import refuse_remote_mode, require_kafka, require_supported
from icecdc_core.session.jars import (
    avro_package,
    iceberg_packages,
    kafka_connector,
    kafka_jars,
    merge_packages,
    needed_bundles,
    one_process_at_a_time,
)
from icecdc_core.session.java import find_spark_java

if TYPE_CHECKING:
    from icecdc_core.config.model import ParameterModel


# Spark's own default, and the other names under which catalogs and stores keep secrets.
_REDACTED_BY_SPARK = "(?i)secret|password|passphrase|token|access[-_.]?key|api[-_.]?key|account[-_.]?key|credential"
ICEBERG_EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"


def get_spark(config: ParameterModel, *others: ParameterModel) -> SparkSession:
    """Return a Spark session in which the catalog of ``config.table`` can be used.

    A running session is used (Databricks, a notebook, a test run). Without one, a local session is started with the
    Iceberg runtime that fits the installed pyspark. If the session has no catalog of that name, the catalog is
    registered. If it has another one than the parameters describe, another session of the same Spark application is
    returned, because Spark never replaces a catalog that it has created. Parameters that do not describe the catalog
    accept that of the session.

    Args:
        config: The job's parameters; ``catalog_properties``, ``warehouse`` and ``spark_conf`` are used here.
        others: Parameters of jobs that run beside it: a new session gets their catalogs too, and shares its cores
            fairly.

    Returns:
        A session whose catalog ``config.catalog`` is an Iceberg catalog.

    Raises:
        DependencyError: The session is not a classic one of a supported Spark and Iceberg, see `compat`; or it has no
            Kafka connector, for an ingest.
        JavaNotFoundError: No JVM that Spark supports was found.
        SecretError: A secret reference in ``catalog_properties`` cannot be resolved.
    """
    running = running_session()
    if running is None:
        refuse_remote_mode()
        started = _local_session([config, *others])
        require_supported(started)
        return started
    require_supported(running)
    if config.reads_kafka:
        require_kafka(running)
    return with_catalog(running, config)


def running_session() -> SparkSession | None:
    """Return the running session: the active one, else the default one of the Spark application; None without one.

    After an interrupted cell, and in another thread, no session is active although Spark runs.
    """
    try:
        active = SparkSession.getActiveSession()
        if active is None and SparkContext._active_spark_context is not None:
            return SparkSession.builder.getOrCreate()
        return active
    except (Py4JNetworkError, OSError) as error:
        raise DependencyError(
            f"The Spark session's Java process has ended ({type(error).__name__})",
            subject="spark_conf",
            remedy="restart the kernel or the program; if it ends again, give it more memory "
            "(spark.driver.memory through spark_conf)",
        ) from error


@contextmanager
def settings_unless_set(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Set Spark settings for the block, except those that are set already."""
    ours = {name: value for name, value in settings.items() if spark.conf.get(name, None) is None}
    for name, value in ours.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        with suppress(Py4JError, OSError):  # Spark has ended; the error that ended it must not be hidden
            for name in ours:
                spark.conf.unset(name)


def _set_environment() -> None:
    """Name the Java and the Python that Spark runs."""
    if "JAVA_HOME" not in os.environ or not _is_spark_java(os.environ["JAVA_HOME"]):
        os.environ["JAVA_HOME"] = str(find_spark_java().path)
    # Workers otherwise run `python3` of the PATH, which in a virtual environment is the wrong interpreter.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def _settings(configs: Sequence[ParameterModel], catalogs: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """The settings of a new session: our defaults, then those of the catalogs, then those of `spark_conf`."""
    config = configs[0]
    given = config.resolved_spark_conf()
    packages = merge_packages(_needed_packages(config, catalogs), given.pop("spark.jars.packages", None))
    defaults = {
        "spark.master": "local[*]",
        "spark.app.name": "icecdc",
        "spark.jars.packages": packages,
        "spark.sql.extensions": ICEBERG_EXTENSIONS,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": _temporary_warehouse(),
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 2)),
        **({"spark.scheduler.mode": "FAIR"} if len(configs) > 1 else {}),
    }
    if config.reads_kafka:
        own = [given["spark.jars"]] if given.get("spark.jars") else []
        given["spark.jars"] = ",".join(
            [*own, *map(str, kafka_jars(kafka_connector(pyspark.__version__), find_spark_java()))]
        )
    return {**defaults, **{key: value for each in catalogs.values() for key, value in each.items()}, **given}


def _needed_packages(config: ParameterModel, catalogs: Mapping[str, Mapping[str, str]]) -> list[str]:
    bundles = {
        bundle: None
        for name, of_catalog in catalogs.items()
        for bundle in needed_bundles(
            {key.removeprefix(f"spark.sql.catalog.{name}."): value for key, value in of_catalog.items()}
        )
    }
    return [
        *iceberg_packages(pyspark.__version__, list(bundles)),
        *([avro_package(pyspark.__version__)] if config.reads_kafka else []),
    ]


def _redaction(settings: Mapping[str, str], secret: Collection[str]) -> str:
    """The expression that matches the names of secret settings.

    Spark's web pages and event log show all settings except those whose name matches.
    """
    shown = settings.get("spark.redaction.regex", _REDACTED_BY_SPARK)
    # Hadoop's settings are also shown under their own names.
    names = sorted(key.removeprefix("spark.hadoop.") for key in secret)
    return "|".join([shown, *map(re.escape, names)])


def _local_session(configs: Sequence[ParameterModel]) -> SparkSession:
    config, catalogs = configs[0], {each.catalog: catalog_settings(each) for each in reversed(configs)}
    _set_environment()
    settings = _settings(configs, catalogs)
    # No setting says where Spark's web pages listen. Without this variable they listen on every address.
    os.environ.setdefault("SPARK_LOCAL_IP", settings["spark.driver.bindAddress"])
    secret = set().union(*(secret_settings(each, settings) for each in configs))
    settings["spark.redaction.regex"] = _redaction(settings, secret)
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        # Settings that are known when the JVM starts are on its command line, which every user of the machine can see.
        # Secrets reach the JVM later, over its socket.
        conf = SparkConf().setAll([(key, value) for key, value in settings.items() if key not in secret])
        _start_jvm(conf)
        session = builder.getOrCreate()
    except Exception as error:
        raise DependencyError(
            f"Spark did not start: {error}",
            subject="spark_conf",
            value=sorted(config.spark_conf),
            remedy="see Spark's own output above; the usual causes are an unreachable package repository "
            "(set spark.jars.ivySettings through spark_conf) and a Java version outside 17 to 22 (set JAVA_HOME)",
        ) from error
    for each in {each.catalog: each for each in reversed(configs)}.values():
        remember_catalog(session, each, catalogs[each.catalog])
    return session


def _start_jvm(conf: SparkConf) -> None:
    """Start the JVM if there is none; an interrupt ends it again.

    PySpark starts it in another thread: an interrupt that Python receives while it forks is lost, or the id of the new
    process is.
    """
    if SparkContext._gateway is not None:
        return
    known = {child.pid for child in psutil.Process().children()}
    # Starting the JVM downloads packages, and two downloads at the same time corrupt the Ivy cache.
    with one_process_at_a_time("spark-packages"), ThreadPoolExecutor(1) as thread:
        start = thread.submit(SparkContext._ensure_initialized, conf=conf)
        try:
            start.result()
        except KeyboardInterrupt:
            # Nobody could reach a JVM that PySpark no longer waits for: it would run on and keep our output open.
            while not start.done():
                _end_jvm(known)
                time.sleep(0.01)
            # It may have started before it ended.
            _end_jvm(known)
            SparkContext._gateway = SparkContext._jvm = None
            raise


def _end_jvm(known: set[int]) -> None:
    """End the JVM of PySpark that is a child process of this one."""
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if child.pid not in known and "pyspark-shell" in child.cmdline():
                child.kill()


def _temporary_warehouse() -> str:
    """A private folder for tables that are not Iceberg's; it is removed at exit, because Spark forgets these tables."""
    folder = tempfile.mkdtemp(prefix="icecdc-spark-warehouse-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _is_spark_java(home: str) -> bool:
    try:
        return str(find_spark_java().path) == str(Path(home).resolve())
    except JavaNotFoundError:
        return False


# Spark generates a fast hash map for aggregates whose keys are of fixed width or text; further groups go to a general
# one. By default the fast map is for partial aggregates and 2^16 groups only, too few when almost every row has its own
# identifier: with 2^20 groups a task is three times as fast. Beside the pages from Spark's memory manager the map takes
# 8 MB a task, 16 MB for text keys, so this is for narrow rows only.
_SETTINGS = {
    "spark.sql.codegen.aggregate.map.twolevel.partialOnly": "false",
    "spark.sql.codegen.aggregate.fastHashMap.capacityBit": "20",
}

# Data files are several times as dense as rows in memory; a task sorts the rows in parts that fit.
_FILE_BYTES_OF_A_PARTITION = 32 * 1024 * 1024
_MEMORY_OF_FILE_BYTES = 4
_SHARE_OF_MEMORY = 0.5
_ROWS_OF_A_BATCH_ON_DISK = 256


def tuned_for_many_groups(spark: SparkSession) -> AbstractContextManager[None]:
    """Make aggregations with very many groups fast in the block; settings that are set already stay."""
    return settings_unless_set(spark, _SETTINGS)


def shuffle_partitions_for(spark: SparkSession, file_bytes: int) -> AbstractContextManager[None]:
    """Make shuffles in the block start with as many partitions as the rows of such files need.

    Adaptive execution merges small partitions, but never splits one that is too large for a task's memory.
    ``spark.sql.shuffle.partitions`` is the minimum; a setting that is set already stays.
    """
    wanted = -(-file_bytes // _FILE_BYTES_OF_A_PARTITION)
    least = str(spark.conf.get("spark.sql.shuffle.partitions"))
    enough = not least.isdigit() or int(least) >= wanted  # a platform may choose by itself ("auto")
    name = "spark.sql.adaptive.coalescePartitions.initialPartitionNum"
    return settings_unless_set(spark, {} if enough else {name: str(wanted)})


@contextmanager
def storage_level_for(spark: SparkSession, file_bytes: int) -> Iterator[StorageLevel]:
    """Yield the storage level for the rows of such files: memory and disk, or disk alone if they may not fit.

    Spark checks only at every 16th batch of rows, of up to 4 MB a column, whether the memory suffices, and writing to
    disk holds the last hundred batches. Both can fill the heap of a small executor, so rows on disk are cached in small
    batches.
    """
    manager: Any = spark.sparkContext._jsc.sc().getExecutorMemoryStatus()
    entries, rooms = manager.valuesIterator(), []
    while entries.hasNext():
        rooms.append(int(entries.next()._1()))
    # The driver is one of the entries, in local mode the only one.
    room = sum(rooms) * max(1, len(rooms) - 1) / len(rooms)
    if file_bytes * _MEMORY_OF_FILE_BYTES < room * _SHARE_OF_MEMORY:
        yield StorageLevel.MEMORY_AND_DISK
        return
    with settings_unless_set(spark, {"spark.sql.inMemoryColumnarStorage.batchSize": str(_ROWS_OF_A_BATCH_ON_DISK)}):
        yield StorageLevel.DISK_ONLY


# Spark reports an observation right after the action; some releases never report one that was dropped.
REPORT_SECONDS = 5.0
_PAUSE_SECONDS = 0.005


class RowCount:
    """The number of rows of a frame, observed by the first action that reads ``rows``.

    Adaptive execution drops a stage whose result it does not need, for instance one side of a join when the other is
    empty, and the observation of that stage with it. Spark then reports nothing, or an empty row. Only in that case
    does a separate job count the rows.
    """

    def __init__(self, frame: DataFrame, condition: Column | None = None) -> None:
        self._counted = frame if condition is None else frame.where(condition)
        self._observation = Observation()
        counted = F.count_if(F.lit(True) if condition is None else condition)
        self.rows = frame.observe(self._observation, counted.alias("rows"))

    def value(self) -> int:
        """Return the number of rows; an action must have read ``rows`` before."""
        if self._is_reported():
            # It fails for an empty row, which Spark 4.1 reports; Spark 4.0 has no method that shows the row before.
            with suppress(Py4JError, PySparkException):
                return int(self._observation.get["rows"])
        return self._counted.count()

    def _is_reported(self) -> bool:
        # `Observation.get` waits forever when nothing is reported.
        observation: Any = self._observation._jo
        deadline = time.monotonic() + REPORT_SECONDS
        while not observation.future().isCompleted():
            if time.monotonic() > deadline:
                return False
            time.sleep(_PAUSE_SECONDS)
        return True
