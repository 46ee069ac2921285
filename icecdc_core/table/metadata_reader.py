"""Reads a table's metadata with PyIceberg, without Spark; what that cannot read is unknown, and not wrong."""

import logging
import re
from urllib.parse import quote

from icecdc_core.config.model import ParameterModel
from icecdc_core.config.values import split_table_name
from icecdc_core.errors import StatusUnknownError, TableNotFoundError, shorten
from icecdc_core.secrets import REDACTED, looks_secret, mask_secrets
from icecdc_core.session.catalog import catalog_prefix, catalog_settings, is_catalog_setting
from icecdc_core.table.snapshots import TableMetadata

_TYPES = {"rest": "rest", "glue": "glue", "hive": "hive", "jdbc": "sql"}
_CLASS = re.compile(r"org\.apache\.iceberg\.(?:\w+\.)+(\w+)Catalog")

logging.getLogger("pyiceberg").addHandler(logging.NullHandler())  # else it warns on the standard error


def read_metadata(config: ParameterModel, table: str) -> TableMetadata:
    """Read a table as its catalog shows it now."""
    catalog, *identifier = split_table_name(table)
    properties: dict[str, str] = {}
    try:
        from pyiceberg.catalog import load_catalog  # Spark can tell without it

        properties = _properties(config, catalog)
        loaded = load_catalog(catalog, **properties).load_table(tuple(identifier))
        return TableMetadata.from_json(loaded.metadata.model_dump(mode="json"))
    except Exception as error:  # of any of the libraries that a catalog needs
        if re.fullmatch("NoSuch(Iceberg)?(Table|Namespace)Error", type(error).__name__):
            raise TableNotFoundError(
                f"The catalog has no Iceberg table '{table}'",
                subject="table",
                value=table,
                remedy="if it was not dropped, give the catalog_properties or the warehouse of the sync",
            ) from None
        error = getattr(error, "orig", None) or error  # SQLAlchemy wraps what a database says
        said = mask_secrets(" ".join(f"{type(error).__name__}: {error}".split()))
        for name, value in properties.items():
            said = said.replace(value, REDACTED) if value and looks_secret(name) else said
        remedy = "give the parameters of the sync; --tables asks Spark"
        raise StatusUnknownError(
            f"unknown: {shorten(said, 300)}", subject="catalog_properties", remedy=remedy
        ) from None


def _properties(config: ParameterModel, catalog: str) -> dict[str, str]:
    """The properties of a Spark catalog as PyIceberg names them: most have one name in both."""
    if catalog != config.catalog:
        config = config.replace(table=f"{catalog}.any.any", catalog_properties={})
        if not any(is_catalog_setting(config, key) for key in config.spark_conf):
            raise ValueError(f"no parameter describes the catalog {catalog}")
    prefix = f"{catalog_prefix(config)}."
    settings = catalog_settings(config).items()
    given = {key.removeprefix(prefix): value for key, value in settings if key.startswith(prefix)}
    known = _CLASS.fullmatch(given.pop("catalog-impl", ""))
    kind = (known[1] if known else given.pop("type", "a class of its own")).lower()
    if kind not in _TYPES:
        raise ValueError(f"PyIceberg reads catalogs of type {', '.join(_TYPES)}, this is {kind}")
    if kind == "rest" or given.get("warehouse", "").startswith(("/", "file:")):
        given.setdefault("py-io-impl", "pyiceberg.io.fsspec.FsspecFileIO")  # PyArrow takes half a second to import
    if kind == "jdbc":
        given["uri"] = _database_url(given)
    return {**given, "type": _TYPES[kind], "snapshot-loading-mode": "all", "init_catalog_tables": "false"}


def _database_url(given: dict[str, str]) -> str:
    from sqlalchemy.engine import make_url

    uri = given["uri"].removeprefix("jdbc:")
    if uri.startswith("sqlite:"):  # a file that must exist, and is only read
        return f"sqlite:///file:{quote(re.sub('^sqlite:(file:)?|[?].*', '', uri))}?mode=ro&uri=true"
    url = make_url(uri).set(username=given.get("jdbc.user"), password=given.get("jdbc.password"))
    return url.render_as_string(hide_password=False)
