"""Shared fixtures: one Spark session with Iceberg, one real OpenSearch, fresh tables and indexes for each test."""

import itertools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from opensearchpy import OpenSearch
from opensearchpy.helpers import scan
from pyspark.sql import SparkSession

from icecdc_core import export_table
from icecdc_core.config import SyncConfig
from icecdc_core.ingest import IngestConfig
from icecdc_core.logs import log_fields
from icecdc_core.session.spark import get_spark
from tests.given.kafka_topics import Topic
from tests.servers.catalog_servers import comet_plugin
from tests.servers.shared_servers import server, start_servers
from tests.speed.fast_java import (
    INTERPRETED,
    JAVA_OPTIONS,
    QUICK_DAEMON,
    SPARK_CONF,
    remember_java_names,
    use_memory_for_files,
    use_quick_local_files,
)

sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]  # jsonschema, and so nbformat, would take 4 s for it
os.environ.setdefault("JDK_JAVA_OPTIONS", JAVA_OPTIONS)  # every Java reads them
remember_java_names()
use_memory_for_files()
use_quick_local_files()
_numbers = itertools.count(1)

ACCELERATOR = os.environ.get("ICECDC_ACCELERATOR", "")
"""`comet`: Spark starts with its plugin, and syncs compare rows by it."""

GIVEN_CATALOG = os.environ.get("ICECDC_CATALOG_PROPERTIES", "")
"""Properties of a running catalog, see compose.yaml; empty: the embedded one."""


def pytest_configure(config: pytest.Config) -> None:
    """Several test processes share their servers, which this one starts."""
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        config.add_cleanup(start_servers())


@pytest.fixture(autouse=True)
def log_fields_of_its_own() -> Iterator[None]:
    """Keep the log fields that a test sets from the tests after it."""
    with log_fields():
        yield


@pytest.fixture(scope="session")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("warehouse")


@pytest.fixture(scope="session")
def spark(warehouse: Path) -> Iterator[SparkSession]:
    """The one Spark session of the run; with Kafka's connector, for those who need it."""
    config = IngestConfig(
        job="tests",
        bootstrap_servers="127.0.0.1:9",
        topics="none",
        table="lake.ns.t",
        warehouse=str(warehouse),
        catalog_properties=GIVEN_CATALOG,
        spark_conf={
            "spark.master": "local[2]",
            **SPARK_CONF,
            **QUICK_DAEMON,
            **(comet_plugin() if ACCELERATOR else {}),
        },
    )
    session = get_spark(config)
    session.sparkContext.setLogLevel("ERROR")
    session.sql("CREATE NAMESPACE IF NOT EXISTS lake.ns")
    yield session
    left = {name: session.conf.get(name, None) for name in SPARK_CONF}
    session.stop()
    assert left == SPARK_CONF, "a test changed a setting and did not restore it"


@pytest.fixture
def compiled_plans(spark: SparkSession) -> Iterator[None]:
    """Spark compiles plans in this test, as it does outside the tests."""
    before = {name: spark.conf.get(name) for name in INTERPRETED}
    for name in before:
        spark.conf.unset(name)
    yield
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.fixture(scope="session")
def opensearch_url() -> Iterator[str]:
    """The address of a real OpenSearch: the one named by ICECDC_OPENSEARCH_URL, or an embedded one."""
    with server("ICECDC_OPENSEARCH_URL") as url:
        yield url


@pytest.fixture
def opensearch(opensearch_url: str) -> Iterator[Any]:
    client = OpenSearch(opensearch_url)
    yield client
    client.close()


@pytest.fixture(scope="session")
def kafka() -> Iterator[str]:
    """Bootstrap servers of a real Kafka: those named by ICECDC_BOOTSTRAP_SERVERS, or an embedded broker."""
    with server("ICECDC_BOOTSTRAP_SERVERS") as servers:
        yield servers


@pytest.fixture
def topic(kafka: str) -> Topic:
    """A topic of two partitions that no other test uses."""
    return Topic(kafka)


@pytest.fixture
def make_ingest(kafka: str, warehouse: Path, name: str, topic: Topic) -> Callable[..., IngestConfig]:
    """Build an IngestConfig from this test's topic to this test's table; keyword arguments override."""

    def build(**overrides: Any) -> IngestConfig:
        values = {
            "job": name,
            "bootstrap_servers": kafka,
            "topics": [topic.name],
            "table": f"lake.ns.{name}",
            "namespace": f"lake.{name}",
            "warehouse": str(warehouse),
            "catalog_properties": GIVEN_CATALOG,
        }
        if "route_by" in overrides:
            del values["table"]
        return IngestConfig(**{**values, **overrides})

    return build


@pytest.fixture
def name() -> str:
    """A table and index name that no other test uses."""
    return f"t{next(_numbers)}_{os.getpid()}"


@pytest.fixture
def make_config(
    opensearch: Any, opensearch_url: str, warehouse: Path, name: str
) -> Iterator[Callable[..., SyncConfig]]:
    """Build a SyncConfig for the table and index of this test; keyword arguments override."""
    values = {
        "table": f"lake.ns.{name}",
        "index": name,
        "opensearch_url": opensearch_url,
        "warehouse": str(warehouse),
        "catalog_properties": GIVEN_CATALOG,
        "identifier_columns": ["id"],
        "positions_index": f"positions-{name}",
        "accelerator": ACCELERATOR,
    }
    yield lambda **overrides: SyncConfig(**{**values, **overrides})
    # With each index that is there, OpenSearch takes longer to make another.
    wanted = f"{name}-*,positions-{name}"
    opensearch.indices.delete(index=wanted, params={"expand_wildcards": "all", "ignore_unavailable": "true"})


@pytest.fixture
def sql(spark: SparkSession, name: str) -> Iterator[Callable[..., Any]]:
    """Run statements about this test's table, ``{t}``; returns what the last one gives."""

    def run(*statements: str) -> Any:
        return [spark.sql(statement.replace("{t}", f"lake.ns.{name}")) for statement in statements][-1]

    yield run
    spark.sql(f"DROP TABLE IF EXISTS lake.ns.{name}")


@pytest.fixture
def new_index(spark: SparkSession, sql: Callable[..., Any], make_config: Callable[..., SyncConfig]) -> Any:
    """Run the statements that make this test's table, and export it; returns its parameters, which keywords set."""

    def run(*statements: str, **overrides: Any) -> SyncConfig:
        for statement in statements:
            sql(statement)
        config = make_config(**overrides)
        export_table(spark, config)
        return config

    return run


@pytest.fixture
def indexed(opensearch: Any, name: str) -> Callable[..., dict[str, dict[str, Any]]]:
    """Read the whole index, id to document, without any code of icecdc."""

    def read(index: str = name) -> dict[str, dict[str, Any]]:
        opensearch.indices.refresh(index=index)
        return {hit["_id"]: hit["_source"] for hit in scan(opensearch, index=index)}

    return read
