"""A real OpenSearch on loopback without Docker: one node, with a plugin that refuses requests of web pages."""

import importlib.util
import json
import os
import random
import re
import secrets
import subprocess
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path

from icecdc_core.errors import ConfigError, DependencyError, ServiceStartError
from icecdc_core.local.server import LOGGING, Background, ServerState, Service, running
from icecdc_core.secrets import mask_secrets
from icecdc_core.session.jars import jars_in_cache, listed_jars
from icecdc_core.session.java import find_java, find_spark_java

VERSIONS = {"2.19.1.0": 17, "3.8.0.0": 21}
"""The versions of the embedded server, with the oldest Java of each."""
DEFAULT_PORT = 9200
_LARGEST_PORT = 9299  # the embedded server refuses ports above
_PLUGIN = Path(__file__).with_name("LoopbackOnly.java")
_KNN_PLUGIN = "org.opensearch.knn.plugin.KNNPlugin"
_COMPILER_CLASS = "org.codehaus.commons.compiler.samples.CompilerDemo"
# No disk watermarks: above 90 % OpenSearch allocates no shards, and a laptop's disk is often that full.
_SETTINGS = """\
network.host: 127.0.0.1
transport.port: 0
discovery.type: single-node
cluster.routing.allocation.disk.threshold_enabled: false
"""
background = Background("opensearch")


@contextmanager
def running_opensearch(
    *,
    data_folder: str | Path | None = None,
    heap: str = "1g",
    version: str | None = None,
    port: int = 0,
    timeout_seconds: float = 180.0,
) -> Iterator[str]:
    """Run a real OpenSearch on loopback for the length of a `with` block; yields its URL.

    It stops with the block, and also if this process dies. Its data are temporary, unless `data_folder` is given.
    Several servers may run at once. The jars are downloaded on first use.

    Args:
        data_folder: A folder for the data, which then stay; default: a temporary folder.
        heap: The server's heap, such as "512m" or "2g".
        version: "2.19.1.0" or "3.8.0.0"; default: ICECDC_OPENSEARCH_VERSION, else "2.19.1.0".
        port: The HTTP port; 0: a free one is found.
        timeout_seconds: How long the start may take.

    Raises:
        JavaNotFoundError: No Java fits.
        DownloadError: The jars could not be downloaded.
        PortInUseError: The given port is in use.
        DiskFullError: The disk is full.
        ServiceStartError: It did not start, or stopped during the block; the message names its log, which stays.
    """
    with running(_opensearch(version, candidate_ports(port), heap), data_folder, timeout_seconds) as url:
        yield url


def _choose_runtime(version: str | None) -> tuple[Path, str]:
    """Choose a Java for the version; without one, the Java of Spark and the version that has the k-NN plugin."""
    wanted = version or os.environ.get("ICECDC_OPENSEARCH_VERSION", "")
    if not wanted:
        return find_spark_java(), next(iter(VERSIONS))
    for known, minimum in VERSIONS.items():
        if f"{known}.".startswith(f"{wanted}."):
            # Without the locale data the creation of an index fails ("Thai segmentation").
            return find_java(minimum, modules=["jdk.localedata"], purpose=f"OpenSearch {known}"), known
    raise ConfigError(
        "No such version of the embedded OpenSearch",
        subject="version",
        value=wanted,
        remedy=f"use one of {', '.join(VERSIONS)}",
    )


def candidate_ports(port: int = 0) -> list[int]:
    if not port:
        return random.sample(range(8200, _LARGEST_PORT + 1), 100)
    if not 1024 <= port <= _LARGEST_PORT:
        raise ConfigError(
            "The embedded OpenSearch cannot use this port",
            subject="port",
            value=port,
            remedy=f"use one from 1024 to {_LARGEST_PORT}, or none: then a free one is found",
        )
    return [port]


