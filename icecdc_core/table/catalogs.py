"""Load a table from its catalog; what goes wrong there becomes one typed error with the remedy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from icecdc_core.errors import CatalogError, DependencyError, IcecdcError, TableNotFoundError
from icecdc_core.secrets import masked
from icecdc_core.session.jvm import iceberg_class, java_class
from icecdc_core.session.packages import bundle_package

_NO_TABLE = re.compile(
    "TABLE_OR_VIEW_NOT_FOUND|NoSuchTable|NoSuchNamespace|SCHEMA_NOT_FOUND|ClassCastException|is not an Iceberg table"
)
# A class that is not there, by its package; and the sign of the file system that is tried when the classes are not.
_MISSING_BUNDLES = {
    "iceberg-aws-bundle": re.compile(r'software[./]amazon[./]awssdk|No FileSystem for scheme "s3"'),
    "iceberg-gcp-bundle": re.compile(r'com[./]google[./](cloud|auth)[./]|No FileSystem for scheme "gs"'),
    "iceberg-azure-bundle": re.compile(r'com[./]azure[./]|No FileSystem for scheme "(abfss?|wasbs?)"'),
}
_MISSING = re.compile("ClassNotFoundException|NoClassDefFoundError|No FileSystem for scheme")
_CREDENTIALS = re.compile(
    r"NotAuthorized|Forbidden|AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|Unable to load credentials"
    r"|UnrecognizedClientException|MissingAuthenticationToken|ExpiredToken|InvalidClientTokenId"
    r"|Status Code: 40[13]\b|\bcode: 40[13]\b"
)
_HINTS = {
    "in catalog_properties the type is one of hadoop, hive, jdbc, rest, glue, nessie; another catalog is named by "
    "catalog-impl instead": re.compile("Unknown catalog type|Cannot initialize Catalog|Cannot find constructor"),
    "nothing answers there: catalog_properties.uri (and for an object store the endpoint) must be one that this driver "
    "reaches": re.compile(
        r"ConnectException|UnknownHost|NoRouteToHost|Connection refused|Connect(ion)?TimeoutException|SocketTimeout"
        r"|TTransportException|UnresolvedAddress|ConnectionFailed|Unable to execute HTTP request"
    ),
    "the driver of that database is a jar of its own: name it in spark_conf under spark.jars.packages": re.compile(
        "No suitable driver"
    ),
    "the credentials are refused: those in catalog_properties (token, credential, s3.access-key-id and "
    "s3.secret-access-key, ...) as references like env:NAME, else those of the environment of driver and executors": (
        _CREDENTIALS
    ),
}


@dataclass(frozen=True)
class CatalogView:
    """What is known of a table's catalog beside the metadata that it shows.

    Attributes:
        is_rest: Whether it is a REST catalog, whose server decides what it shows.
        property_names: The names of its properties, the server's among them.
        recorded_snapshots: Reads which snapshots the metadata file itself has; none when it cannot be read.
    """

    is_rest: bool
    property_names: frozenset[str]
    recorded_snapshots: Callable[[], frozenset[int]]


def load_table(spark: SparkSession, name: str) -> Any:
    """Load a table as its catalog shows it now; returns Iceberg's Java object.

    Args:
        spark: A session in which the table's catalog is configured.
        name: ``catalog.namespace.table`` as Spark names it.

    Raises:
        TableNotFoundError: There is no such table, or it is not an Iceberg table.
        DependencyError: A jar that the catalog or its store needs is not there.
        CatalogError: The catalog cannot be reached or is not configured.
    """
    try:
        with _active(spark):
            _require_catalog(spark, name)
            table = iceberg_class(spark, "spark.Spark3Util").loadIcebergTable(spark._jsparkSession, name)
        table.refresh()
        return table
    except (PySparkException, Py4JError) as error:
        raise _typed(error, spark, name) from error


def view_catalog(spark: SparkSession, table: Any) -> CatalogView:
    """Look at the catalog behind a table that `load_table` returned."""
    operations, io = table.operations(), table.io()

    def recorded_snapshots() -> frozenset[int]:
        try:
            recorded = iceberg_class(spark, "TableMetadataParser").read(io, operations.current().metadataFileLocation())
            return frozenset(int(snapshot.snapshotId()) for snapshot in recorded.snapshots())
        except (PySparkException, Py4JError):
            return frozenset()

    try:
        # The file access of a table is made with the catalog's properties, as merged with those of the server.
        names = frozenset(map(str, io.properties().keySet()))
    except (PySparkException, Py4JError):  # not every implementation tells them
        names = frozenset()
    is_rest = str(operations.getClass().getName()).startswith("org.apache.iceberg.rest.")
    return CatalogView(is_rest, names, recorded_snapshots)


def create_own(spark: SparkSession, name: str, schema: str, properties: Mapping[str, str] | None = None) -> None:
    """Make a table of icecdc's own unless it is there; another run may do the same at the same time.

    Args:
        spark: A session in which the table's catalog is configured.
        name: The table, every part quoted.
        schema: Its columns in Spark's DDL.
        properties: Table properties beside the format version, which is 2.
    """
    if spark.catalog.tableExists(name):
        return
    writer = spark.createDataFrame([], schema).writeTo(name).using("iceberg")
    for key, value in {"format-version": "2", **(properties or {})}.items():
        writer = writer.tableProperty(key, value)
    try:
        writer.create()
    except (PySparkException, Py4JError):
        if not spark.catalog.tableExists(name):  # else another run was faster
            raise


def told(error: PySparkException | Py4JError) -> str:
    """What a catalog's failure says, in one line and without secrets."""
    return masked(_told(_reasons(error)))


