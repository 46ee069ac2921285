"""The gate: which sessions icecdc supports; everything else is one `DependencyError`, before any work.

icecdc reads Iceberg's files below Spark's public interface, so a session must be a classic one (its Python process
talks to the driver's JVM), and Spark and Iceberg must be of versions that are tested together.
"""

from __future__ import annotations

import platform
from typing import Any, NamedTuple
from weakref import WeakSet

from icecdc_core.dependencies import installed_version, required
from icecdc_core.errors import DependencyError

with required("pyspark", "local", "or install pyspark 4.0 or 4.1; on Databricks run this on a cluster"):
    import pyspark

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from icecdc_core.session.jars import ICEBERG_RUNTIMES, SCALA_VERSION, iceberg_packages
from icecdc_core.session.jvm import iceberg_class, java_class

SPARK_CATALOG = "org.apache.iceberg.spark.SparkCatalog"
KAFKA_SOURCE = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
AVRO_READER = "org.apache.spark.sql.avro.AvroDataToCatalyst"
_supported: WeakSet[SparkSession] = WeakSet()


class SessionInfo(NamedTuple):
    """A session as far as it matters here."""

    kind: str
    spark: str = ""
    iceberg: str = ""


def unsupported_reason(found: SessionInfo) -> str:
    """Say why a session is not supported; empty if it is."""
    if found.kind == "connect":
        return "a Spark Connect session (Spark Connect, Databricks Connect or Databricks serverless compute)"
    if found.kind == "blocked":
        return "a cluster that blocks access to Spark's JVM (on Databricks: standard access mode, formerly shared)"
    line = _line(found.spark)
    if line not in ICEBERG_RUNTIMES:
        return f"Spark {found.spark}"
    if not found.iceberg:
        return f"Spark {found.spark} without Iceberg"
    if _line(found.iceberg) != _line(ICEBERG_RUNTIMES[line]):
        return f"Spark {found.spark} with Iceberg {found.iceberg}"
    return ""


def require_supported(spark: SparkSession) -> None:
    """Refuse a session that icecdc cannot work in; one that passed is not checked again."""
    if spark in _supported:
        return
    found = inspect_session(spark)
    if unsupported_reason(found):
        raise _unsupported_error(found)
    _supported.add(spark)


def require_pyspark(version: str) -> None:
    """Refuse an older pyspark, with which other modules of this package cannot be imported."""
    if int(version.partition(".")[0]) < 4:
        raise _unsupported_error(SessionInfo("classic", version))


def refuse_remote_mode() -> None:
    """Refuse to start a session where PySpark would start one of Spark Connect."""
    if is_remote():
        raise _unsupported_error(SessionInfo("connect"))


def inspect_session(spark: SparkSession) -> SessionInfo:
    """Look at a session: its kind and its versions."""
    if not isinstance(spark, SparkSession) or ".connect." in type(spark).__module__:
        return SessionInfo("connect")
    try:
        version = str(spark.version)
        loader = java_class(spark, "java.lang.Thread").currentThread().getContextClassLoader()
        loader.loadClass("java.lang.Object")
    except Py4JNetworkError:
        raise
    except (Py4JError, PySparkException, AttributeError, TypeError):  # what Databricks raises depends on the release
        return SessionInfo("blocked")
    if not _has(loader, SPARK_CATALOG):
        return SessionInfo("classic", version)
    return SessionInfo("classic", version, str(iceberg_class(spark, "IcebergBuild").version()))


def require_kafka(spark: SparkSession) -> None:
    """Refuse a session without Spark's Kafka connector."""
    if not _has(java_class(spark, "org.apache.spark.util.Utils").getContextOrSparkClassLoader(), KAFKA_SOURCE):
        raise DependencyError(
            "The active Spark session has no Kafka connector",
            subject="spark.jars",
            value=spark.conf.get("spark.jars", ""),
            remedy=f"attach the library org.apache.spark:spark-sql-kafka-0-10_{SCALA_VERSION}:{spark.version} to the "
            "cluster; locally, stop this session and let get_spark(IngestConfig(...)) start one for ingest and sync",
        )


def _has(loader: Any, name: str) -> bool:
    try:
        loader.loadClass(name)
    except Py4JJavaError:
        return False
    return True


def _unsupported_error(found: SessionInfo) -> DependencyError:
    pairs = " or ".join(f"Spark {line} with Iceberg {_line(version)}" for line, version in ICEBERG_RUNTIMES.items())
    remedy = "use a classic session: run Python on the driver, on Databricks a cluster with dedicated access mode"
    if found.kind == "classic":
        remedy = "install a supported pyspark; on Databricks use runtime 17.3 LTS (Spark 4.0) or 18 LTS (Spark 4.1)"
        if _line(found.spark) in ICEBERG_RUNTIMES:
            library = iceberg_packages(found.spark)[0]
            remedy = f"attach the library {library} to the cluster, or stop the session and let get_spark start one"
    return DependencyError(
        f"icecdc does not support this Spark session: found {unsupported_reason(found)}; "
        f"supported: a classic session of {pairs}",
        subject="spark",
        value=found.spark or found.kind,
        remedy=remedy,
    )


def versions(spark: SparkSession) -> dict[str, str]:
    """Return the versions of icecdc, Python, Java, Spark, Iceberg and the OpenSearch client by their names."""
    return {
        "icecdc": installed_version("icecdc"),
        "Python": platform.python_version(),
        "Java": str(java_class(spark, "java.lang.System").getProperty("java.version")),
        "Spark": spark.version,
        "Iceberg": str(iceberg_class(spark, "IcebergBuild").version()),
        "opensearch-py": installed_version("opensearch-py"),
    }


def _line(version: str) -> str:
    return ".".join(version.split(".")[:2])


require_pyspark(pyspark.__version__)