def _opensearch(version: str | None, ports: list[int], heap: str) -> Service:
    home, number = _choose_runtime(version)
    java = home / "bin" / "java"
    jars = jars_in_cache(listed_jars("icecdc_core.local", "opensearch_jars.json", number), f"opensearch-{number}")
    cluster_name = f"icecdc-{secrets.token_hex(4)}"

    def prepare(folder: Path, data: Path, port: int) -> list[str]:
        config = folder / "config"
        config.mkdir(exist_ok=True)
        (config / "opensearch.yml").write_text(_SETTINGS, encoding="utf-8")
        (config / "log4j2.properties").write_text(LOGGING, encoding="utf-8")
        libraries, plugins = _unpacked(jars, folder)
        classes = _compiled_plugin(java, libraries, folder)
        # fmt: off
        return [
            str(java), f"-Xmx{heap}", f"-Djava.io.tmpdir={folder}",
            "-cp", os.pathsep.join(map(str, [*libraries, classes])), _PLUGIN.stem, "-pluginTypes", ",".join(plugins),
            "-basePath", str(folder), "-confPath", str(config), "-dataPath", str(data),
            "-clusterName", cluster_name, "-numOfNode", "1", "-baseHttpPort", str(port - 1),
        ]
        # fmt: on

    def find_url(log: str, port: int) -> str:
        # The log has the port that it really uses. The cluster name shows that this server answers there.
        published = re.findall(r"HttpServerTransport\s*\] publish_address \{(127\.0\.0\.1:\d+)\}", log)
        url = f"http://{published[-1]}" if published else ""
        return url if url and cluster_at(url).get("cluster_name") == cluster_name else ""

    return Service("OpenSearch", number, ports, prepare, find_url)


def _unpacked(jars: list[Path], folder: Path) -> tuple[list[Path], list[str]]:
    """The jars, with those inside the k-NN plugin if this version has it, and the classes of the plugins."""
    libraries, plugins = [jar for jar in jars if jar.suffix != ".zip"], [_PLUGIN.stem]
    for plugin in [jar for jar in jars if jar.suffix == ".zip"]:
        with zipfile.ZipFile(plugin) as archive:
            names = [name for name in archive.namelist() if name.endswith(".jar")]
            libraries += [Path(archive.extract(name, folder / "lib")) for name in names]
        plugins.append(_KNN_PLUGIN)  # without its native libraries: vectors need `engine: lucene`
    return libraries, plugins


def _compiled_plugin(java: Path, jars: list[Path], folder: Path) -> Path:
    """Compile the server's plugin with the compiler that is part of Spark; returns the folder of its classes."""
    classes = folder / "classes"
    compiler = os.pathsep.join(str(_spark_jar(name)) for name in ("janino", "commons-compiler"))
    given = ["-d", str(classes), "-classpath", os.pathsep.join(map(str, jars)), str(_PLUGIN)]
    command = [str(java), "-cp", compiler, _COMPILER_CLASS, *given]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if ended.returncode or not (classes / f"{_PLUGIN.stem}.class").is_file():
        raise ServiceStartError(
            "The plugin of the embedded OpenSearch was not compiled: "
            + mask_secrets(ended.stderr or ended.stdout)[-1000:],
            subject="java",
            value=str(java),
            remedy="check that this Java runs, and that the folder for temporary files has room",
        )
    return classes


def _spark_jar(name: str) -> Path:
    spec = importlib.util.find_spec("pyspark")
    for jar in Path(spec.origin).parent.glob(f"jars/{name}-[0-9]*.jar") if spec and spec.origin else ():
        return jar
    raise DependencyError(
        f"The embedded services need the jar of '{name}' that comes with Spark, and it was not found",
        remedy="pip install 'icecdc[local]'",
    )


def cluster_at(url: str) -> dict[str, object]:
    """The cluster health of the server at the URL; empty if no healthy server answers in time."""
    # Not through a proxy of the environment, which cannot reach this loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url}/_cluster/health?wait_for_status=yellow&timeout=2s", timeout=5) as answer:
            health: dict[str, object] = json.load(answer)
            return health
    except (OSError, ValueError, HTTPException):
        return {}


def start_opensearch(*, heap: str = "1g", port: int = 0) -> ServerState:
    """Start an OpenSearch that outlives this process, or return the one that runs, whatever the arguments."""
    ports = candidate_ports(port) if port else [DEFAULT_PORT, *candidate_ports()]
    return background.start(lambda: _opensearch(None, ports, heap), 180.0)