def is_refused_access(text: str) -> bool:
    """Whether a failure says that the credentials are wrong or do not suffice."""
    return _CREDENTIALS.search(text) is not None


def _typed(error: PySparkException | Py4JError, spark: SparkSession, name: str) -> IcecdcError:
    reasons = _reasons(error)
    text = " ".join([*reasons, str(error).strip()])
    bundle = next((name for name, sign in _MISSING_BUNDLES.items() if sign.search(text)), None)
    if bundle is not None and _MISSING.search(text):
        return DependencyError(
            f"The catalog of '{name}' needs a jar that this Spark session does not have: {masked(_told(reasons))}",
            subject="catalog_properties",
            remedy=f"on Databricks attach {bundle_package(bundle, spark.version)} to the cluster as a Maven library; "
            "elsewhere end this session: get_spark starts one with the jars that catalog_properties ask for, and with "
            "those that spark_conf names under spark.jars.packages",
        )
    if _NO_TABLE.search(text):
        return TableNotFoundError(
            f"The table '{name}' does not exist in its catalog, or is not an Iceberg table",
            subject="table",
            value=name,
            remedy="check catalog, namespace and table name; `SHOW TABLES IN <catalog>.<namespace>` lists them",
        )
    hint = next((hint for hint, signs in _HINTS.items() if signs.search(text)), None)
    return CatalogError(
        f"The catalog of '{name}' cannot be used: {masked(_told(reasons))}",
        subject="catalog_properties",
        remedy="check the catalog's type, address and credentials" + (f": {hint}" if hint else ""),
    )


def _told(reasons: list[str]) -> str:
    """What the outermost exception says and, where that is another one, the innermost."""
    outer, inner = reasons[0], reasons[-1]
    return outer if inner in outer else f"{outer} - {inner}"


def _reasons(error: PySparkException | Py4JError) -> list[str]:
    """The first line of every exception in the chain, outermost first."""
    each = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
    if each is None:
        return str(error).strip().splitlines()[:1]
    reasons = []
    while each is not None:
        reasons.append(str(each.toString()).splitlines()[0])
        each = each.getCause()
    return reasons


@contextmanager
def _active(spark: SparkSession) -> Iterator[None]:
    """Make the session the active one: Spark makes a catalog from the settings of that, whichever session is asked."""
    sessions = java_class(spark, "org.apache.spark.sql.classic.SparkSession")
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def _require_catalog(spark: SparkSession, name: str) -> None:
    """Load the catalog first: looked up together with the table, one that fails passes for a namespace."""
    session: Any = spark._jsparkSession
    state = session.sessionState()
    state.catalogManager().catalog(state.sqlParser().parseMultipartIdentifier(name).head())
