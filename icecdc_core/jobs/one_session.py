"""Whether the indexes of a file can share a Spark application; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from icecdc_core.errors import ConfigError
from icecdc_core.session.catalog_settings import is_catalog_setting

if TYPE_CHECKING:
    from icecdc_core.config import SyncConfig


def require_one_session(configs: Mapping[str, SyncConfig]) -> None:
    """Check that one Spark application can serve all of these parameters."""
    problems = []
    catalogs: dict[str, tuple[str, object]] = {}
    first, conf = next(((name, dict(config.spark_conf)) for name, config in configs.items()), ("", {}))
    for name, config in configs.items():
        other, described = catalogs.setdefault(config.catalog, (name, _catalog(config)))
        if described != _catalog(config):
            problems.append(
                f"catalog_properties: '{other}' and '{name}' describe the catalog '{config.catalog}' differently "
                "(values not shown). Remedy: give both the same catalog_properties, warehouse and settings of the "
                "catalog in spark_conf, or give the catalogs different names."
            )
            continue
        own = dict(config.spark_conf)
        differing = sorted(key for key in {*conf, *own} if conf.get(key) != own.get(key))
        if differing:
            problems.append(
                f"spark_conf: '{first}' and '{name}' differ in {', '.join(differing)} (values not shown). Remedy: give "
                "all indexes of the file the same spark_conf, because they share a Spark application."
            )
    if problems:
        raise ConfigError("The indexes cannot share a Spark application", problems=problems)


def _catalog(config: SyncConfig) -> object:
    """How the parameters describe their catalog, without its name and without resolving a secret."""
    in_conf = {key: value for key, value in config.spark_conf.items() if is_catalog_setting(config, key)}
    return dict(config.catalog_properties), config.warehouse and config.warehouse_location, in_conf
