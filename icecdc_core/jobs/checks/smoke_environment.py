"""What a smoke test says about its environment: versions, access mode, catalog, and what Spark has loaded."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import ParseException, PySparkException

from icecdc_core.columns import quoted
from icecdc_core.opensearch.client import typed_errors
from icecdc_core.runs.run import connect
from icecdc_core.session.compat import inspect_session
from icecdc_core.session.jvm import iceberg_class, java_class
from icecdc_core.session.versions import versions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from icecdc_core.config import SyncConfig

_UNKNOWN = "unknown"


def describe_environment(spark: SparkSession, config: SyncConfig) -> dict[str, str]:
    """Return what was found, without secrets; ``unknown`` for what this environment does not say."""
    runtime = os.environ.get("DATABRICKS_RUNTIME_VERSION", "")
    return {
        "Databricks runtime": runtime or "none",
        **_or_unknown(lambda: versions(spark)),
        "Iceberg's jar": _known(lambda: _jar(spark, "org.apache.iceberg.IcebergBuild")),
        "session": inspect_session(spark).kind,
        "access mode": _known(lambda: access_mode(spark.conf.get, runtime)),
        "catalog": config.catalog,
        "catalog type": config.catalog_properties.get("type", _UNKNOWN if config.catalog_properties else "of session"),
        "catalog class": _known(lambda: _catalog_class(spark, config)),
        "Iceberg's extensions": _known(lambda: "loaded" if has_extensions(spark, config) else "not loaded"),
        "OpenSearch": _known(lambda: _opensearch(config)),
    }


def access_mode(setting: Callable[[str, str], str | None], runtime: str) -> str:
    """Return the access mode of the cluster as Databricks' API names it, such as ``SINGLE_USER`` or ``NONE``."""
    if not runtime:
        return "not on Databricks"
    # A tag of the runtime that Databricks does not document, so it may be missing.
    return setting("spark.databricks.clusterUsageTags.dataSecurityMode", "") or _UNKNOWN


def has_extensions(spark: SparkSession, config: SyncConfig) -> bool:
    """Whether Spark's SQL has what Iceberg's extensions add to it: found out, because the setting alone proves nothing.

    Without the extensions the statement has a syntax error. With them it fails for its table, which does not exist.
    """
    place = ".".join(map(quoted, config.table_parts[:-1]))
    try:
        spark.sql(f"ALTER TABLE {place}.`icecdc no such table` CREATE BRANCH `b`")
    except ParseException:
        return False
    except (PySparkException, Py4JError):
        return True
    return True


def _jar(spark: SparkSession, name: str) -> str:
    """The file that a class was loaded from: it shows whose Iceberg library is used."""
    loader = java_class(spark, "java.lang.Thread").currentThread().getContextClassLoader()
    location = loader.loadClass(name).getProtectionDomain().getCodeSource().getLocation()
    return str(location.getFile()).rpartition("/")[2]


def _catalog_class(spark: SparkSession, config: SyncConfig) -> str:
    catalog = iceberg_class(spark, "spark.Spark3Util").loadIcebergCatalog(spark._jsparkSession, config.catalog)
    return str(catalog.getClass().getName())


def _opensearch(config: SyncConfig) -> str:
    doing, user = "reading the version", config.opensearch_username
    with closing(connect(config)) as client, typed_errors(config.opensearch_url, doing, user):
        version = client.info()["version"]
        return f"{version.get('distribution', 'opensearch')} {version['number']}"


def _known(fact: Callable[[], str]) -> str:
    try:
        return fact()
    except Exception as error:  # the report is there to say what does not work
        return f"{_UNKNOWN} ({type(error).__name__})"


def _or_unknown(facts: Callable[[], dict[str, str]]) -> dict[str, str]:
    try:
        return facts()
    except Exception as error:
        return {"versions": f"{_UNKNOWN} ({type(error).__name__})"}
