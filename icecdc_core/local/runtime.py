"""The version of OpenSearch and the Java to run it on."""

from __future__ import annotations

import os
from dataclasses import dataclass

from icecdc_core.errors import ConfigError
from icecdc_core.local.jars import opensearch_versions
from icecdc_core.session.java import JavaHome, find_java, find_spark_java


@dataclass(frozen=True)
class Runtime:
    """A Java and the version of the server that runs on it."""

    java: JavaHome
    version: str


def choose_runtime(version: str | None = None) -> Runtime:
    """Choose the given version and a Java for it; without one, the version that fits the Java of Spark."""
    wanted = version or os.environ.get("ICECDC_OPENSEARCH_VERSION", "")
    old, new = opensearch_versions()
    if not wanted:
        java = find_spark_java()
        return Runtime(java, new if java.version >= 21 else old)
    for known in (old, new):
        if f"{known}.".startswith(f"{wanted}."):
            # Without the locale data the creation of an index fails ("Thai segmentation").
            minimum = 17 if known == old else 21
            java = find_java(minimum, modules=["jdk.localedata"], purpose=f"OpenSearch {known}")
            return Runtime(java, known)
    raise ConfigError(
        "No such version of the embedded OpenSearch",
        subject="version",
        value=wanted,
        remedy=f"use one of {old}, {new}",
    )
