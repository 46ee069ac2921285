"""The catalog of a session: its settings, and whether it is the one that the parameters describe."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from icecdc_core.config.model import ParameterModel, is_remote
from icecdc_core.dependencies import user_folder
from icecdc_core.errors import ConfigError, unwritable_error
from icecdc_core.secrets import REDACTED, is_reference, redact

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK_CATALOG = "org.apache.iceberg.spark.SparkCatalog"
_READ_AT_START = ("spark.driver.extra", "spark.driver.defaultJavaOptions", "spark.driver.memory", "spark.jars")
_REDACTION = "spark.sql.redaction.options.regex"
_TYPES_BY_SCHEME = {"http": "rest", "https": "rest", "thrift": "hive", "jdbc": "jdbc"}


def catalog_settings(config: ParameterModel) -> dict[str, str]:
    prefix = catalog_prefix(config)
    given = {key: value for key, value in config.resolved_spark_conf().items() if is_catalog_setting(config, key)}
    own = {key.removeprefix(f"{prefix}."): value for key, value in given.items()}
    properties = config.resolved_catalog_properties()
    if not properties and not own.keys() & {"type", "catalog-impl", "uri"}:
        properties = embedded_catalog_properties(config.warehouse_location)
    described = {**properties, **own}
    if not any(key in described for key in ("type", "catalog-impl")):
        properties["type"] = _TYPES_BY_SCHEME.get(described.get("uri", "").partition(":")[0], "hadoop")
    # A cached table hides commits of other sessions for 30 s, but the jobs must see the current snapshot.
    properties = {"cache-enabled": "false", **properties}
    return {prefix: SPARK_CATALOG, **{f"{prefix}.{key}": value for key, value in properties.items()}, **given}


def embedded_catalog_properties(warehouse: str) -> dict[str, str]:
    folder = Path(warehouse)
    remote = is_remote(warehouse)
    if remote:  # SQLite needs a local file
        digest = hashlib.sha256(warehouse.encode()).hexdigest()[:12]
        folder = user_folder("XDG_DATA_HOME", ".local/share") / f"catalog-{digest}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        remedy = "give a folder that you may write to, or describe another catalog in catalog_properties"
        raise unwritable_error("warehouse", warehouse, error, remedy) from error
    return {
        "type": "jdbc",
        "uri": f"jdbc:sqlite:{folder / 'catalog.db'}",
        "jdbc.schema-version": "V1",
        "warehouse": warehouse,
        **({"io-impl": "org.apache.iceberg.io.ResolvingFileIO"} if remote else {}),
    }


def secret_settings(config: ParameterModel, settings: dict[str, str]) -> set[str]:
    """The names of the Spark settings whose values are secrets: given as a reference, or with the look of a secret."""
    referred = {
        f"{catalog_prefix(config)}.{key}" for key, value in config.catalog_properties.items() if is_reference(value)
    }
    referred |= {key for key, value in config.spark_conf.items() if is_reference(value)}
    secret = {key for key, value in settings.items() if key in referred or redact(key, value) == REDACTED}
    if at_start := sorted(key for key in secret if key.startswith(_READ_AT_START)):
        raise ConfigError(
            "Settings that the Java process reads when it starts are on its command line, which every user of the "
            "machine can see; they must not be references or have secrets (values not shown)",
            subject="spark_conf",
            value=at_start,
            remedy="write the value without a secret; Java options with one go into the environment variable "
            "JAVA_TOOL_OPTIONS, the password of a package repository into the file of spark.jars.ivySettings",
        )
    return secret


def catalog_prefix(config: ParameterModel) -> str:
    """The Spark setting of the catalog's class, with which the names of its other settings begin."""
    return f"spark.sql.catalog.{config.catalog}"


def is_catalog_setting(config: ParameterModel, key: str) -> bool:
    return f"{key}.".startswith(f"{catalog_prefix(config)}.")


def register_catalog(spark: SparkSession, config: ParameterModel) -> None:
    """Put the catalog into the session if it has none of that name; refuse another one, which Spark never replaces."""
    if spark.conf.get(catalog_prefix(config), None) is not None:
        require_catalog(spark, config)
        return
    is_described = config.catalog_properties or any(is_catalog_setting(config, key) for key in config.spark_conf)
    at_home = not is_described and (not config.warehouse or is_remote(config.warehouse))
    if at_home and "DATABRICKS_RUNTIME_VERSION" in os.environ:  # the tables would end with the cluster
        raise ConfigError(
            "catalog_properties: missing",
            remedy="describe the catalog of your tables, also for an ingest, which reads no index_file",
        )
    settings = catalog_settings(config)
    if secret := secret_settings(config, settings):  # Spark's web pages and event log show what a session has set
        spark.conf.set(_REDACTION, "|".join([str(spark.conf.get(_REDACTION)), *map(re.escape, sorted(secret))]))
    for key, value in settings.items():
        spark.conf.set(key, value)


def require_catalog(spark: SparkSession, config: ParameterModel) -> None:
    """Refuse a session whose catalog is not the one that the parameters describe; it may have further settings."""
    prefix = catalog_prefix(config)
    compared = {key for key in config.spark_conf if is_catalog_setting(config, key)}
    if config.catalog_properties:
        compared |= {f"{prefix}.{key}" for key in ("type", "uri", "warehouse", "prefix", *config.catalog_properties)}
    elif config.warehouse:
        compared.add(f"{prefix}.warehouse")
    if not compared or spark.conf.get(prefix, None) is None:
        return
    wanted = catalog_settings(config)
    differing = [
        key for key in sorted(compared) if _comparable(spark.conf.get(key, None)) != _comparable(wanted.get(key))
    ]
    if differing:
        names = ", ".join(key.removeprefix(prefix).lstrip(".") or "its class" for key in differing)
        raise ConfigError(
            f"The session's catalog is not the one that the parameters describe: {names} differ (values not shown)",
            subject=next((name for name in ("catalog_properties", "warehouse") if getattr(config, name)), "spark_conf"),
            value=config.catalog,
            remedy="restart the kernel or the program, or give the catalog another name in table",
        )


def _comparable(value: str | None) -> str | None:
    """A local folder can be written in several ways."""
    return value and (re.sub(r"^file:/+", "/", value).rstrip("/") or "/")
