"""The versions of icecdc and of what it runs on."""

from __future__ import annotations

import platform

from pyspark.sql import SparkSession

from icecdc_core.dependencies import installed_version
from icecdc_core.session.jvm import iceberg_class, java_class


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
