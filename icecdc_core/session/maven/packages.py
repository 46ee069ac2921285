"""Maven coordinates of the jars that a session needs: the Iceberg runtime, clients of object stores, Kafka and Avro."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pyspark

from icecdc_core.errors import DependencyError

# The Iceberg runtime for each Spark line, as tested together.
ICEBERG_RUNTIMES = {"4.0": "1.11.0", "4.1": "1.12.0"}
# Not every repository has the Avro reader of every patch version of Spark; any patch version fits its line.
AVRO_VERSIONS = {"4.0": "4.0.0", "4.1": "4.1.1"}
SCALA_VERSION = "2.13"
SQLITE_JDBC = "org.xerial:sqlite-jdbc:3.47.1.0"
# The jar that the client of an object store needs, and the catalog properties that show its use.
BUNDLES = {
    "iceberg-aws-bundle": re.compile(
        r"^type=glue$|^(s3|glue|dynamodb)\.|^rest\.sig(v4|ning)|=(s3[an]?://|arn:aws)|iceberg\.aws\.|software\.amazon"
    ),
    "iceberg-gcp-bundle": re.compile(r"^gcs\.|=gs://|iceberg\.gcp\."),
    "iceberg-azure-bundle": re.compile(r"^adls\.|=(abfs|wasb)s?://|iceberg\.azure\."),
}


def needed_bundles(properties: Mapping[str, str]) -> list[str]:
    """Return the names of the jars that the object stores in these catalog properties need."""
    properties_text = [f"{key}={value}" for key, value in properties.items()]
    return [bundle for bundle, sign in BUNDLES.items() if any(sign.search(text) for text in properties_text)]


def bundle_package(bundle: str, pyspark_version: str = pyspark.__version__) -> str:
    """Return the Maven coordinate of one of the `BUNDLES`: the version of the Iceberg runtime."""
    return f"org.apache.iceberg:{bundle}:{_iceberg_version(pyspark_version)[1]}"


def iceberg_packages(pyspark_version: str = pyspark.__version__, bundles: Sequence[str] = ()) -> list[str]:
    """Return the Maven coordinates that fit a pyspark version."""
    line, version = _iceberg_version(pyspark_version)
    runtime = f"org.apache.iceberg:iceberg-spark-runtime-{line}_{SCALA_VERSION}:{version}"
    return [runtime, SQLITE_JDBC, *(bundle_package(bundle, pyspark_version) for bundle in bundles)]


def kafka_package(pyspark_version: str = pyspark.__version__) -> str:
    """Return the Maven coordinate of Spark's Kafka connector, for a cluster that has none."""
    return f"org.apache.spark:spark-sql-kafka-0-10_{SCALA_VERSION}:{pyspark_version}"


def kafka_connector(pyspark_version: str = pyspark.__version__) -> str:
    """Return which part of `kafka_jars.json` has Spark's Kafka connector for a local session.

    Those are listed jars, not the coordinate of `kafka_package`: not every patch version of Spark has all of its parts
    in every repository, and any patch version of the connector fits its line.
    """
    return f"connector-{_iceberg_version(pyspark_version)[0]}"


def avro_package(pyspark_version: str = pyspark.__version__) -> str:
    """Return the Maven coordinate of Spark's Avro reader, which the Avro formats of the ingest need."""
    return f"org.apache.spark:spark-avro_{SCALA_VERSION}:{AVRO_VERSIONS[_iceberg_version(pyspark_version)[0]]}"


def merge_packages(needed: Sequence[str], given: str | None) -> str:
    """Return the value of ``spark.jars.packages``: the needed packages and those of the user."""
    if given is None or not given.strip():
        return ",".join(needed) if given is None else ""
    own = [coordinate.strip() for coordinate in given.split(",") if coordinate.strip()]
    replaced = {_artifact(coordinate) for coordinate in own}
    return ",".join([*(each for each in needed if _artifact(each) not in replaced), *own])


def _artifact(coordinate: str) -> str:
    # The runtime for another Spark line counts as another version of the same jar.
    return re.sub(r"(iceberg-spark-runtime)-[^:]*", r"\1", coordinate.rpartition(":")[0])


def _iceberg_version(pyspark_version: str) -> tuple[str, str]:
    line = ".".join(pyspark_version.split(".")[:2])
    if line not in ICEBERG_RUNTIMES:
        raise DependencyError(
            f"No Iceberg runtime is known for pyspark {pyspark_version}",
            subject="pyspark",
            value=pyspark_version,
            remedy="install one of the supported lines: " + ", ".join(f"pyspark=={key}.*" for key in ICEBERG_RUNTIMES),
        )
    return line, ICEBERG_RUNTIMES[line]
