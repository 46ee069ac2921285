"""The gate: which sessions icecdc supports, and every private class of Spark and Iceberg that it uses.

icecdc reads Iceberg's files below Spark's public interface, so a session must be a classic one (its Python process
talks to the driver's JVM), and Spark and Iceberg must be of versions that are tested together. Everything else is
refused with one `DependencyError`, before any work.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from weakref import WeakSet

from icecdc_core.dependencies import required
from icecdc_core.errors import DependencyError

with required("pyspark", "local", "or install pyspark 4.0 or 4.1; on Databricks run this on a cluster"):
    import pyspark

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from icecdc_core.session.jars import ICEBERG_RUNTIMES, iceberg_packages, kafka_package
from icecdc_core.session.jvm import iceberg_class, java_class

SPARK_CATALOG = "org.apache.iceberg.spark.SparkCatalog"
KAFKA_SOURCE = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
AVRO_READER = "org.apache.spark.sql.avro.AvroDataToCatalyst"
_SPARK = "org.apache.spark"
_ICEBERG = "org.apache.iceberg"

PRIVATE_CLASSES: Mapping[str, tuple[str, ...]] = {
    f"{_SPARK}.sql.MergeIntoWriter": ("merge",),
    f"{_SPARK}.sql.catalyst.parser.ParserInterface": ("parseMultipartIdentifier",),
    f"{_SPARK}.sql.catalyst.plans.logical.LogicalPlan": (
        *("canonicalized", "deterministic", "fastEquals", "nodeName", "toJSON"),
    ),
    f"{_SPARK}.sql.catalyst.plans.logical.Project": ("child", "projectList"),
    f"{_SPARK}.sql.classic.SparkSession": (
        *("getActiveSession", "setActiveSession", "clearActiveSession"),
        "sessionState",
    ),
    f"{_SPARK}.sql.classic.Dataset": ("queryExecution",),
    f"{_SPARK}.sql.classic.ExpressionUtils": ("column",),
    f"{_SPARK}.sql.connector.catalog.CatalogManager": ("catalog",),
    f"{_SPARK}.sql.execution.QueryExecution": ("analyzed",),
    f"{_SPARK}.sql.internal.SessionState": ("catalogManager", "sqlParser"),
    f"{_SPARK}.sql.types.DataType": ("fromJson",),
    f"{_SPARK}.sql.util.CaseInsensitiveStringMap": ("empty",),
    f"{_SPARK}.util.Utils": ("getContextOrSparkClassLoader",),
    f"{_ICEBERG}.BaseFileScanTask": (),
    f"{_ICEBERG}.BaseTable": ("operations",),
    f"{_ICEBERG}.HasTableOperations": ("operations",),
    f"{_ICEBERG}.IcebergBuild": ("version",),
    f"{_ICEBERG}.ManifestFiles": ("readDeleteManifest",),
    f"{_ICEBERG}.ManifestReader": (),
    f"{_ICEBERG}.SnapshotChanges": (
        *("builderFor", "addedDataFiles", "removedDataFiles", "addedDeleteFiles", "removedDeleteFiles"),
    ),
    f"{_ICEBERG}.SnapshotChanges$Builder": ("snapshot", "build"),
    f"{_ICEBERG}.StaticTableOperations": (),
    f"{_ICEBERG}.TableMetadata": ("buildFrom", "formatVersion", "metadataFileLocation", "snapshots"),
    f"{_ICEBERG}.TableMetadata$Builder": ("setBranchSnapshot", "build"),
    f"{_ICEBERG}.TableMetadataParser": ("toJson", "read"),
    f"{_ICEBERG}.TableOperations": ("current", "commit"),
    f"{_ICEBERG}.spark.CommitMetadata": ("withCommitProperties",),
    f"{_ICEBERG}.spark.ScanTaskSetManager": ("get", "stageTasks", "removeTasks"),
    f"{_ICEBERG}.spark.Spark3Util": ("loadIcebergTable", "loadIcebergCatalog"),
    f"{_ICEBERG}.spark.SparkReadConf": ("adaptiveSplitSizeEnabled", "parallelism", "splitSize", "splitOpenFileCost"),
    f"{_ICEBERG}.spark.SparkSchemaUtil": ("convert",),
    f"{_ICEBERG}.spark.SparkTableCache": ("get", "add", "remove"),
    f"{_ICEBERG}.spark.actions.SparkActions": ("get", "rewriteDataFiles"),
    f"{_ICEBERG}.types.Conversions": ("fromByteBuffer",),
    f"{_ICEBERG}.util.ContentFileUtil": ("referencedDataFileLocation", "isDV"),
    f"{_ICEBERG}.util.TableScanUtil": ("adjustSplitSize",),
}
"""Every class of Spark and Iceberg that is used though it is no public interface, with the methods that are called.

