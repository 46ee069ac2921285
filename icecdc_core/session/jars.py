"""The jars that a session and the embedded services need: Maven coordinates, and files fetched once and checked.

In: the Spark line and the catalog properties. Out: coordinates for Spark, or paths of verified jars.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from xml.sax.saxutils import quoteattr

from icecdc_core.dependencies import user_folder
from icecdc_core.errors import DependencyError, DiskFullError, DownloadError
from icecdc_core.session.java import JavaHome

IVY_SETTINGS_VARIABLE = "ICECDC_IVY_SETTINGS"
_DOWNLOAD_SECONDS = 1200
_NO_SPACE = "No space left on device"

# Maven Central without POMs: the manifest lists all jars, and reading POMs takes longer.
_IVY_SETTINGS = """<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true" usepoms="false" useMavenMetadata="false"/></resolvers>
</ivysettings>
"""


@dataclass(frozen=True)
class Jar:
    """A jar as the manifest lists it."""

    group: str
    artifact: str
    version: str
    sha256: str
    size: int
    classifier: str = ""
    extension: str = "jar"

    @property
    def file_name(self) -> str:
        """Its name in the cache folder; it includes the group, because artifact names repeat."""
        return "-".join(filter(None, (self.group, self.artifact, self.version, self.classifier))) + f".{self.extension}"


def _ivy_module(jars: list[Jar]) -> str:
    # Ivy accepts each module once, so jars that differ only by classifier become artifacts of one dependency.
    modules: dict[tuple[str, str, str], list[str]] = {}
    for jar in jars:
        classifier = f" m:classifier={quoteattr(jar.classifier)}" if jar.classifier else ""
        kind = quoteattr(jar.extension)
        artifact = f"<artifact name={quoteattr(jar.artifact)} type={kind} ext={kind}{classifier}/>"
        modules.setdefault((jar.group, jar.artifact, jar.version), []).append(artifact)
    dependencies = "\n".join(
        f"<dependency org={quoteattr(group)} name={quoteattr(name)} rev={quoteattr(version)} "
        f'conf="default->master(*)" transitive="false">{"".join(artifacts)}</dependency>'
        for (group, name, version), artifacts in modules.items()
    )
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="icecdc" module="embedded-services"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>\n{dependencies}\n</dependencies></ivy-module>\n"
    )


def spark_jar(name: str) -> Path:
    """Return a jar of the Spark installation, by its name without the version."""
    spec = importlib.util.find_spec("pyspark")
    homes = [Path(os.environ["SPARK_HOME"])] if os.environ.get("SPARK_HOME") else []
    homes += [Path(spec.origin).parent] if spec and spec.origin else []
    for home in homes:
        for jar in sorted((home / "jars").glob(f"{name}-[0-9]*.jar")):
            return jar
    raise DependencyError(
        f"The embedded services need the jar of '{name}' that comes with Spark, and it was not found",
        remedy="pip install 'icecdc[local]'",
    )


def _run_ivy(command: list[str]) -> None:
    try:
        ended = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_DOWNLOAD_SECONDS, check=False
        )
        text, failed = ended.stdout + ended.stderr, ended.returncode != 0
    except subprocess.TimeoutExpired:
        text, failed = f"Exception: not finished after {_DOWNLOAD_SECONDS} seconds", True
    if not failed:
        return
    if _NO_SPACE in text:
        raise OSError(errno.ENOSPC, _NO_SPACE)
    signs = ("ERROR:", "FAILED", "not found", "Exception", "could not", "unknown host")
    lines = [line.strip() for line in text.splitlines() if any(sign in line for sign in signs)] or text.splitlines()
    raise DownloadError(
        "The jars of the embedded service could not be fetched: " + " / ".join(lines[:5]),
        subject=IVY_SETTINGS_VARIABLE,
        value=os.environ.get(IVY_SETTINGS_VARIABLE, ""),
        remedy="check the network and the proxy (JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=... -Dhttps.proxyPort=...), "
        f"or set {IVY_SETTINGS_VARIABLE} to an Ivy settings file that names your mirror, "
        "or use a server of your own (opensearch_url, bootstrap_servers)",
    )


def kafka_jars(part: str, java: JavaHome) -> list[Path]:
    """The jars of one part of Kafka in the cache folder; they are downloaded if they are missing."""
    return jars_in_cache(read_manifest("icecdc_core.session", "kafka_jars.json")[part], f"kafka-{part}", java)


def read_manifest(package: str, name: str) -> dict[str, list[Jar]]:
    """The jars of each version or part, as a manifest in a package lists them."""
    manifest = json.loads(resources.files(package).joinpath(name).read_text(encoding="utf-8"))
    return {part: read_jars(entries) for part, entries in manifest.items()}


def read_jars(entries: list[dict[str, str | int]]) -> list[Jar]:
    """The jars as a manifest lists them: `artifact` (group:artifact:version, and a classifier), `sha256`, `size`."""
    jars = []
    for entry in entries:
        group, artifact, number, *classifier = str(entry["artifact"]).split(":")
        extension = str(entry.get("extension", "jar"))
        digest, size = str(entry["sha256"]), int(entry["size"])
        jars.append(Jar(group, artifact, number, digest, size, "".join(classifier), extension))
    return jars


def jars_in_cache(jars: list[Jar], name: str, java: JavaHome) -> list[Path]:
    """Return jars in the cache folder; download them if they are missing."""
    cache = _cache()
    folder = cache / name
    try:
        with one_process_at_a_time(name):
            if not all((folder / jar.file_name).is_file() for jar in jars):
                _fetch(jars, folder, java)
            _check(jars, folder)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFullError(
                "No room left for the jars of the embedded service (about 120 MB while fetching)",
                subject="folder",
                value=str(cache),
                remedy="free some space, or set XDG_CACHE_HOME to a folder on another disk",
            ) from error
        raise DownloadError(
            f"The cache folder cannot be used: {error}",
            subject="folder",
            value=str(cache),
            remedy="make it writable, or set XDG_CACHE_HOME to a folder that is",
        ) from error
    return [folder / jar.file_name for jar in jars]


@contextmanager
def one_process_at_a_time(name: str) -> Iterator[None]:
    """Run the block in one process of this user at a time; the operating system frees the lock of one that dies."""
    _cache().mkdir(parents=True, exist_ok=True)
    with (_cache() / f".{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _cache() -> Path:
    return user_folder("XDG_CACHE_HOME", ".cache")


def _check(jars: list[Jar], folder: Path) -> None:
    for jar in jars:
        path = folder / jar.file_name
        if hashlib.sha256(path.read_bytes()).hexdigest() != jar.sha256:
            shutil.rmtree(folder, ignore_errors=True)
            raise DownloadError(
                "A jar of the embedded service is not the one that is listed (its SHA-256 differs); it was deleted",
                subject="jar",
                value=str(path),
                remedy="run again to download it again; if that fails too, a mirror or proxy changes the file",
            )


def _fetch(jars: list[Jar], folder: Path, java: JavaHome) -> None:
    """Download into a temporary folder beside the final one, check, then rename: the folder is complete or missing."""
    size = sum(jar.size for jar in jars) // 1_000_000
    print(f"icecdc downloads {len(jars)} jars ({size} MB) to {folder}", file=sys.stderr)  # noqa: T201
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        (temporary / "ivy.xml").write_text(_ivy_module(jars), encoding="utf-8")
        (temporary / "ivysettings.xml").write_text(_IVY_SETTINGS, encoding="utf-8")
        given = os.environ.get(IVY_SETTINGS_VARIABLE, "")
        settings = Path(given).expanduser().resolve() if given else temporary / "ivysettings.xml"
        # fmt: off
        command = [
            str(java.executable), "-jar", str(spark_jar("ivy")), "-ivy", str(temporary / "ivy.xml"),
            "-settings", str(settings), "-cache", str(temporary / "cache"),
            "-retrieve", f"{temporary}/jars/[organisation]-[artifact]-[revision](-[classifier]).[ext]",
        ]
        # fmt: on
        _run_ivy(command)
        _check(jars, temporary / "jars")
        shutil.rmtree(folder, ignore_errors=True)
        (temporary / "jars").rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


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


def bundle_package(bundle: str, pyspark_version: str) -> str:
    """Return the Maven coordinate of one of the `BUNDLES`: the version of the Iceberg runtime."""
    return f"org.apache.iceberg:{bundle}:{_iceberg_version(pyspark_version)[1]}"


def iceberg_packages(pyspark_version: str, bundles: Sequence[str] = ()) -> list[str]:
    """Return the Maven coordinates that fit a pyspark version."""
    line, version = _iceberg_version(pyspark_version)
    runtime = f"org.apache.iceberg:iceberg-spark-runtime-{line}_{SCALA_VERSION}:{version}"
    return [runtime, SQLITE_JDBC, *(bundle_package(bundle, pyspark_version) for bundle in bundles)]


def kafka_package(pyspark_version: str) -> str:
    """Return the Maven coordinate of Spark's Kafka connector, for a cluster that has none."""
    return f"org.apache.spark:spark-sql-kafka-0-10_{SCALA_VERSION}:{pyspark_version}"


def kafka_connector(pyspark_version: str) -> str:
    """Return which part of `kafka_jars.json` has Spark's Kafka connector for a local session.

    Those are listed jars, not the coordinate of `kafka_package`: not every patch version of Spark has all of its parts
    in every repository, and any patch version of the connector fits its line.
    """
    return f"connector-{_iceberg_version(pyspark_version)[0]}"


def avro_package(pyspark_version: str) -> str:
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
