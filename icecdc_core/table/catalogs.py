"""Loads tables from their catalog; a failure there becomes one typed error with the remedy."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from py4j.java_gateway import get_java_class
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from icecdc_core import errors
from icecdc_core.secrets import mask_secrets
from icecdc_core.session.jars import iceberg_package, needed_bundles
from icecdc_core.session.jvm import NETWORK, REFUSED, active_session, causes, iceberg_class, java_ended
from icecdc_core.table.snapshots import TableMetadata

_NO_TABLE = re.compile("NoSuch((Iceberg)?Table|Namespace|Database)Exception|ClassCastException")
_MISSING = re.compile("ClassNotFoundException|NoClassDefFoundError|No FileSystem for scheme")
_SELECTOR = re.compile("(branch|tag|snapshot_id|at_timestamp)_")


def load_table(spark: SparkSession, name: str) -> Any:
    """Load a table as its catalog shows it now; returns Iceberg's Java object."""
    try:
        with active_session(spark):
            # The catalog first: in a lookup with the table, a catalog that fails counts as a namespace.
            state = spark._jsparkSession.sessionState()
            state.catalogManager().catalog(state.sqlParser().parseMultipartIdentifier(name).head())
            last = forget_cached(spark, name)  # it may have been dropped since
            table = iceberg_class(spark, "spark.Spark3Util").loadIcebergTable(spark._jsparkSession, name)
    except (PySparkException, Py4JError) as error:
        raise catalog_error(error, spark, name) from error
    if get_java_class(iceberg_class(spark, "BaseMetadataTable")).isInstance(table):
        raise errors.ConfigError(
            f"'{name}' shows metadata of a table", subject="table", value=name, remedy=f"leave out .{last} at its end"
        )
    if _SELECTOR.match(last) and not table.name().endswith(last):  # Iceberg returns all of the table
        whole = str(table.name())
        raise errors.ConfigError(
            f"'{name}' is only a part of {whole}",
            subject="table",
            value=name,
            remedy=f"set table={whole}, and branch for one of its branches; tags and past snapshots do not change",
        )
    return table


def forget_cached(spark: SparkSession, name: str) -> str:
    """Make the catalog look a table up again; returns the last part of its name."""
    # REFRESH TABLE would plan again what other runs have cached of it.
    found = iceberg_class(spark, "spark.Spark3Util").catalogAndIdentifier(spark._jsparkSession, name)
    found.catalog().invalidateTable(found.identifier())
    return str(found.identifier().name())


def create_table_once(
    spark: SparkSession, name: str, schema: str, properties: Mapping[str, str] | None = None, partition: str = ""
) -> None:
    """Create a table of icecdc's own unless it exists, or another run creates it at the same time."""
    given = ", ".join(f"'{key}' = '{value}'" for key, value in {"format-version": "2", **(properties or {})}.items())
    partitioned = f"PARTITIONED BY ({partition})" if partition else ""
    spark.sql(f"CREATE TABLE IF NOT EXISTS {name} ({schema}) USING iceberg {partitioned} TBLPROPERTIES ({given})")


@contextmanager
def usable_table(
    what: str, parameter: str, name: str, refused: type[errors.IcecdcError] = errors.ConfigError, remedy: str = ""
) -> Iterator[None]:
    """Name the parameter if a table of icecdc's own cannot be read or written."""
    try:
        yield
    except (ConnectionError, Py4JNetworkError) as error:
        raise java_ended(errors.SparkJobError, error) from error
    except (PySparkException, Py4JError) as error:
        is_cut_off = refused is errors.ConfigError and any(NETWORK.match(cause.kind) for cause in causes(error))
        kind = errors.CatalogError if is_cut_off else refused
        raise kind(
            f"{what} cannot be used: {describe_failure(error)[:500]}",
            subject=parameter,
            value=name,
            remedy=remedy
            or f"name a table catalog.namespace.table in {parameter} that this user may create and write; the position "
            "did not move",
        ) from error


