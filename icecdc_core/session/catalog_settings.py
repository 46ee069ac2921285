"""The Spark settings that define the catalog of a table; no session is needed."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from icecdc_core.errors import ConfigError
from icecdc_core.secrets import REDACTED, is_reference, redact
from icecdc_core.session.compat import SPARK_CATALOG
from icecdc_core.user_folders import user_folder

if TYPE_CHECKING:
    from icecdc_core.config.model import ParameterModel

_TYPES_BY_SCHEME = {"http": "rest", "https": "rest", "thrift": "hive", "jdbc": "jdbc"}


def catalog_settings(config: ParameterModel) -> dict[str, str]:
    """Return the Spark settings that define the catalog of ``config.table``.

    Without ``catalog_properties`` it is the embedded catalog: JDBC on SQLite, with its file in the warehouse folder.
    Settings of the catalog in ``spark_conf`` have precedence.
    """
    prefix = catalog_prefix(config)
    properties = config.resolved_catalog_properties() or embedded_catalog_properties(config.warehouse_location)
    if not any(key in properties for key in ("type", "catalog-impl")):
        scheme = properties.get("uri", "").partition(":")[0]
        properties = {"type": _TYPES_BY_SCHEME.get(scheme, "hadoop"), **properties}
    # A cached table hides commits of other sessions for 30 s, but the jobs must see the current snapshot.
    properties = {"cache-enabled": "false", **properties}
    settings = {prefix: SPARK_CATALOG, **{f"{prefix}.{key}": value for key, value in properties.items()}}
    return settings | settings_in_spark_conf(config)


def embedded_catalog_properties(warehouse: str) -> dict[str, str]:
    """Return the properties of the embedded catalog: JDBC on SQLite, its file inside the warehouse folder.

    SQLite needs a local file, so the catalog file of a warehouse in an object store is in the user's data folder.
    """
    folder = Path(warehouse)
    remote = "://" in warehouse
    if remote:
        digest = hashlib.sha256(warehouse.encode()).hexdigest()[:12]
        folder = user_folder("XDG_DATA_HOME", ".local/share") / f"catalog-{digest}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"The folder of the embedded catalog cannot be created: {error.strerror or error}",
            subject="warehouse",
            value=warehouse,
            remedy="give a folder that you may write to, or describe another catalog in catalog_properties",
        ) from error
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
    return {key for key, value in settings.items() if key in referred or redact(key, value) == REDACTED}


def catalog_prefix(config: ParameterModel) -> str:
    """The Spark setting of the catalog's class, with which the names of its other settings begin."""
    return f"spark.sql.catalog.{config.catalog}"


def settings_in_spark_conf(config: ParameterModel) -> dict[str, str]:
    """The settings of the catalog in `spark_conf`, with every reference replaced by its secret."""
    given = config.resolved_spark_conf()
    return {key: value for key, value in given.items() if is_catalog_setting(config, key)}


def is_catalog_setting(config: ParameterModel, key: str) -> bool:
    """Whether a Spark setting belongs to the catalog."""
    return key == catalog_prefix(config) or key.startswith(f"{catalog_prefix(config)}.")
