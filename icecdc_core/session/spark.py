"""The Spark session: the running one, or a local one with the Iceberg runtime that fits pyspark."""

# First, because it refuses a pyspark that is missing or too old.
from icecdc_core.session.compat import NO_JVM, require_kafka, require_supported, unsupported_error  # isort: split

import atexit
import logging
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, TypeVar

import psutil
import pyspark
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkConf, SparkContext, StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation, Row, SparkSession, functions as F
from pyspark.sql.utils import is_remote

from icecdc_core.columns import quoted
from icecdc_core.config.model import ParameterModel
from icecdc_core.errors import DependencyError, IcecdcError
from icecdc_core.logs import event
from icecdc_core.session.catalog import catalog_settings, register_catalog, secret_settings
from icecdc_core.session.jars import avro_package, cache_lock, iceberg_packages, kafka_jars, needed_bundles, spark_line
from icecdc_core.session.java import find_spark_java, jvm_output_to_file
from icecdc_core.session.jvm import SPARK_HAS_ENDED, java_ended, unpersist

R = TypeVar("R")
# Spark's own default, and the other names under which catalogs and stores keep secrets.
_REDACTED_BY_SPARK = "(?i)secret|password|passphrase|token|access[-_.]?key|api[-_.]?key|account[-_.]?key|credential"
ICEBERG_EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"


def get_spark(config: ParameterModel, *others: ParameterModel, verbose: bool = False) -> SparkSession:
    """Return a Spark session in which the catalog of ``config.table`` can be used.

    A running session is used (Databricks, `spark-submit`, a notebook). Without one, a local session is started with the
    Iceberg runtime that fits the installed pyspark. If the session has no catalog of that name, the catalog is
    registered. Parameters that do not describe the catalog accept that of the session.

    Args:
        config: The job's parameters; ``catalog_properties``, ``warehouse`` and ``spark_conf`` are used here.
        others: Parameters of jobs that run beside it: a new session gets their catalogs too, and shares its cores
            fairly.
        verbose: Show what the Java process of a new session prints. Otherwise it goes to a file, which the setting
            ``spark.icecdc.log`` names; it is removed at the end, unless an error ended the process. While Spark starts,
            the standard error of the whole process is that file.

    Returns:
        A session whose catalog ``config.catalog`` is an Iceberg catalog.

    Raises:
        DependencyError: The session is not a classic one of a supported Spark and Iceberg, see `compat`; or it has no
            Kafka connector, for an ingest.
        ConfigError: The session has another catalog of that name, and Spark never replaces one.
        JavaNotFoundError: No JVM that Spark supports was found.
        SecretError: A secret reference in ``catalog_properties`` cannot be resolved.
    """
    session = running = running_session()
    if session is None:
        if is_remote() or "SPARK_REMOTE" in os.environ:  # PySpark would start a session of Spark Connect
            raise unsupported_error(NO_JVM)
        # Executors write their part of a log on the standard error to the output of the JVM.
        shown = verbose or any(each.log_path == "-" for each in (config, *others))
        with nullcontext() if shown else jvm_output_to_file() as log:
            quiet = {} if verbose else {"spark.log.level": "ERROR"}  # among lines of the log
            session = _local_session([config, *others], quiet if log is None else {"spark.icecdc.log": str(log)})
    require_supported(session)
    if config.reads_kafka:  # a JVM that a stopped session left loads no more jars
        require_kafka(session)
    if running is not None:
        register_catalog(running, config)
    return session


def running_session() -> SparkSession | None:
    """Return the running session, or that of `spark-submit`; after an interrupted cell none is the active one."""
    try:
        active = SparkSession.getActiveSession()
        # spark-submit starts the JVM, with its own settings, before Python.
        if active is None and (SparkContext._active_spark_context or "PYSPARK_GATEWAY_PORT" in os.environ):
            return SparkSession.builder.getOrCreate()
        return active
    except (Py4JNetworkError, OSError) as error:
        raise java_ended(DependencyError, error) from error


