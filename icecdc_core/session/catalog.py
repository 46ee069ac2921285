"""The catalog of a session: the settings that define it, and whether it is the one that the parameters ask for."""

from __future__ import annotations

import hashlib
import re
import uuid
import warnings
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakValueDictionary

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from icecdc_core.errors import ConfigError
from icecdc_core.secrets import REDACTED, is_reference, redacted

if TYPE_CHECKING:
    from icecdc_core.config.model import ParameterModel

SPARK_CATALOG = "org.apache.iceberg.spark.SparkCatalog"
_TYPES_BY_SCHEME = {"http": "rest", "https": "rest", "thrift": "hive", "jdbc": "jdbc"}
_MARKS = "spark.icecdc.catalog."


class _Registered(NamedTuple):
    """The settings of a catalog that icecdc has put into a session.

    Attributes:
        wanted: All of them.
        secret: The names of those whose values are secrets.
        base: The settings of the catalog that somebody else had configured and that `spark_conf` changes; None when
            all settings come from the parameters.
    """

    wanted: dict[str, str]
    secret: set[str]
    base: dict[str, str] | None = None


# Spark makes a catalog once, from the settings of that moment, and keeps it: settings that change later have no effect,
# so they do not show which catalog the session has. A session names its entry here.
_registered: dict[str, _Registered] = {}
# The same sessions, while somebody uses them: who asks for a catalog again gets the session that has it.
_sessions: WeakValueDictionary[str, SparkSession] = WeakValueDictionary()


def catalog_settings(config: ParameterModel) -> dict[str, str]:
    """Return the Spark settings that define the catalog of ``config.table``.

    Empty ``catalog_properties`` mean the embedded default: a JDBC catalog on SQLite beside its warehouse
    folder. What ``spark_conf`` says of the catalog wins.
    """
    prefix = _prefix(config)
    properties = config.resolved_catalog_properties() or embedded_catalog_properties(config.warehouse_location)
    if not any(key in properties for key in ("type", "catalog-impl")):
        scheme = properties.get("uri", "").partition(":")[0]
        properties = {"type": _TYPES_BY_SCHEME.get(scheme, "hadoop"), **properties}
    # A cached table hides commits of other sessions for 30 s; the jobs must see the current snapshot.
    properties = {"cache-enabled": "false", **properties}
    settings = {prefix: SPARK_CATALOG, **{f"{prefix}.{key}": value for key, value in properties.items()}}
    return settings | {key: value for key, value in config.resolved_spark_conf().items() if _is_of(prefix, key)}


def embedded_catalog_properties(warehouse: str) -> dict[str, str]:
    """Return the properties of the embedded catalog: JDBC on SQLite, its file inside the warehouse folder.

    A warehouse in an object store has its catalog file in the user's data folder, because SQLite needs a
    local file.

    Raises:
        ConfigError: The folder cannot be made.
    """
    folder = Path(warehouse)
    remote = "://" in warehouse
    if remote:
        digest = hashlib.sha256(warehouse.encode()).hexdigest()[:12]
        folder = Path.home() / ".local" / "share" / "icecdc" / f"catalog-{digest}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"The folder of the embedded catalog cannot be made: {error.strerror or error}",
            subject="warehouse",
            value=warehouse,
            remedy="give a folder that may be written to, or name another catalog in catalog_properties",
        ) from error
    return {
        "type": "jdbc",
        "uri": f"jdbc:sqlite:{folder / 'catalog.db'}",
        "jdbc.schema-version": "V1",
        "warehouse": warehouse,
        **({"io-impl": "org.apache.iceberg.io.ResolvingFileIO"} if remote else {}),
    }


def remember_catalog(
    spark: SparkSession, config: ParameterModel, wanted: dict[str, str], base: dict[str, str] | None = None
) -> None:
    """Record in the session which catalog icecdc has put into it.

    Args:
        spark: The session.
        config: The job's parameters.
        wanted: The settings of the catalog.
        base: The settings of the foreign catalog that `wanted` changes; None when there is none.
    """
    key = uuid.uuid4().hex
    _registered[key] = _Registered(wanted, secret_settings(config, wanted), base)
    _sessions[key] = spark
    spark.conf.set(_mark(config), key)


def with_catalog(spark: SparkSession, config: ParameterModel) -> SparkSession:
    """Return the session, or a sibling of it, in which the catalog is the one that the parameters ask for."""
    known = _prefix(config) in _present(spark, config)
    if known and not _asks(config):
        if spark.conf.get(_mark(config), None):
            _warn_of_earlier_parameters(spark, config)
        return spark
    base = _foreign_base(spark, config)
    wanted = _wanted(spark, config)
    if known and not _differences(spark, config, wanted):
        return spark
    others = [session for session in _sessions.values() if session.sparkContext is spark.sparkContext] if known else []
    for other in others:
        if other.conf.get(_mark(config), None) and not _differences(other, config, wanted):
            return other
    target = _sibling(spark) if known else spark
    for key in _present(target, config):
        target.conf.unset(key)
    for key, value in wanted.items():
        target.conf.set(key, value)
    remember_catalog(target, config, wanted, base)
    return target


def require_catalog(spark: SparkSession, config: ParameterModel) -> None:
    """Refuse a session whose catalog is another one than the parameters ask for.

    Raises:
        ConfigError: It is another one; the text shows what differs, without secrets.
    """
    if not _asks(config) or _prefix(config) not in _present(spark, config):
        return
    differing = _differences(spark, config, _wanted(spark, config))
    if differing:
        given = [name for name in ("catalog_properties", "warehouse") if getattr(config, name)]
        raise ConfigError(
            f"The session's catalog is not the one that the parameters describe: {_shown(differing, config)}",
            subject=given[0] if given else "spark_conf",
            value=config.catalog,
            remedy="use the session that get_spark returns for these parameters; without catalog_properties, warehouse "
            "and settings of the catalog in spark_conf the session's catalog is used as it is",
        )


