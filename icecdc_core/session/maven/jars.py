"""Jars in the user's cache folder: downloaded once, and each checked by SHA-256.

`kafka_jars.json` lists the jars of the embedded broker and of Spark's Kafka connector. It was made with
`mvn dependency:copy-dependencies -DincludeScope=runtime` on a pom whose only dependencies are `kafka_2.13`,
`log4j-core` and `log4j-slf4j-impl`. Apache Ivy, which is part of Spark, downloads exactly the listed jars.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

from icecdc_core.errors import DownloadError
from icecdc_core.session.java import JavaHome
from icecdc_core.session.maven.ivy import IVY_SETTINGS_VARIABLE, Jar, disk_error, fetch_jars
from icecdc_core.user_folders import user_folder


def kafka_jars(part: str, java: JavaHome, ivy_settings: str = "") -> list[Path]:
    """The jars of one part of Kafka in the cache folder; they are downloaded if they are missing."""
    return jars_in_cache(
        read_jars(read_manifest("icecdc_core.session.maven", "kafka_jars.json")[part]),
        f"kafka-{part}",
        java,
        ivy_settings,
    )


def read_jars(entries: list[dict[str, str | int]]) -> list[Jar]:
    """The jars as a manifest lists them: `artifact` (group:artifact:version, and a classifier), `sha256`, `size`."""
    jars = []
    for entry in entries:
        group, artifact, number, *classifier = str(entry["artifact"]).split(":")
        jars.append(Jar(group, artifact, number, str(entry["sha256"]), int(entry["size"]), "".join(classifier)))
    return jars


def jars_in_cache(jars: list[Jar], name: str, java: JavaHome, ivy_settings: str = "") -> list[Path]:
    """Return jars in the cache folder; download them if they are missing."""
    cache = _cache()
    folder = cache / name
    try:
        with one_process_at_a_time(name):
            if not all((folder / jar.file_name).is_file() for jar in jars):
                _fetch(jars, folder, java, ivy_settings or os.environ.get(IVY_SETTINGS_VARIABLE, ""))
            _check(jars, folder)
    except OSError as error:
        raise disk_error(error, cache) from error
    return [folder / jar.file_name for jar in jars]


def read_manifest(package: str, name: str) -> dict[str, list[dict[str, str | int]]]:
    """Return a manifest of jars from a package: the jars of each version or part."""
    text = resources.files(package).joinpath(name).read_text(encoding="utf-8")
    manifest: dict[str, list[dict[str, str | int]]] = json.loads(text)
    return manifest


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


def _fetch(jars: list[Jar], folder: Path, java: JavaHome, ivy_settings: str) -> None:
    """Download into a temporary folder beside the final one, check, then rename: the folder is complete or missing."""
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        fetched = fetch_jars(jars, temporary, java, ivy_settings)
        _check(jars, fetched)
        shutil.rmtree(folder, ignore_errors=True)
        fetched.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