@contextmanager
def settings_unless_set(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    ours = {name: value for name, value in settings.items() if spark.conf.get(name, None) is None}
    for name, value in ours.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        with suppress(*SPARK_HAS_ENDED):
            for name in ours:
                spark.conf.unset(name)


def _settings(configs: Sequence[ParameterModel], catalogs: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    config = configs[0]
    given = config.resolved_spark_conf()
    of_catalogs = {key: value for each in catalogs.values() for key, value in each.items()}
    packages = iceberg_packages(pyspark.__version__, needed_bundles(of_catalogs))
    packages += [avro_package(pyspark.__version__)] if config.reads_kafka else []
    if (others := given.pop("spark.jars.packages", None)) is not None:
        packages = [*packages, others] if others else []
    master = given.get("spark.master", "local[*]")
    loopback = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    # Tables that are not Iceberg's: Spark forgets them at exit.
    warehouse = tempfile.mkdtemp(prefix="icecdc-spark-warehouse-")
    atexit.register(shutil.rmtree, warehouse, ignore_errors=True)
    if config.reads_kafka:
        connector = kafka_jars(f"connector-{spark_line(pyspark.__version__)}")
        given["spark.jars"] = ",".join(filter(None, [given.get("spark.jars"), *map(str, connector)]))
        # For its errors, PySpark notes the line of each expression: half of the time to build those of a small table.
        # It asks once in a process.
        given.setdefault("spark.python.sql.dataFrameDebugging.enabled", "false")
    return {
        "spark.master": master,
        "spark.app.name": "icecdc",
        "spark.jars.packages": ",".join(packages),
        "spark.sql.extensions": ICEBERG_EXTENSIONS,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": warehouse,
        "spark.driver.memory": "2g",
        # Executors on other machines must reach the driver.
        **(loopback if master.startswith("local") else {}),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 2)),
        **({"spark.scheduler.mode": "FAIR"} if len(configs) > 1 else {}),
        **of_catalogs,
        **given,
    }


def _local_session(configs: Sequence[ParameterModel], about: Mapping[str, str]) -> SparkSession:
    java = os.environ["JAVA_HOME"] = str(find_spark_java())
    # Workers otherwise run `python3` of the PATH, which in a virtual environment is the wrong interpreter.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    settings = {**about, **_settings(configs, {each.catalog: catalog_settings(each) for each in reversed(configs)})}
    # No setting says where Spark's web pages listen. Without this variable they listen on every address.
    if address := settings.get("spark.driver.bindAddress"):
        os.environ.setdefault("SPARK_LOCAL_IP", address)
    secret = set().union(*(secret_settings(each, settings) for each in configs))
    # Spark's web pages and event log show all settings but those that this matches; Hadoop's under their own names too.
    names = sorted(re.escape(key.removeprefix("spark.hadoop.")) for key in secret)
    settings["spark.redaction.regex"] = "|".join([settings.get("spark.redaction.regex", _REDACTED_BY_SPARK), *names])
    try:
        # What is set before the JVM starts is on its command line, for all to see. Secrets reach it over its socket.
        conf = SparkConf().setAll([(key, value) for key, value in settings.items() if key not in secret])
        # Starting the JVM downloads packages, and two downloads at the same time corrupt the Ivy cache.
        with cache_lock("spark-packages") if settings["spark.jars.packages"] else nullcontext():
            _start_jvm(conf)
        return SparkSession.builder.config(map={**settings}).getOrCreate()
    except IcecdcError:
        raise
    except Exception as error:
        raise DependencyError(
            f"Spark did not start: {error}",
            subject="spark_conf",
            value=sorted(configs[0].spark_conf),
            remedy="see Spark's own output above; the usual cause is an unreachable package repository "
            f"(set spark.jars.ivySettings through spark_conf); JAVA_HOME was {java}, and SPARK_HOME "
            + os.environ.get("SPARK_HOME", "not set"),
        ) from error


def _start_jvm(conf: SparkConf) -> None:
    before = set(psutil.Process().children())
    # In another thread: Python loses an interrupt that it receives while it forks.
    with ThreadPoolExecutor(1) as thread:
        start = thread.submit(SparkContext._ensure_initialized, conf=conf)
        try:
            start.result()
        except KeyboardInterrupt:
            has_ended = False
            while not has_ended:
                has_ended = start.done()
                for child in set(psutil.Process().children()) - before:
                    with suppress(psutil.Error):
                        child.kill()  # it would run on and keep our output open
                time.sleep(0.01)
            SparkContext._gateway = SparkContext._jvm = None
            raise


# By default Spark's fast hash map is for partial aggregates and 2^16 groups only; with 2^20 groups a task is three
# times as fast. The map takes 8 MB a task, 16 MB for text keys, so this is for narrow rows.
tuned_for_many_groups = partial(
    settings_unless_set,
    settings={
        "spark.sql.codegen.aggregate.map.twolevel.partialOnly": "false",
        "spark.sql.codegen.aggregate.fastHashMap.capacityBit": "20",
    },
)

# Data files are several times as dense as rows in memory; a task sorts the rows in parts that fit.
_FILE_BYTES_OF_A_PARTITION = 32 * 1024 * 1024
_ROOM_FOR_FILE_BYTES = 8  # four times the bytes, in half of the memory