def secret_settings(config: ParameterModel, settings: dict[str, str]) -> set[str]:
    """The Spark settings whose values are secrets: given as a reference, or they look like one."""
    referred = {f"{_prefix(config)}.{key}" for key, value in config.catalog_properties.items() if is_reference(value)}
    referred |= {key for key, value in config.spark_conf.items() if is_reference(value)}
    return {key for key, value in settings.items() if key in referred or redacted(key, value) == REDACTED}


def _prefix(config: ParameterModel) -> str:
    return f"spark.sql.catalog.{config.catalog}"


def _mark(config: ParameterModel) -> str:
    return _MARKS + config.catalog


def _is_of(prefix: str, key: str) -> bool:
    return key == prefix or key.startswith(f"{prefix}.")


def _asks(config: ParameterModel) -> bool:
    """Whether the parameters say anything of the catalog; else any catalog of the session fits."""
    in_conf = any(_is_of(_prefix(config), key) for key in config.spark_conf)
    return bool(config.catalog_properties or config.warehouse or in_conf)


def _present(spark: SparkSession, config: ParameterModel) -> dict[str, str]:
    """The session's settings of the catalog."""
    return {key: value for key, value in spark.conf.getAll.items() if _is_of(_prefix(config), key)}


def _foreign_base(spark: SparkSession, config: ParameterModel) -> dict[str, str] | None:
    """The settings of a catalog that somebody else configured, when the parameters only change some of them.

    Then no default of the embedded catalog applies: `catalog_properties` and `warehouse` are not given, and
    `spark_conf` alone does not say which catalog it is.
    """
    if config.catalog_properties or config.warehouse:
        return None
    registered = _registered.get(spark.conf.get(_mark(config), None) or "")
    if registered is not None:
        return registered.base
    return _present(spark, config) or None


def _wanted(spark: SparkSession, config: ParameterModel) -> dict[str, str]:
    """The settings that the parameters ask for in this session."""
    base = _foreign_base(spark, config)
    if base is None:
        return catalog_settings(config)
    return base | {key: value for key, value in config.resolved_spark_conf().items() if _is_of(_prefix(config), key)}


def _differences(
    spark: SparkSession, config: ParameterModel, wanted: dict[str, str]
) -> dict[str, tuple[str | None, str | None]]:
    """The settings in which the session's catalog is another one: what it has, and what is asked for.

    A catalog whose settings all come from icecdc must agree in all that was and is asked for. A catalog that somebody
    else configured must agree only in what the parameters give: it may have further settings, a warehouse among them,
    and another type than the default one when the parameters give only the warehouse.
    """
    present = _present(spark, config)
    registered = _registered.get(spark.conf.get(_mark(config), None) or "")
    if registered is None or registered.base is not None:
        given = ["type", *config.catalog_properties] if config.catalog_properties else []
        given += ["warehouse"] if config.warehouse else []
        keys = ({f"{_prefix(config)}.{key}" for key in given} | {*config.spark_conf}) & {*wanted}
        made_of = present if registered is None else registered.wanted
    else:
        keys = {*wanted, *registered.wanted}
        made_of = registered.wanted
    compared = [(key, has.get(key), wanted.get(key)) for has in (present, made_of) for key in keys]
    return {key: (has, asked) for key, has, asked in compared if _location(has) != _location(asked)}


def _location(value: str | None) -> str | None:
    """A local folder has several names; other values are their own."""
    return value and (re.sub(r"^file:/+", "/", value).rstrip("/") or "/")


def _shown(differing: dict[str, tuple[str | None, str | None]], config: ParameterModel) -> str:
    """What differs, in words and without secrets."""
    ours = {key: asked for key, (_, asked) in differing.items() if asked is not None}
    theirs = {key: has for key, (has, _) in differing.items() if has is not None}
    secret = secret_settings(config, ours) | secret_settings(config, theirs)
    secret |= {key for registered in _registered.values() for key in registered.secret}
    texts = []
    for key, (has, asked) in sorted(differing.items()):
        name = key.removeprefix(_prefix(config)).lstrip(".") or "class"
        if key in secret:
            texts.append(f"{name} differs (values not shown)")
        else:
            texts.append(f"{name} is {_quoted(has)} in the session and {_quoted(asked)} in the parameters")
    return "; ".join(texts)


def _warn_of_earlier_parameters(spark: SparkSession, config: ParameterModel) -> None:
    differing = _differences(spark, config, _wanted(spark, config))
    if differing:
        warnings.warn(
            f"The parameters describe no catalog, so '{config.catalog}' is still the one of earlier parameters in this "
            f"session: {_shown(differing, config)}. Set catalog_properties or warehouse, or restart the session.",
            stacklevel=4,
        )


def _quoted(value: str | None) -> str:
    return "not set" if value is None else repr(value)


def _sibling(spark: SparkSession) -> SparkSession:
    """A session of the same application with catalogs of its own, and with the settings of this one."""
    sibling = spark.newSession()
    inherited = sibling.conf.getAll
    for key, value in spark.conf.getAll.items():
        if inherited.get(key) != value and not key.startswith(_MARKS):
            with suppress(PySparkException):  # Spark has settings that all its sessions share
                sibling.conf.set(key, value)
    return sibling
