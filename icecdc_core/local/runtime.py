"""Which OpenSearch runs on which Java."""

from __future__ import annotations

import os
from dataclasses import dataclass

from icecdc_core.errors import ConfigError
from icecdc_core.local.jars import opensearch_versions
from icecdc_core.session.java import JavaHome, find_java, find_spark_java


@dataclass(frozen=True)
class Runtime:
    """What the server runs on: a Java, and the server's version that fits it."""

    java: JavaHome
    version: str


def choose_runtime(version: str | None = None) -> Runtime:
    """The version asked for on a Java that fits it; without one, what fits the Java of Spark.

    Args:
        version: "2.19.1.0", "3.8.0.0" or the beginning of one; default: the environment variable
            ICECDC_OPENSEARCH_VERSION.

    Raises:
        ConfigError: There is no such version.
        JavaNotFoundError: No Java fits.
    """
    wanted = version or os.environ.get("ICECDC_OPENSEARCH_VERSION", "")
    old, new = opensearch_versions()
    if not wanted:
        java = find_spark_java()
        return Runtime(java, new if java.version >= 21 else old)
    for known in (old, new):
        if f"{known}.".startswith(f"{wanted}."):
            # Without the locale data the first index creation fails: no "Thai segmentation".
            minimum = 17 if known == old else 21
            java = find_java(minimum, modules=["jdk.localedata"], purpose=f"OpenSearch {known}")
            return Runtime(java, known)
    raise ConfigError(
        "No such version of the embedded OpenSearch",
        subject="version",
        value=wanted,
        remedy=f"use one of {old}, {new}",
    )
