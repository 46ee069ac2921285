"""A real OpenSearch on loopback without Docker: one node, with a plugin that refuses requests of web pages."""

import importlib.util
import json
import os
import random
import re
import secrets
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path

from icecdc_core.errors import ConfigError, DependencyError
from icecdc_core.local.server import LOGGING, Background, ServerState, Service, run_java, running
from icecdc_core.session.jars import jars_in_cache, listed_jars
from icecdc_core.session.java import find_java

# The oldest and newest Java of each. The default is the first one, for which there is the k-NN plugin.
_VERSIONS = {"2.19.1.0": (17, 22), "3.8.0.0": (21, 99)}
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
    wanted = version or os.environ.get("ICECDC_OPENSEARCH_VERSION") or next(iter(_VERSIONS))
    number = next((known for known in _VERSIONS if f"{known}.".startswith(f"{wanted}.")), "")
    if not number:
        raise ConfigError(
            "No such version of the embedded OpenSearch",
            subject="version",
            value=wanted,
            remedy=f"use one of {', '.join(_VERSIONS)}",
        )
    # Without the locale data the creation of an index fails ("Thai segmentation").
    java = find_java(*_VERSIONS[number], modules=["jdk.localedata"], purpose=f"OpenSearch {number}") / "bin" / "java"
    jars = jars_in_cache(listed_jars("icecdc_core.local", "opensearch_jars.json", number), f"opensearch-{number}")
    cluster_name = f"icecdc-{secrets.token_hex(4)}"

    def prepare(folder: Path, data: Path, port: int) -> list[str]:
        config = folder / "config"
        config.mkdir(exist_ok=True)
        (config / "opensearch.yml").write_text(_SETTINGS, encoding="utf-8")
        (config / "log4j2.properties").write_text(LOGGING, encoding="utf-8")
        libraries, plugins = _with_plugins(java, jars, folder)
        # fmt: off
        return [
            str(java), f"-Xmx{heap}", f"-Djava.io.tmpdir={folder}",
            "-cp", os.pathsep.join(map(str, libraries)), _PLUGIN.stem, "-pluginTypes", ",".join(plugins),
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


def _with_plugins(java: Path, jars: list[Path], folder: Path) -> tuple[list[Path], list[str]]:
    """The jars with those of the k-NN plugin, if this version has it, and with our plugin; the classes of both."""
    spark = importlib.util.find_spec("pyspark")
    jars_of_spark = Path(spark.origin).parent.glob("jars/*.jar") if spark and spark.origin else ()
    compiler = [str(jar) for jar in jars_of_spark if jar.name.startswith(("janino-", "commons-compiler-"))]
    if len(compiler) < 2:
        raise DependencyError(
            "The embedded services need the jars janino and commons-compiler of pyspark, which were not found",
            remedy="pip install 'icecdc[local]'",
        )
    libraries, plugins = [jar for jar in jars if jar.suffix != ".zip"], [_PLUGIN.stem]
    for plugin in [jar for jar in jars if jar.suffix == ".zip"]:
        with zipfile.ZipFile(plugin) as archive:
            names = [name for name in archive.namelist() if name.endswith(".jar")]
            libraries += [Path(archive.extract(name, folder / "lib")) for name in names]
        plugins.append(_KNN_PLUGIN)  # without its native libraries: vectors need `engine: lucene`
    classes = folder / "classes"
    given = ["-d", str(classes), "-classpath", os.pathsep.join(map(str, libraries)), str(_PLUGIN)]
    run_java([str(java), "-cp", os.pathsep.join(compiler), _COMPILER_CLASS, *given], "OpenSearch")
    return [*libraries, classes], plugins


def cluster_at(url: str) -> dict[str, object]:
    """The cluster health of the server at the URL; empty if no healthy server answers in time."""
    # Not through a proxy of the environment, which cannot reach this loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url}/_cluster/health?wait_for_status=yellow&timeout=2s", timeout=5) as answer:
            return dict(json.load(answer))
    except (OSError, ValueError, TypeError, HTTPException):
        return {}


def start_opensearch(*, heap: str = "1g", port: int = 0) -> ServerState:
    """Start an OpenSearch that outlives this process, or return the one that runs, whatever the arguments."""
    ports = candidate_ports(port) if port else [9200, *candidate_ports()]
    return background.start(lambda: _opensearch(None, ports, heap), 180.0)