def shuffle_partitions_for(spark: SparkSession, file_bytes: int) -> AbstractContextManager[None]:
    # Adaptive execution merges small partitions, but never splits one that is too large for a task's memory.
    wanted = -(-file_bytes // _FILE_BYTES_OF_A_PARTITION)
    least = str(spark.conf.get("spark.sql.shuffle.partitions"))
    enough = not least.isdigit() or int(least) >= wanted  # a platform may choose by itself ("auto")
    name = "spark.sql.adaptive.coalescePartitions.initialPartitionNum"
    return settings_unless_set(spark, {} if enough else {name: str(wanted)})


def _rooms(spark: SparkSession) -> list[int]:
    """Bytes of memory for Spark's data: of the driver, in local mode the only one, and of each executor."""
    manager: Any = spark.sparkContext._jsc.sc().getExecutorMemoryStatus()
    entries, rooms = manager.valuesIterator(), []
    while entries.hasNext():
        rooms.append(int(entries.next()._1()))
    return rooms


def can_broadcast(spark: SparkSession, byte_count: int) -> bool:
    """Whether every task can get so many bytes of rows: the driver collects them, makes a hash table, and cuts it."""
    return byte_count * 8 < min(_rooms(spark))


def cached_bytes(frame: DataFrame) -> int:
    """Return how many bytes the rows of a cached frame take."""
    return int(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes())


def unless_broadcast_fails(spark: SparkSession, compute: Callable[[], R]) -> R:
    """Compute; if what every task gets takes too much memory or time, compute once more by shuffles."""
    try:
        return compute()
    except (PySparkException, Py4JError) as error:
        if not re.search("(?i)broadcast|maxResultSize|Futures timed out", str(error)):
            raise
        event("a broadcast failed; rows are shuffled instead", logging.WARNING)
    shuffled = {"spark.sql.optimizer.disableHints": "true", "spark.sql.autoBroadcastJoinThreshold": "-1"}
    with settings_unless_set(spark, shuffled):
        return compute()


def fits_in_memory(spark: SparkSession, file_bytes: int) -> bool:
    """Whether the rows of files, which are denser than rows in memory, fit into Spark's cache."""
    rooms = _rooms(spark)
    return file_bytes * _ROOM_FOR_FILE_BYTES < sum(rooms) * max(1, len(rooms) - 1) / len(rooms)


@contextmanager
def storage_level_for(spark: SparkSession, file_bytes: int) -> Iterator[StorageLevel]:
    fits = fits_in_memory(spark, file_bytes)
    # Writing to disk holds the last hundred batches, which could fill the heap of a small executor.
    with settings_unless_set(spark, {} if fits else {"spark.sql.inMemoryColumnarStorage.batchSize": "256"}):
        yield StorageLevel.MEMORY_AND_DISK if fits else StorageLevel.DISK_ONLY


def cached_and_counted(frame: DataFrame, level: StorageLevel, *totals: str, **conditions: str) -> tuple[DataFrame, Row]:
    """Cache a frame; with it, totals, and by the name of each condition how many rows fulfil it."""
    counts = [f"count_if({condition}) AS {quoted(name)}" for name, condition in conditions.items()]
    cached = frame.persist(level)
    try:
        return cached, collect_at_once(cached.selectExpr(*counts, *totals))[0]
    except BaseException:
        unpersist(cached)
        raise


def collect_at_once(frame: DataFrame) -> list[Row]:
    """Collect rows without adaptive execution, which would take three jobs instead of one."""
    # Planned here, so that no other thread of the session goes without it while the rows are computed.
    with settings_unless_set(frame.sparkSession, {"spark.sql.adaptive.enabled": "false"}):
        frame._jdf.queryExecution().executedPlan()
    return frame.collect()


REPORT_SECONDS = 5.0  # Spark reports right after the action; some releases never report what was dropped


def observed(observation: Observation) -> dict[str, Any] | None:
    """Return what an action observed; None if Spark dropped the stage, which it does if no result depends on it."""
    # `Observation.get` waits forever when nothing is reported.
    jvm_observation: Any = observation._jo
    deadline = time.monotonic() + REPORT_SECONDS
    while not jvm_observation.future().isCompleted():
        if time.monotonic() > deadline:
            return None
        time.sleep(0.005)
    # It fails for an empty row, which Spark 4.1 reports; Spark 4.0 has no method that shows the row before.
    with suppress(Py4JError, PySparkException):
        return dict(observation.get)
    return None


class RowCount:
    """The number of rows of a frame, observed by the first action that reads ``rows``; else a job counts them."""

    def __init__(self, frame: DataFrame, condition: Column | None = None) -> None:
        self._counted = frame if condition is None else frame.where(condition)
        self._observation = Observation()
        counted = F.count_if(F.lit(True) if condition is None else condition)
        self.rows = frame.observe(self._observation, counted.alias("rows"))

    def value(self) -> int:
        """Return the number of rows; an action must have read ``rows`` before."""
        # Adaptive execution drops a stage whose result it does not need, and the observation with it.
        found = observed(self._observation)
        return self._counted.count() if found is None else int(found["rows"])
