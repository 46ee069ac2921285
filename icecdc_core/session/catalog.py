"""The catalog of a session: whether it is the one that the parameters describe, and a session in which it is."""

from __future__ import annotations

import hashlib
import re
import uuid
import warnings
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakValueDictionary

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

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


_ENTRY_SETTING = "spark.icecdc.catalog."


class _Registered(NamedTuple):
    """The settings of a catalog that icecdc has put into a session."""

    wanted: dict[str, str]
    secret: set[str]
    base: dict[str, str] | None = None


# Spark creates a catalog once, from the settings of that moment. Later changes of the settings have no effect, so the
# settings do not show which catalog a session has. Each session refers to its entry here by a setting of its own.
_registered: dict[str, _Registered] = {}
# The sessions of these entries while somebody uses them. Parameters that describe a known catalog get its session.
_sessions: WeakValueDictionary[str, SparkSession] = WeakValueDictionary()


def remember_catalog(
    spark: SparkSession, config: ParameterModel, wanted: dict[str, str], base: dict[str, str] | None = None
) -> None:
    """Record in the session which catalog icecdc has put into it."""
    key = uuid.uuid4().hex
    _registered[key] = _Registered(wanted, secret_settings(config, wanted), base)
    _sessions[key] = spark
    spark.conf.set(_entry_setting(config), key)


def with_catalog(spark: SparkSession, config: ParameterModel) -> SparkSession:
    """Return a session in which the catalog is the one that the parameters describe."""
    known = catalog_prefix(config) in _catalog_settings_of(spark, config)
    if known and not _describes_catalog(config):
        if spark.conf.get(_entry_setting(config), None):
            _warn_of_earlier_parameters(spark, config)
        return spark
    base = _foreign_base(spark, config)
    wanted = _wanted_settings(spark, config)
    if known and not _setting_differences(spark, config, wanted):
        return spark
    others = [session for session in _sessions.values() if session.sparkContext is spark.sparkContext] if known else []
    for other in others:
        if other.conf.get(_entry_setting(config), None) and not _setting_differences(other, config, wanted):
            return other
    target = _new_session_of_application(spark) if known else spark
    _configure(target, config, wanted, base)
    return target


def open_own_session(spark: SparkSession, configs: Iterable[ParameterModel]) -> SparkSession:
    """Return another session of the same Spark application, which nobody else uses.

    Runs at the same time need one each, because they change Spark SQL settings while they run.
    """
    own = _new_session_of_application(spark)
    for config in configs:
        known = catalog_prefix(config) in _catalog_settings_of(spark, config)
        base, wanted = _foreign_base(spark, config), _wanted_settings(spark, config)
        if known and not (_describes_catalog(config) and _setting_differences(spark, config, wanted)):
            if key := spark.conf.get(_entry_setting(config), None):
                own.conf.set(_entry_setting(config), key)
        elif own.conf.get(_entry_setting(config), None) is None:
            _configure(own, config, wanted, base)
    return own


def require_catalog(spark: SparkSession, config: ParameterModel) -> None:
    """Refuse a session whose catalog is not the one that the parameters describe."""
    if not _describes_catalog(config) or catalog_prefix(config) not in _catalog_settings_of(spark, config):
        return
    differing = _setting_differences(spark, config, _wanted_settings(spark, config))
    if differing:
        given = [name for name in ("catalog_properties", "warehouse") if getattr(config, name)]
        raise ConfigError(
            f"The session's catalog is not the one that the parameters describe: {_as_text(differing, config)}",
            subject=given[0] if given else "spark_conf",
            value=config.catalog,
            remedy="use the session that get_spark returns for these parameters; without catalog_properties, warehouse "
            "and settings of the catalog in spark_conf the session's catalog is used as it is",
        )


def _configure(
    spark: SparkSession, config: ParameterModel, wanted: dict[str, str], base: dict[str, str] | None
) -> None:
    """Put a catalog into a session that has not used it yet."""
    for key in _catalog_settings_of(spark, config):
        spark.conf.unset(key)
    for key, value in wanted.items():
        spark.conf.set(key, value)
    remember_catalog(spark, config, wanted, base)


def _entry_setting(config: ParameterModel) -> str:
    return _ENTRY_SETTING + config.catalog


def _describes_catalog(config: ParameterModel) -> bool:
    """Whether the parameters describe the catalog; otherwise any catalog of the session fits."""
    in_conf = any(is_catalog_setting(config, key) for key in config.spark_conf)
    return bool(config.catalog_properties or config.warehouse or in_conf)


