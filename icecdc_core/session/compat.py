"""The gate: which sessions icecdc supports; everything else is one `DependencyError`, before any work.

icecdc reads Iceberg's files below Spark's public interface, so a session must be a classic one (its Python process
talks to the driver's JVM), and Spark and Iceberg must be of versions that are tested together.
"""

import platform
from typing import Any

from icecdc_core.dependencies import installed_version
from icecdc_core.errors import DependencyError

try:
    import pyspark
    from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError  # Spark Connect's client comes without it
except ModuleNotFoundError as error:
    missing = str(error.name).partition(".")[0]
    if missing not in ("pyspark", "py4j"):
        raise
    raise DependencyError(
        f"The package {missing} is not installed",
        subject="package",
        value=missing,
        remedy='pip install "icecdc[local]"; or install pyspark 4.0 or 4.1; on Databricks run this on a cluster',
    ) from error

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from icecdc_core.session.catalog import SPARK_CATALOG
from icecdc_core.session.jars import ICEBERG_RUNTIMES, SCALA_VERSION, iceberg_packages
from icecdc_core.session.jvm import iceberg_class, java_class

AVRO_READER = "org.apache.spark.sql.avro.AvroDataToCatalyst"
NO_JVM = (
    "a session without access to Spark's JVM (Spark Connect, Databricks Connect, Databricks serverless compute, or a "
    "cluster in standard access mode, formerly shared)"
)


def require_supported(spark: SparkSession) -> None:
    try:
        loader = java_class(spark, "java.lang.Thread").currentThread().getContextClassLoader()
        loader.loadClass("java.lang.Object")
        version = str(spark.version)
    except Py4JNetworkError:
        raise
    except (Py4JError, PySparkException, AttributeError, TypeError) as error:  # depends on Databricks' release
        raise unsupported_error(NO_JVM) from error
    iceberg = str(iceberg_class(spark, "IcebergBuild").version()) if has_class(loader, SPARK_CATALOG) else ""
    if found := unsupported_versions(version, iceberg):
        raise unsupported_error(found)


def unsupported_versions(spark: str, iceberg: str) -> str:
    line = _line(spark)
    if line not in ICEBERG_RUNTIMES:
        return f"Spark {spark}"
    if _line(iceberg) == _line(ICEBERG_RUNTIMES[line]):
        return ""
    return f"Spark {spark} with Iceberg {iceberg}" if iceberg else f"Spark {spark} without Iceberg"


def require_kafka(spark: SparkSession) -> None:
    loader = java_class(spark, "org.apache.spark.util.Utils").getContextOrSparkClassLoader()
    if not has_class(loader, "org.apache.spark.sql.kafka010.KafkaSourceProvider"):
        raise DependencyError(
            "The active Spark session has no Kafka connector",
            subject="spark.jars",
            value=spark.conf.get("spark.jars", ""),
            remedy=f"attach the library org.apache.spark:spark-sql-kafka-0-10_{SCALA_VERSION}:{spark.version} to the "
            "cluster; locally, restart the kernel or the program and call get_spark(IngestConfig(...)) first",
        )


def has_class(loader: Any, name: str) -> bool:
    try:
        loader.loadClass(name)
    except Py4JJavaError:
        return False
    return True


def unsupported_error(found: str) -> DependencyError:
    pairs = " or ".join(f"Spark {line} with Iceberg {_line(version)}" for line, version in ICEBERG_RUNTIMES.items())
    libraries = " or ".join(iceberg_packages(line)[0] for line in ICEBERG_RUNTIMES)
    return DependencyError(
        f"icecdc does not support this Spark session: found {found}; supported: a classic session of {pairs}",
        subject="spark",
        value=found,
        remedy="locally install a supported pyspark, unset SPARK_REMOTE, restart the kernel or the program and let "
        f"get_spark start the session; start a Spark of your own with --packages {libraries}; on Databricks run Python "
        "on the driver of a cluster with runtime 17.3 LTS (Spark 4.0) or 18 LTS (Spark 4.1), dedicated access mode and "
        "that library",
    )


def versions(spark: SparkSession) -> dict[str, str]:
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


if int(pyspark.__version__.partition(".")[0]) < 4:  # other modules of this package cannot be imported with it
    raise unsupported_error(f"Spark {pyspark.__version__}")