Public interfaces (`Table`, `Schema`, `PartitionSpec`, ...) keep their methods from release to release and are not
listed. Tests check that these classes and methods are there, and that no other ones are used.
"""

PRIVATE_ATTRIBUTES = (
    *("SparkSession._jvm", "SparkSession._jsparkSession", "SparkContext._gateway", "SparkContext._jsc"),
    *("DataFrame._jdf", "DataFrameReader._jreader", "MergeIntoWriter._jwriter", "Observation._jo"),
    *("SparkContext._active_spark_context", "SparkContext._ensure_initialized", "CapturedException._origin"),
)
"""The private attributes of PySpark that are used."""

_OLDEST_MAJOR = 4

_supported: WeakSet[Any] = WeakSet()
"""The JVMs whose session was checked and is supported."""


class SessionInfo(NamedTuple):
    """A session as far as it matters here."""

    kind: str
    spark: str = ""
    iceberg: str = ""
    missing: tuple[str, ...] = ()


def unsupported_reason(found: SessionInfo) -> str:
    """Say why a session is not supported; pure."""
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
    if found.missing:
        return f"Spark {found.spark} with Iceberg {found.iceberg} without {', '.join(found.missing)}"
    return ""


def require_supported(spark: SparkSession) -> None:
    """Refuse a session that icecdc cannot work in; a JVM that passed is not checked again."""
    if _jvm_of(spark) in _supported:
        return
    found = inspect_session(spark)
    problem = unsupported_reason(found)
    if problem:
        raise _unsupported_error(problem, found)
    _supported.add(_jvm_of(spark))


def require_pyspark(version: str) -> None:
    """Refuse an older pyspark, with which other modules of this package cannot be imported."""
    if int(version.partition(".")[0]) < _OLDEST_MAJOR:
        found = SessionInfo("classic", version)
        raise _unsupported_error(unsupported_reason(found), found)


def refuse_remote_mode() -> None:
    """Refuse to start a session where PySpark would start one of Spark Connect."""
    if is_remote():
        found = SessionInfo("connect")
        raise _unsupported_error(unsupported_reason(found), found)


def inspect_session(spark: SparkSession) -> SessionInfo:
    """Look at a session: its kind, its versions, and the private classes that it lacks."""
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
    missing = tuple(name for name in PRIVATE_CLASSES if not _has(loader, name))
    return SessionInfo("classic", version, str(iceberg_class(spark, "IcebergBuild").version()), missing)


def require_kafka(spark: SparkSession) -> None:
    """Refuse a session without Spark's Kafka connector."""
    if not _has(java_class(spark, "org.apache.spark.util.Utils").getContextOrSparkClassLoader(), KAFKA_SOURCE):
        raise DependencyError(
            "The active Spark session has no Kafka connector",
            subject="spark.jars",
            value=spark.conf.get("spark.jars", ""),
            remedy=f"attach the library {kafka_package(spark.version)} to the cluster; locally, stop this session and "
            "let get_spark(IngestConfig(...)) start the one that serves ingest and sync",
        )


def _jvm_of(spark: SparkSession) -> Any:
    """Return the session's view of its JVM; None if Python has none."""
    try:
        return spark._jvm if isinstance(spark, SparkSession) else None
    except (Py4JError, PySparkException, AttributeError, TypeError):
        return None


def _has(loader: Any, name: str) -> bool:
    try:
        loader.loadClass(name)
    except Py4JJavaError:
        return False
    return True


def _unsupported_error(problem: str, found: SessionInfo) -> DependencyError:
    pairs = " or ".join(f"Spark {line} with Iceberg {_line(version)}" for line, version in ICEBERG_RUNTIMES.items())
    remedy = "use a classic session: run Python on the driver, on Databricks a cluster with dedicated access mode"
    if found.kind == "classic":
        remedy = "install a supported pyspark; on Databricks use runtime 17.3 LTS (Spark 4.0) or 18 LTS (Spark 4.1)"
        if _line(found.spark) in ICEBERG_RUNTIMES:
            library = iceberg_packages(found.spark)[0]
            remedy = f"attach the library {library} to the cluster, or stop the session and let get_spark start one"
    return DependencyError(
        f"icecdc does not support this Spark session: found {problem}; supported: a classic session of {pairs}",
        subject="spark",
        value=found.spark or found.kind,
        remedy=remedy,
    )


def _line(version: str) -> str:
    return ".".join(version.split(".")[:2])


require_pyspark(pyspark.__version__)