def _catalog_settings_of(spark: SparkSession, config: ParameterModel) -> dict[str, str]:
    """The settings of the catalog in the session."""
    return {key: value for key, value in spark.conf.getAll.items() if is_catalog_setting(config, key)}


def _foreign_base(spark: SparkSession, config: ParameterModel) -> dict[str, str] | None:
    """The settings of a catalog that somebody else configured, when the parameters only change some of them.

    Then no default of the embedded catalog applies: `catalog_properties` and `warehouse` are not given, and
    `spark_conf` alone does not say which catalog it is.
    """
    if config.catalog_properties or config.warehouse:
        return None
    registered = _registered.get(spark.conf.get(_entry_setting(config), None) or "")
    if registered is not None:
        return registered.base
    return _catalog_settings_of(spark, config) or None


def _wanted_settings(spark: SparkSession, config: ParameterModel) -> dict[str, str]:
    """The settings that the parameters ask for in this session."""
    base = _foreign_base(spark, config)
    if base is None:
        return catalog_settings(config)
    return base | settings_in_spark_conf(config)


def _setting_differences(
    spark: SparkSession, config: ParameterModel, wanted: dict[str, str]
) -> dict[str, tuple[str | None, str | None]]:
    """The settings that differ: the name, the value in the session, and the value that the parameters ask for.

    A catalog whose settings all come from icecdc must agree in all that was and is asked for. A catalog that somebody
    else configured must agree only in what the parameters give: it may have further settings, a warehouse among them,
    and another type than the default one when the parameters give only the warehouse.
    """
    present = _catalog_settings_of(spark, config)
    registered = _registered.get(spark.conf.get(_entry_setting(config), None) or "")
    if registered is None or registered.base is not None:
        given = ["type", *config.catalog_properties] if config.catalog_properties else []
        given += ["warehouse"] if config.warehouse else []
        keys = ({f"{catalog_prefix(config)}.{key}" for key in given} | {*config.spark_conf}) & {*wanted}
        loaded_from = present if registered is None else registered.wanted
    else:
        keys = {*wanted, *registered.wanted}
        loaded_from = registered.wanted
    compared = [(key, has.get(key), wanted.get(key)) for has in (present, loaded_from) for key in keys]
    return {key: (has, asked) for key, has, asked in compared if _comparable(has) != _comparable(asked)}


def _comparable(value: str | None) -> str | None:
    """A value in the form in which it is compared: a local folder can be written in several ways."""
    return value and (re.sub(r"^file:/+", "/", value).rstrip("/") or "/")


def _as_text(differing: dict[str, tuple[str | None, str | None]], config: ParameterModel) -> str:
    """The settings that differ as text, without secrets."""
    in_parameters = {key: asked for key, (_, asked) in differing.items() if asked is not None}
    in_session = {key: has for key, (has, _) in differing.items() if has is not None}
    secret = secret_settings(config, in_parameters) | secret_settings(config, in_session)
    secret |= {key for registered in _registered.values() for key in registered.secret}
    texts = []
    for key, (has, asked) in sorted(differing.items()):
        name = key.removeprefix(catalog_prefix(config)).lstrip(".") or "class"
        if key in secret:
            texts.append(f"{name} differs (values not shown)")
        else:
            texts.append(f"{name} is {_quoted(has)} in the session and {_quoted(asked)} in the parameters")
    return "; ".join(texts)


def _warn_of_earlier_parameters(spark: SparkSession, config: ParameterModel) -> None:
    differing = _setting_differences(spark, config, _wanted_settings(spark, config))
    if differing:
        warnings.warn(
            f"The parameters describe no catalog, so '{config.catalog}' is still the one of earlier parameters in this "
            f"session: {_as_text(differing, config)}. Set catalog_properties or warehouse, or restart the session.",
            stacklevel=4,
        )


def _quoted(value: str | None) -> str:
    return "not set" if value is None else repr(value)


def _new_session_of_application(spark: SparkSession) -> SparkSession:
    """Another session of the same application, with its own catalogs and with the settings of this one."""
    sibling = spark.newSession()
    inherited = sibling.conf.getAll
    for key, value in spark.conf.getAll.items():
        if inherited.get(key) != value and not key.startswith(_ENTRY_SETTING):
            with suppress(PySparkException):  # some settings belong to all sessions and cannot be set
                sibling.conf.set(key, value)
    return sibling
