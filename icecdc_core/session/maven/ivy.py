"""Download listed artifacts with Apache Ivy, which is part of Spark."""

from __future__ import annotations

import errno
import importlib.util
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from icecdc_core.dependencies import progress_bar
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


def fetch_jars(jars: list[Jar], temporary: Path, java: JavaHome, ivy_settings: str) -> Path:
    """Download the jars, without their dependencies, into a folder within the temporary one."""
    (temporary / "ivy.xml").write_text(_ivy_module(jars), encoding="utf-8")
    settings = Path(ivy_settings).expanduser().resolve() if ivy_settings else temporary / "ivysettings.xml"
    if not ivy_settings:
        settings.write_text(_IVY_SETTINGS, encoding="utf-8")
    # fmt: off
    command = [
        str(java.executable), "-jar", str(spark_jar("ivy")), "-ivy", str(temporary / "ivy.xml"),
        "-settings", str(settings), "-cache", str(temporary / "cache"),
        "-retrieve", f"{temporary}/jars/[organisation]-[artifact]-[revision](-[classifier]).[ext]",
    ]
    # fmt: on
    _run_ivy(command, temporary, sum(jar.size for jar in jars), ivy_settings)
    return temporary / "jars"


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
        f'<configurations><conf name="default"/></configurations>'
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


def _run_ivy(command: list[str], temporary: Path, total_bytes: int, ivy_settings: str) -> None:
    log = temporary / "ivy.log"
    with log.open("w") as output, progress_bar(total=total_bytes, unit="B", unit_scale=True, desc="jars") as bar:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        deadline, seen = time.monotonic() + _DOWNLOAD_SECONDS, 0
        try:
            while process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.3)
                size = max(seen, _size_of_jars(temporary / "cache"))
                bar.update(size - seen)
                seen = size
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        if process.returncode == 0:
            bar.update(total_bytes - seen)
            return
    text = log.read_text(encoding="utf-8", errors="replace")
    if _NO_SPACE in text:
        raise disk_error(OSError(errno.ENOSPC, _NO_SPACE), temporary.parent)
    signs = ("ERROR:", "FAILED", "not found", "Exception", "could not", "unknown host")
    lines = [line.strip() for line in text.splitlines() if any(sign in line for sign in signs)] or text.splitlines()
    raise DownloadError(
        "The jars of the embedded service could not be fetched: " + " / ".join(lines[:5]),
        subject=IVY_SETTINGS_VARIABLE,
        value=ivy_settings,
        remedy="check the network and the proxy (JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=... -Dhttps.proxyPort=...), "
        f"or set {IVY_SETTINGS_VARIABLE} to an Ivy settings file that names your mirror, "
        "or use a server of your own (opensearch_url, bootstrap_servers)",
    )


def _size_of_jars(folder: Path) -> int:
    size = 0
    for path in folder.rglob("*ar*"):
        try:
            size += path.stat().st_size
        except OSError:  # renamed by Ivy between listing and looking
            continue
    return size


def disk_error(error: OSError, folder: Path) -> DiskFullError | DownloadError:
    """The typed error for an error of the operating system in the cache folder."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFullError(
            "No room left for the jars of the embedded service (about 120 MB while fetching)",
            subject="folder",
            value=str(folder),
            remedy="free some space, or set XDG_CACHE_HOME to a folder on another disk",
        )
    return DownloadError(
        f"The cache folder cannot be used: {error}",
        subject="folder",
        value=str(folder),
        remedy="make it writable, or set XDG_CACHE_HOME to a folder that is",
    )
