"""Java flags, Spark settings, a folder in memory and Hadoop's local files, so that tests are quick.

Most of a test's time is Java that starts and compiles.
"""

import atexit
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark
from py4j.java_gateway import JavaClass, JavaPackage, JVMView
from pyspark.sql import SparkSession

from icecdc_core.session.java import find_spark_java

# A test is over before Java's second compiler pays, and two cores have no use for a parallel garbage collector.
# With one compiler alone, Java has 48 MB for compiled code. Spark fills them; then Java compiles the same code again.
# The classes are those of releases, so nobody has to verify their bytecode. Most objects die young.
JAVA_OPTIONS = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:NewRatio=1 -XX:ReservedCodeCacheSize=240m"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
# Tables here have a few rows. Adaptive execution stays on: the package's plans depend on it.
SPARK_CONF = {
    "spark.sql.shuffle.partitions": "2",
    # Rows that come as Arrow are in tasks, as others are, not in the plan.
    "spark.sql.execution.arrow.localRelationThreshold": "0",
    # Tests repeat one another's plans; by default Spark forgets all but the last 100 that it compiled.
    "spark.sql.codegen.cache.maxEntries": "5000",
    "spark.ui.retainedJobs": "10",
    "spark.ui.retainedStages": "10",
    "spark.sql.ui.retainedExecutions": "1",
    # Spark describes each plan for its web pages, at length by default.
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.debug.maxToStringFields": "1",
    "spark.ui.liveUpdate.period": "-1",
    # For a few rows, buffers of megabytes, compression and checksums take more time than they save.
    "spark.buffer.pageSize": "1m",
    "spark.broadcast.blockSize": "256k",
    "spark.broadcast.compress": "false",
    "spark.broadcast.checksum": "false",
    "spark.shuffle.compress": "false",
    "spark.shuffle.spill.compress": "false",
    "spark.shuffle.checksum.enabled": "false",
}
# For a few rows, interpreting a plan is quicker than compiling Java for it, as Spark does by default.
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
if not os.environ.get("ICECDC_COMPILED_PLANS"):
    SPARK_CONF |= INTERPRETED
QUICK_DAEMON = {
    "spark.python.daemon.module": "tests.speed.quick_daemon",
    # Over TCP, each task of a Python worker waits some 40 ms for an acknowledgement.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.executorEnv.PYTHONPATH": str(Path(__file__).parents[2]),
}

QUICK_FILES = Path(__file__).with_name("QuickLocalFiles.java")
# Spark reads the bytecode of each function for a task and serializes it, to see that it can: a tenth of a run.
_UNCLEANED = """package org.apache.spark.util;
public final class SparkClosureCleaner$ {
    public static final SparkClosureCleaner$ MODULE$ = new SparkClosureCleaner$();
    public void clean(Object closure, boolean checkSerializable, boolean cleanTransitively) {}
    public boolean clean$default$2() { return true; }
    public boolean clean$default$3() { return true; }
}
"""
# What tests need of Hadoop's 1,300 defaults. Each scan sends all of them to its tasks, which is a tenth of Java's time.
_DEFAULTS = {
    "fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.LocalFs",
    "hadoop.tmp.dir": "${java.io.tmpdir}/hadoop-${user.name}",
    "fs.file.impl": QUICK_FILES.stem,
}

MEMORY = Path("/dev/shm")
ENOUGH = 6 * 1024**3
"""Bytes of room in memory; a run takes less than half of it."""


def remember_java_names() -> None:
    """Look up each Java name once in this process: Java searches 300 jars for it, a tenth of a run's CPU time."""
    for view in (JVMView, JavaPackage, JavaClass):

        def remembered(self: Any, name: str, look_up: Callable[..., Any] = view.__getattr__) -> Any:
            self.__dict__[name] = found = look_up(self, name)
            return found

        view.__getattr__ = remembered


def use_memory_for_files() -> None:
    """Put temporary files into memory, where there is room and TMPDIR is not set: services wait for a disk."""
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK) or shutil.disk_usage(MEMORY).free < ENOUGH:
        return
    folder = tempfile.mkdtemp(prefix="icecdc-tests-", dir=MEMORY)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    os.environ.setdefault("SPARK_LOCAL_DIRS", folder)


def use_quick_local_files() -> None:
    """Have Spark set the permissions of local files itself, as Hadoop's ``chmod`` is a third of a small ``INSERT``."""
    javac = find_spark_java() / "bin" / "javac"
    if "SPARK_CONF_DIR" in os.environ or not javac.exists():
        return
    folder = tempfile.mkdtemp(prefix="icecdc-spark-conf-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    classes = str(Path(pyspark.__file__).parent / "jars" / "*")
    uncleaned = Path(folder, "SparkClosureCleaner$.java")
    uncleaned.write_text(_UNCLEANED)
    subprocess.run([javac, "--release", "17", "-cp", classes, "-d", folder, QUICK_FILES, uncleaned], check=True)
    properties = [
        f"<property><name>{name}</name><value>{value}</value></property>" for name, value in _DEFAULTS.items()
    ]
    for name in ("core", "mapred", "yarn"):
        Path(folder, f"{name}-default.xml").write_text(f"<configuration>{''.join(properties)}</configuration>")
    os.environ["SPARK_CONF_DIR"] = folder


def small_spark() -> dict[str, str]:
    """Return the ``spark_conf`` of a small session in a process of its own."""
    size = {"spark.master": "local[1]", "spark.driver.memory": "512m", "spark.sql.shuffle.partitions": "1"}
    return {**SPARK_CONF, **size, **resolved_jars()}


def resolved_jars() -> dict[str, str]:
    """Return the settings with which another process has the jars of this one's session, if it has one."""
    session = SparkSession.getActiveSession()
    # Where spark-submit notes all the jars of the driver: those of `spark.jars` and those of the packages.
    jars = session.sparkContext.getConf().get("spark.repl.local.jars", "") if session else ""
    return {"spark.jars.packages": "", "spark.jars": jars} if "iceberg-spark-runtime" in (jars or "") else {}
