"""Loads tables from their catalog; a failure there becomes one typed error with the remedy."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from icecdc_core.errors import CatalogError, DependencyError, HiddenHistoryError, IcecdcError, TableNotFoundError
from icecdc_core.secrets import mask_secrets
from icecdc_core.session.jars import bundle_package
from icecdc_core.session.java_causes import causes
from icecdc_core.session.jvm import iceberg_class
from icecdc_core.session.threads import active_session
from icecdc_core.table.metadata import TableMetadata

_NO_TABLE = frozenset(
    {
        *("NoSuchTableException", "NoSuchIcebergTableException", "NoSuchNamespaceException"),
        *("NoSuchDatabaseException", "ClassCastException"),
    }
)
# A missing class, by its package; and the scheme whose file system is tried when the classes are missing.
_MISSING_BUNDLES = {
    "iceberg-aws-bundle": re.compile(r'software[./]amazon[./]awssdk|No FileSystem for scheme "s3"'),
    "iceberg-gcp-bundle": re.compile(r'com[./]google[./](cloud|auth)[./]|No FileSystem for scheme "gs"'),
    "iceberg-azure-bundle": re.compile(r'com[./]azure[./]|No FileSystem for scheme "(abfss?|wasbs?)"'),
}
_MISSING = re.compile("ClassNotFoundException|NoClassDefFoundError|No FileSystem for scheme")
# The clients of object stores have one class for every answer; their texts carry the store's code.
_CREDENTIALS = re.compile(
    r"NotAuthorized|Forbidden|AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|Unable to load credentials"
    r"|UnrecognizedClientException|MissingAuthenticationToken|ExpiredToken|InvalidClientTokenId"
    r"|Status Code: 40[13]\b|\bcode: 40[13]\b"
)


@dataclass(frozen=True)
class CatalogView:
    """What is known about a table's catalog besides the metadata that it shows."""

    is_rest: bool
    property_names: frozenset[str]
    recorded_snapshots: Callable[[], frozenset[int]]


def load_table(spark: SparkSession, name: str) -> Any:
    """Load a table as its catalog shows it now; returns Iceberg's Java object."""
    try:
        with active_session(spark):
            _require_catalog(spark, name)
            table = iceberg_class(spark, "spark.Spark3Util").loadIcebergTable(spark._jsparkSession, name)
        table.refresh()
        return table
    except (PySparkException, Py4JError) as error:
        raise _typed_error(error, spark, name) from error


def view_catalog(spark: SparkSession, table: Any) -> CatalogView:
    """Return what is known about the catalog of a table that `load_table` returned."""
    operations, io = table.operations(), table.io()

    def recorded_snapshots() -> frozenset[int]:
        try:
            recorded = iceberg_class(spark, "TableMetadataParser").read(io, operations.current().metadataFileLocation())
            return frozenset(int(snapshot.snapshotId()) for snapshot in recorded.snapshots())
        except (PySparkException, Py4JError):
            return frozenset()

    try:
        # A table's FileIO has the catalog's properties, merged with those of the server.
        names = frozenset(map(str, io.properties().keySet()))
    except (PySparkException, Py4JError):  # not every implementation shows them
        names = frozenset()
    is_rest = str(operations.getClass().getName()).startswith("org.apache.iceberg.rest.")
    return CatalogView(is_rest, names, recorded_snapshots)


def create_table_once(
    spark: SparkSession, name: str, schema: str, properties: Mapping[str, str] | None = None, partition: str = ""
) -> None:
    """Create a table of icecdc's own unless it exists; another run may do the same at the same time."""
    if spark.catalog.tableExists(name):
        return
    writer = spark.createDataFrame([], schema).writeTo(name).using("iceberg")
    for key, value in {"format-version": "2", **(properties or {})}.items():
        writer = writer.tableProperty(key, value)
    if partition:
        writer = writer.partitionedBy(F.col(partition))
    try:
        writer.create()
    except (PySparkException, Py4JError):
        if not spark.catalog.tableExists(name):  # else another run created it
            raise


def describe_failure(error: PySparkException | Py4JError) -> str:
    """Return what a catalog's failure says, in one line and without secrets."""
    return mask_secrets(_description(_reasons(error)))


