"""The jars that a session and the embedded services need: Maven coordinates, and files fetched once and checked.

In: the Spark line and the catalog properties. Out: coordinates for Spark, or paths of verified jars.
"""

import hashlib
import json
import os
import re
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException
from importlib import resources
from pathlib import Path

from icecdc_core.dependencies import user_folder
from icecdc_core.errors import ConfigError, DependencyError, DownloadError
from icecdc_core.session.processes import one_process_at_a_time

MAVEN_VARIABLE = "ICECDC_MAVEN_URL"
_cache = partial(user_folder, "XDG_CACHE_HOME", ".cache")


@dataclass(frozen=True)
class Jar:
    """A file of a Maven repository; ``artifact`` is group:artifact:version, with a classifier if there is one."""

    artifact: str
    sha256: str
    size: int
    extension: str = "jar"

    def is_listed(self, content: bytes) -> bool:
        return hashlib.sha256(content).hexdigest() == self.sha256

    @property
    def file_name(self) -> str:
        """Its name in the cache folder; it includes the group, because artifact names repeat."""
        return f"{self.artifact.replace(':', '-')}.{self.extension}"

    @property
    def url(self) -> str:
        group, name, version, *classifier = self.artifact.split(":")
        file = f"{'-'.join([name, version, *classifier])}.{self.extension}"
        repository = os.environ.get(MAVEN_VARIABLE) or "https://repo1.maven.org/maven2"
        if re.search("://[^/]*@", repository):  # urllib cannot use it, and its errors would show the password
            raise ConfigError(
                "The address of the Maven mirror must not contain a user or a password (value not shown)",
                subject=MAVEN_VARIABLE,
                remedy="name a mirror that asks for none, or a folder with the jars as file:///path",
            )
        return "/".join([repository.rstrip("/"), *group.split("."), name, version, file])


def kafka_jars(part: str) -> list[Path]:
    return jars_in_cache(listed_jars("icecdc_core.session", "kafka_jars.json", part), f"kafka-{part}")


def listed_jars(package: str, manifest: str, part: str) -> list[Jar]:
    listed = json.loads(resources.files(package).joinpath(manifest).read_text(encoding="utf-8"))
    return [Jar(**entry) for entry in listed[part]]


def jars_in_cache(jars: list[Jar], name: str) -> list[Path]:
    """Return the files of these jars; those that are missing or damaged are fetched."""
    cache = _cache()
    files = {jar: cache / name / jar.file_name for jar in jars}
    try:
        with cache_lock(name):
            wanted = [jar for jar, file in files.items() if not (file.is_file() and jar.is_listed(file.read_bytes()))]
            if wanted:
                size = sum(jar.size for jar in wanted) // 1_000_000
                print(f"icecdc downloads {len(wanted)} jars ({size} MB) to {cache / name}", file=sys.stderr)  # noqa: T201
                (cache / name).mkdir(exist_ok=True)
            with ThreadPoolExecutor(8) as pool:
                for jar, content in zip(wanted, pool.map(_download, wanted), strict=True):
                    files[jar].write_bytes(content)
    except OSError as error:
        raise DownloadError(
            f"The cache folder cannot be used: {error}",
            subject="folder",
            value=str(cache),
            remedy="free some space and make it writable, or set XDG_CACHE_HOME to another folder",
        ) from error
    return list(files.values())


def cache_lock(name: str) -> AbstractContextManager[None]:
    return one_process_at_a_time(_cache() / f".{name}.lock", "XDG_CACHE_HOME")


def _download(jar: Jar) -> bytes:
    try:
        with urllib.request.urlopen(jar.url, timeout=60) as answer:  # noqa: S310 (a mirror may be a folder)
            content = bytes(answer.read())
    except (OSError, HTTPException, ValueError) as error:
        raise DownloadError(
            f"A jar of the embedded service could not be fetched: {error}",
            subject="url",
            value=jar.url,
            remedy=f"check the network and HTTPS_PROXY, or set {MAVEN_VARIABLE} to the address of your Maven mirror",
        ) from error
    if not jar.is_listed(content):
        raise DownloadError(
            "A jar of the embedded service is not the one that is listed (its SHA-256 differs)",
            subject="url",
            value=jar.url,
            remedy="run again; if that fails too, a mirror or proxy changes the file",
        )
    return content


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


def needed_bundles(settings: Mapping[str, str]) -> list[str]:
    texts = [re.sub(r"^spark\.sql\.catalog\.[^.]+\.", "", f"{key}={value}") for key, value in settings.items()]
    return [bundle for bundle, sign in BUNDLES.items() if any(sign.search(text) for text in texts)]


def iceberg_package(name: str, pyspark_version: str) -> str:
    return f"org.apache.iceberg:{name}:{ICEBERG_RUNTIMES[spark_line(pyspark_version)]}"


def iceberg_packages(pyspark_version: str, bundles: Sequence[str] = ()) -> list[str]:
    names = f"iceberg-spark-runtime-{spark_line(pyspark_version)}_{SCALA_VERSION}", *bundles
    return [*(iceberg_package(name, pyspark_version) for name in names), SQLITE_JDBC]


def avro_package(pyspark_version: str) -> str:
    return f"org.apache.spark:spark-avro_{SCALA_VERSION}:{AVRO_VERSIONS[spark_line(pyspark_version)]}"


def spark_line(pyspark_version: str) -> str:
    line = ".".join(pyspark_version.split(".")[:2])
    if line not in ICEBERG_RUNTIMES:
        raise DependencyError(
            f"No Iceberg runtime is known for pyspark {pyspark_version}",
            subject="pyspark",
            value=pyspark_version,
            remedy="install one of the supported lines: " + ", ".join(f"pyspark=={key}.*" for key in ICEBERG_RUNTIMES),
        )
    return line
