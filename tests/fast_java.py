"""Java flags and Spark settings that make tests quick; no rule of the package depends on them.

Most of a test's time is Java that starts and compiles. ``JAVA_OPTIONS`` reach every Java that a test starts, through
the environment: Spark, also in victims, notebooks and the command line, OpenSearch, Kafka and the catalogs' servers.
"""

from __future__ import annotations

import os

from pyspark.sql import SparkSession

# A test is over before Java's second compiler pays, and two cores have no use for a parallel garbage collector.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# Tables here have a few rows. Adaptive execution stays on: the package's plans depend on it.
SPARK_CONF = {
    "spark.sql.shuffle.partitions": "2",
    # Tests repeat one another's plans; by default Spark forgets all but the last 100 that it compiled.
    "spark.sql.codegen.cache.maxEntries": "5000",
    "spark.ui.retainedJobs": "10",
    "spark.ui.retainedStages": "10",
    "spark.sql.ui.retainedExecutions": "1",
}


def set_java_options() -> None:
    """Set the flags for every Java that this process starts; flags that somebody set are kept."""
    os.environ.setdefault("JDK_JAVA_OPTIONS", JAVA_OPTIONS)


def small_spark(cores: int = 1) -> dict[str, str]:
    """Return the ``spark_conf`` of a small session in a process of its own."""
    size = {"spark.master": f"local[{cores}]", "spark.driver.memory": "512m", "spark.sql.shuffle.partitions": "1"}
    return {**SPARK_CONF, **size, **resolved_jars()}


def resolved_jars() -> dict[str, str]:
    """Return the settings with which another process has the jars of this one's session, and looks up no packages.

    Empty when this process has no session, or one with jars from elsewhere: the other process then resolves its own.
    """
    session = SparkSession.getActiveSession()
    # Where spark-submit notes all the jars of the driver: those of `spark.jars` and those of the packages.
    jars = session.sparkContext.getConf().get("spark.repl.local.jars", "") if session else ""
    return {"spark.jars.packages": "", "spark.jars": jars} if "iceberg-spark-runtime" in (jars or "") else {}