def is_refused_access(text: str) -> bool:
    """Whether a failure says that the credentials are wrong or do not suffice."""
    return _CREDENTIALS.search(text) is not None


def _typed_error(error: PySparkException | Py4JError, spark: SparkSession, name: str) -> IcecdcError:
    reasons = _reasons(error)
    text = " ".join([*reasons, str(error).strip()])
    bundle = next((name for name, sign in _MISSING_BUNDLES.items() if sign.search(text)), None)
    if bundle is not None and _MISSING.search(text):
        return DependencyError(
            f"The catalog of '{name}' needs a jar that this Spark session lacks: {mask_secrets(_description(reasons))}",
            subject="catalog_properties",
            remedy=f"on Databricks attach {bundle_package(bundle, spark.version)} to the cluster as a Maven library; "
            "elsewhere end this session: get_spark starts one with the jars that catalog_properties ask for, and with "
            "those that spark_conf names under spark.jars.packages",
        )
    if any(cause.kind in _NO_TABLE for cause in causes(error)) or "is not an Iceberg table" in text:
        return TableNotFoundError(
            f"The catalog of this session has no Iceberg table '{name}'",
            subject="table",
            value=name,
            remedy="check catalog, namespace and table name; `SHOW TABLES IN <catalog>.<namespace>` lists them; if the "
            "table is in another catalog of that name, give its catalog_properties or warehouse",
        )
    return CatalogError(
        f"The catalog of '{name}' cannot be used: {mask_secrets(_description(reasons))}",
        subject="catalog_properties",
        remedy="check the catalog's type, address and credentials; the type is hadoop, hive, jdbc, rest, glue or "
        "nessie, another one is named by catalog-impl; jars such as the driver of a database go into spark_conf, under "
        "spark.jars.packages",
    )


def _description(reasons: list[str]) -> str:
    """Return what the outermost exception says and, if it differs, the innermost."""
    outer, inner = reasons[0], reasons[-1]
    return outer if inner in outer else f"{outer} - {inner}"


def _reasons(error: PySparkException | Py4JError) -> list[str]:
    """Return the first line of every exception in the chain, outermost first."""
    each = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
    if each is None:
        return str(error).strip().splitlines()[:1]
    reasons = []
    while each is not None:
        reasons.append(str(each.toString()).splitlines()[0])
        each = each.getCause()
    return reasons


def _require_catalog(spark: SparkSession, name: str) -> None:
    """Load the catalog first: in a lookup with the table, a catalog that fails counts as a namespace."""
    session: Any = spark._jsparkSession
    state = session.sessionState()
    state.catalogManager().catalog(state.sqlParser().parseMultipartIdentifier(name).head())


_NESSIE = "nessie.is-nessie-catalog"


def require_visible_history(table: str, metadata: TableMetadata, view: CatalogView) -> None:
    """Refuse a table whose catalog hides its history."""
    reason = _hidden(metadata, view)
    if reason:
        raise HiddenHistoryError(
            f"The catalog of '{table}' hides its history: {reason}",
            subject="catalog_properties",
            remedy="use a catalog that shows every snapshot (with Nessie its own catalog type, for all writers: "
            "type=nessie, uri=.../api/v2), or set on_history_gap=reexport: then every sync that finds something new "
            "exports the whole table, behind the alias",
        )


def _hidden(metadata: TableMetadata, view: CatalogView) -> str:
    if len(metadata.snapshots) > 1:
        return ""
    if view.is_rest and _NESSIE in view.property_names and not metadata.has_metadata_log:
        return "Nessie's REST endpoint shows only the latest snapshot of a table"
    if not metadata.snapshots:
        return ""
    only = metadata.snapshots[0]
    if only.parent_snapshot_id is None and only.sequence_number <= 1:
        return ""
    if not metadata.has_metadata_log:
        return (
            f"it shows only snapshot {only.snapshot_id}, which has sequence number {only.sequence_number}, "
            "and the metadata log says that none has expired"
        )
    recorded = view.recorded_snapshots() if view.is_rest else frozenset()
    if recorded - {only.snapshot_id}:
        return f"it shows only snapshot {only.snapshot_id}, but the table's metadata file has {len(recorded)}"
    return ""