def describe_failure(error: PySparkException | Py4JError) -> str:
    """Return what the outermost exception says and, if it differs, the innermost, in one line and without secrets."""
    said = [f"{cause.kind}: {cause.text}" for cause in causes(error)] or [str(error)]
    outer, inner = (text.strip().partition("\n")[0] for text in (said[0], said[-1]))
    return mask_secrets(outer if inner in outer else f"{outer} - {inner}")


def catalog_error(error: PySparkException | Py4JError, spark: SparkSession, name: str) -> errors.IcecdcError:
    chain = causes(error)
    text = " ".join([*(f"{cause.kind}: {cause.text}" for cause in chain), str(error)])
    prefix = f"spark.sql.catalog.{name.partition('.')[0].strip('`')}."
    bundles = needed_bundles({key: value for key, value in spark.conf.getAll.items() if key.startswith(prefix)})
    if bundles and _MISSING.search(text):
        return errors.DependencyError(
            f"The catalog of '{name}' needs a jar that this Spark session lacks: {describe_failure(error)}",
            subject="catalog_properties",
            remedy=f"on Databricks attach {iceberg_package(bundles[0], spark.version)} to the cluster as a Maven "
            "library; elsewhere restart the kernel or the program: get_spark starts a session with the jars that "
            "catalog_properties ask for, and with those that spark_conf names under spark.jars.packages",
        )
    if any(_NO_TABLE.fullmatch(cause.kind) for cause in chain) or "is not an Iceberg table" in text:
        return errors.TableNotFoundError(
            f"The catalog of this session has no Iceberg table '{name}'",
            subject="table",
            value=name,
            remedy="check catalog, namespace and table name; `SHOW TABLES IN <catalog>.<namespace>` lists them; if the "
            "table is in another catalog of that name, give its catalog_properties or warehouse",
        )
    kind = errors.CatalogAuthError if REFUSED.search(text) else errors.CatalogError
    return kind(
        f"The catalog of '{name}' cannot be used: {describe_failure(error)}",
        subject="catalog_properties",
        remedy="check the catalog's type, address and credentials; the type is hadoop, hive, jdbc, rest, glue or "
        "nessie, another one is named by catalog-impl; jars such as the driver of a database go into spark_conf, under "
        "spark.jars.packages",
    )


def require_visible_history(spark: SparkSession, name: str, table: Any, metadata: TableMetadata) -> None:
    """Refuse a table, with its Java object, whose REST catalog shows only the latest of its snapshots."""
    of_rest = str(table.operations().getClass().getName()).startswith("org.apache.iceberg.rest.")
    reason = _hidden(spark, table, metadata) if of_rest and len(metadata.snapshots) < 2 else ""
    if reason:
        raise errors.HiddenHistoryError(
            f"The catalog of '{name}' hides its history: {reason}",
            subject="catalog_properties",
            remedy="use a catalog that shows every snapshot (with Nessie its own catalog type, for all writers: "
            "type=nessie, uri=.../api/v2), or set on_history_gap=reexport: then every sync that finds something new "
            "exports the whole table, behind the alias",
        )


def _hidden(spark: SparkSession, table: Any, metadata: TableMetadata) -> str:
    operations, io = table.operations(), table.operations().io()
    with suppress(PySparkException, Py4JError):  # not every implementation of FileIO shows its properties
        # They are those of the catalog, merged with those of the server.
        if not metadata.has_metadata_log and io.properties().containsKey("nessie.is-nessie-catalog"):
            return "Nessie's REST endpoint shows only the latest snapshot of a table"
    if not metadata.snapshots:
        return ""
    only = metadata.snapshots[0]
    if only.parent_snapshot_id is None and only.sequence_number <= 1:
        return ""
    with suppress(PySparkException, Py4JError):  # the file may be one that only the catalog can read
        recorded = iceberg_class(spark, "TableMetadataParser").read(io, operations.current().metadataFileLocation())
        if recorded.snapshots().size() > 1:
            return f"it shows only snapshot {only.snapshot_id}, but the table's metadata file has more"
    return ""
