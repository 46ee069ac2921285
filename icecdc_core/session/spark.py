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
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from icecdc_core.errors import DependencyError, JavaNotFoundError
from icecdc_core.session.catalog import remember_catalog, with_catalog
from icecdc_core.session.catalog_settings import catalog_settings, secret_settings
from icecdc_core.session.compat import refuse_remote_mode, require_kafka, require_supported
from icecdc_core.session.java import find_spark_java
from icecdc_core.session.maven.jars import kafka_jars, one_process_at_a_time
from icecdc_core.session.maven.packages import (
    avro_package,
    iceberg_packages,
    kafka_connector,
    merge_packages,
    needed_bundles,
)

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
        given["spark.jars"] = ",".join([*own, *map(str, kafka_jars(kafka_connector(), find_spark_java()))])
    return {**defaults, **{key: value for each in catalogs.values() for key, value in each.items()}, **given}


def _needed_packages(config: ParameterModel, catalogs: Mapping[str, Mapping[str, str]]) -> list[str]:
    bundles = {
        bundle: None
        for name, of_catalog in catalogs.items()
        for bundle in needed_bundles(
            {key.removeprefix(f"spark.sql.catalog.{name}."): value for key, value in of_catalog.items()}
        )
    }
    return [*iceberg_packages(bundles=list(bundles)), *([avro_package()] if config.reads_kafka else [])]


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
