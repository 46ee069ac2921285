"""Reads a table's metadata with PyIceberg, without Spark; what that cannot read is unknown, and not wrong."""

import logging
import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from urllib.parse import quote

from icecdc_core.config.model import ParameterModel
from icecdc_core.config.values import split_table_name
from icecdc_core.errors import StatusUnknownError, TableNotFoundError, shorten
from icecdc_core.secrets import REDACTED, looks_secret, mask_secrets
from icecdc_core.session.catalog import catalog_prefix, catalog_settings, is_catalog_setting
from icecdc_core.table.snapshots import TableMetadata

_TYPES = {"rest": "rest", "glue": "glue", "hive": "hive", "jdbc": "sql"}
_FILES = "py-io-impl"
_CLASSES = re.compile(r"org\.apache\.iceberg\.(?:\w+\.)+(\w+)Catalog")


def metadata_reader(config: ParameterModel) -> Callable[[str], TableMetadata]:
    """Return `read_metadata` for these parameters, with all imported that takes longer than a request."""
    with suppress(Exception):  # the first table says what is missing
        properties = _properties(config, config.catalog)
        import_module(f"pyiceberg.catalog.{properties['type']}")
        import_module(properties.get(_FILES, "pyiceberg.io.pyarrow.").rpartition(".")[0])
    return partial(read_metadata, config)


def read_metadata(config: ParameterModel, table: str) -> TableMetadata:
    """Read a table as its catalog shows it now; raises `StatusUnknownError` unless the catalog has it, or denies it."""
    catalog, *identifier = split_table_name(table)
    properties: dict[str, str] = {}
    try:
        from pyiceberg.catalog import load_catalog

        logging.getLogger("pyiceberg").addHandler(logging.NullHandler())  # else it warns on the standard error
        properties = _properties(config, catalog)
        loaded = load_catalog(catalog, **properties).load_table(tuple(identifier))
        return TableMetadata.from_json(loaded.metadata.model_dump(mode="json"))
    except Exception as error:  # of any of the libraries that a catalog needs
        if re.fullmatch("NoSuch((Iceberg)?Table|Namespace)Error", type(error).__name__):
            raise table_not_found(table) from None
        said = mask_secrets(" ".join(f"{type(error).__name__}: {error}".split()))
        for name, value in properties.items():
            said = said.replace(value, REDACTED) if value and looks_secret(name) else said
        raise StatusUnknownError(
            f"The catalog of '{table}' cannot be asked without Spark: {shorten(said, 300)}",
            subject="catalog_properties",
            remedy="give the parameters of the sync; --tables asks with Spark",
        ) from None


def table_not_found(table: str, of: str = "") -> TableNotFoundError:
    return TableNotFoundError(
        f"The catalog{of} has no Iceberg table '{table}'",
        subject="table",
        value=table,
        remedy="check catalog, namespace and table name; `SHOW TABLES IN <catalog>.<namespace>` lists them; if the "
        "table is in another catalog of that name, give its catalog_properties or warehouse",
    )


def _properties(config: ParameterModel, catalog: str) -> dict[str, str]:
    """The properties of a Spark catalog as PyIceberg names them: most have one name in both."""
    if catalog != config.catalog:
        config = config.replace(table=f"{catalog}.any.any", catalog_properties={})
        if not any(is_catalog_setting(config, key) for key in config.spark_conf):
            raise ValueError(f"no parameter describes the catalog {catalog}")
    prefix = f"{catalog_prefix(config)}."
    settings = catalog_settings(config).items()
    given = {key.removeprefix(prefix): value for key, value in settings if key.startswith(prefix)}
    known = _CLASSES.fullmatch(given.pop("catalog-impl", ""))
    kind = (known[1] if known else given.pop("type", "a class of its own")).lower()
    if kind not in _TYPES:
        raise ValueError(f"PyIceberg reads catalogs of type {', '.join(_TYPES)}, this is {kind}")
    given |= {"type": _TYPES[kind], "snapshot-loading-mode": "all", "init_catalog_tables": "false"}
    if kind == "rest" or given.get("warehouse", "").startswith(("/", "file:")):
        given.setdefault(_FILES, "pyiceberg.io.fsspec.FsspecFileIO")  # half as long to import as the default, PyArrow
    return given | ({"uri": _database_url(given)} if kind == "jdbc" else {})


def _database_url(given: dict[str, str]) -> str:
    """The URL of a database for SQLAlchemy; a file of SQLite is only read, and not created."""
    from sqlalchemy.engine import URL, make_url

    kind, _, place = given["uri"].removeprefix("jdbc:").partition(":")
    if kind == "sqlite":
        file = quote(place.removeprefix("file:").partition("?")[0])
        url = URL.create(kind, database=f"file:{file}", query={"mode": "ro", "uri": "true"})
    else:
        url = make_url(f"{kind}:{place}").set(username=given.get("jdbc.user"), password=given.get("jdbc.password"))
    return url.render_as_string(hide_password=False)
