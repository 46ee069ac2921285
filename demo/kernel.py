"""One Jupyter kernel for all notebooks, in the Spark of the demo: as notebooks of a cluster share its Spark."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def kernel_in(spark: SparkSession) -> Iterator[Any]:
    """Run a kernel for the block, whose session is this one."""
    from jupyter_client.manager import KernelManager

    gateway: Any = spark.sparkContext._gateway
    parameters = gateway.gateway_parameters
    # PySpark's own variables, with which spark-submit too says where its JVM is.
    jvm = {"PYSPARK_GATEWAY_PORT": str(parameters.port), "PYSPARK_GATEWAY_SECRET": parameters.auth_token}
    kernel = KernelManager(kernel_name="python3", client_class="jupyter_client.asynchronous.AsyncKernelClient")
    attach = "--InteractiveShellApp.exec_lines=import demo.kernel; demo.kernel.attach()"
    # Every kernel warns that loopback is not encrypted, as in any Jupyter.
    kernel.start_kernel(env={**os.environ, **jvm}, extra_arguments=["--log-level=ERROR", attach])
    try:
        yield kernel
    finally:
        kernel.shutdown_kernel(now=True)


def attach() -> None:
    """Make the session of the JVM that the environment names the one of this process."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
    java = gateway.jvm.org.apache.spark
    running = java.api.java.JavaSparkContext(java.SparkContext.getOrCreate())
    context = SparkContext(gateway=gateway, jsc=running, conf=SparkConf(_jconf=running.getConf()))
    SparkSession(context)
