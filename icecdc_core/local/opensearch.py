"""An OpenSearch for the length of a `with` block."""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from icecdc_core.errors import ConfigError, PortInUseError, ServiceStartError
from icecdc_core.local.processes import (
    DEFAULT_PORT,
    LOGGING,
    LeftRunning,
    Place,
    Spawn,
    candidate_ports,
    detached,
    disk_full_error,
    end,
    folder_errors,
    free_ports,
    guarded,
    identity,
    log_tail,
)
from icecdc_core.session.jars import Jar, jars_in_cache, read_jars, read_manifest, spark_jar
from icecdc_core.session.java import JavaHome, find_java, find_spark_java


def opensearch_versions() -> list[str]:
    """The versions of the embedded server, oldest first."""
    return list(_manifest())


def listed_jars(version: str) -> list[Jar]:
    """The jars of one of the `opensearch_versions`."""
    return read_jars(_manifest()[version])


def cached_jars(version: str, java: JavaHome, ivy_settings: str = "") -> list[Path]:
    """Return the jars of the embedded server; download them if they are missing."""
    return jars_in_cache(listed_jars(version), f"opensearch-{version}", java, ivy_settings)


def _manifest() -> dict[str, list[dict[str, str | int]]]:
    return read_manifest("icecdc_core.local", "opensearch_jars.json")


@dataclass(frozen=True)
class Runtime:
    """A Java and the version of the server that runs on it."""

    java: JavaHome
    version: str


def choose_runtime(version: str | None = None) -> Runtime:
    """Choose the given version and a Java for it; without one, the version that fits the Java of Spark."""
    wanted = version or os.environ.get("ICECDC_OPENSEARCH_VERSION", "")
    old, new = opensearch_versions()
    if not wanted:
        java = find_spark_java()
        return Runtime(java, new if java.version >= 21 else old)
    for known in (old, new):
        if f"{known}.".startswith(f"{wanted}."):
            # Without the locale data the creation of an index fails ("Thai segmentation").
            minimum = 17 if known == old else 21
            java = find_java(minimum, modules=["jdk.localedata"], purpose=f"OpenSearch {known}")
            return Runtime(java, known)
    raise ConfigError(
        "No such version of the embedded OpenSearch",
        subject="version",
        value=wanted,
        remedy=f"use one of {old}, {new}",
    )


SMALLEST_DISK_BYTES = 300 * 1024 * 1024
"""The free room that a server needs at least."""
_ATTEMPTS = 4
_PLUGIN = Path(__file__).with_name("LoopbackOnly.java")
_COMPILER_CLASS = "org.codehaus.commons.compiler.samples.CompilerDemo"

# No disk watermarks: above 90 % OpenSearch allocates no shards, and a laptop's disk is often that full.
_SETTINGS = """\
network.host: 127.0.0.1
transport.port: 0
discovery.type: single-node
cluster.routing.allocation.disk.threshold_enabled: false
"""


@dataclass(frozen=True)
class Server:
    """A healthy server."""

    url: str
    process: subprocess.Popen[bytes]
    cluster_name: str
    log: Path


def start_server(
    runtime: Runtime, folder: Path, data_folder: Path, heap: str, ports: list[int], seconds: float, spawn: Spawn
) -> Server:
    """Start a server and wait until it is healthy."""
    log = folder / "opensearch.log"
    cluster_name = f"icecdc-{secrets.token_hex(4)}"
    _prepare(folder, data_folder)
    jars = cached_jars(runtime.version, runtime.java)
    plugin = _compiled_plugin(runtime, jars, folder)
    for attempt, port in enumerate(free_ports(ports), start=1):
        # fmt: off
        command = [
            str(runtime.java.executable), f"-Xmx{heap}", f"-Djava.io.tmpdir={folder}",
            "-cp", os.pathsep.join(map(str, [*jars, plugin])), _PLUGIN.stem, "-pluginTypes", _PLUGIN.stem,
            "-basePath", str(folder), "-confPath", str(folder / "config"), "-dataPath", str(data_folder),
            "-clusterName", cluster_name, "-numOfNode", "1", "-baseHttpPort", str(port - 1),
        ]
        # fmt: on
        process = spawn(command, log)
        url = _wait_until_healthy(process, log, cluster_name, seconds)
        if url is not None and (len(ports) > 1 or url.endswith(f":{port}")):
            return Server(url, process, cluster_name, log)
        end(process)  # another process took the port after the check
        if attempt == _ATTEMPTS:
            break
    raise PortInUseError(
        "The port is in use" if len(ports) == 1 else "All ports for the embedded OpenSearch are in use",
        subject="port",
        value=ports[0] if len(ports) == 1 else f"{min(ports)} to {max(ports)}",
        remedy="stop the process that uses it (lsof -i -P | grep LISTEN), or leave the port out to use a free one",
    )


def cluster_at(url: str, seconds: float = 5.0) -> dict[str, object]:
    """The cluster health of the server at the URL; empty if no healthy server answers in time."""
    # Not through a proxy of the environment, which cannot reach this loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url}/_cluster/health?wait_for_status=yellow&timeout=2s", timeout=seconds) as answer:
            health: dict[str, object] = json.load(answer)
            return health
    except (OSError, ValueError, urllib.error.URLError):
        return {}


def _prepare(folder: Path, data_folder: Path) -> None:
    with folder_errors(data_folder, "OpenSearch"):
        (folder / "config").mkdir(parents=True, exist_ok=True)
        data_folder.mkdir(parents=True, exist_ok=True)
        (folder / "config" / "opensearch.yml").write_text(_SETTINGS, encoding="utf-8")
        (folder / "config" / "log4j2.properties").write_text(LOGGING, encoding="utf-8")
        free = shutil.disk_usage(data_folder).free
    if free < SMALLEST_DISK_BYTES:
        raise disk_full_error(data_folder, "OpenSearch")


def _compiled_plugin(runtime: Runtime, jars: list[Path], folder: Path) -> Path:
    """Compile the server's plugin with the compiler that is part of Spark; returns the folder of its classes."""
    classes = folder / "classes"
    compiler = os.pathsep.join(str(spark_jar(name)) for name in ("janino", "commons-compiler"))
    # fmt: off
    command = [
        str(runtime.java.executable), "-cp", compiler, _COMPILER_CLASS,
        "-d", str(classes), "-classpath", os.pathsep.join(map(str, jars)), str(_PLUGIN),
    ]
    # fmt: on
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if ended.returncode or not (classes / f"{_PLUGIN.stem}.class").is_file():
        raise ServiceStartError(
            f"The plugin of the embedded OpenSearch was not compiled: {(ended.stderr or ended.stdout)[-1000:]}",
            subject="java",
            value=str(runtime.java.executable),
            remedy="check that this Java runs, and that the folder for temporary files has room",
        )
    return classes


def _wait_until_healthy(process: subprocess.Popen[bytes], log: Path, cluster_name: str, seconds: float) -> str | None:
    """Return the URL once the server is healthy; None if another process took its port; any other end is an error."""
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline:
        text = log.read_text(encoding="utf-8", errors="replace")
        # The log has the port that it really uses. The cluster name shows that this server answers there.
        published = re.findall(r"HttpServerTransport\s*\] publish_address \{(127\.0\.0\.1:\d+)\}", text)
        if published and cluster_at(f"http://{published[-1]}").get("cluster_name") == cluster_name:
            return f"http://{published[-1]}"
        time.sleep(0.2)
    text = log.read_text(encoding="utf-8", errors="replace")
    if process.poll() is not None and re.search(r"BindHttpException|Address already in use", text):
        log.unlink()
        return None
    if "No space left on device" in text:
        end(process)
        raise disk_full_error(log.parent, "OpenSearch")
    ended = process.poll() is not None
    how = f"ended with exit code {process.returncode}" if ended else f"was not healthy after {seconds:g} seconds"
    if process.stdin and not ended:
        process.stdin.write(b"keep\n")
        process.stdin.flush()
    end(process)
    raise ServiceStartError(
        f"The embedded OpenSearch {how}. The end of its log:\n{log_tail(log)}\n",
        subject="log",
        value=str(log),
        remedy="read the log; often there is too little memory (heap=...) or another server uses the same data folder",
    )


_logger = logging.getLogger(__name__)


@contextmanager
def running_opensearch(
    *,
    data_folder: str | Path | None = None,
    heap: str = "1g",
    version: str | None = None,
    keep: bool = False,
    port: int = 0,
    timeout_seconds: float = 180.0,
) -> Iterator[str]:
    """Run a real OpenSearch on loopback for the length of a `with` block; yields its URL.

    It stops with the block, and also if this process dies. Its data are temporary, unless `data_folder` or `keep` is
    given. Several servers may run at once. The jars are downloaded on first use.

    Args:
        data_folder: A folder for the data, which then stay; default: a temporary folder.
        heap: The server's heap, such as "512m" or "2g".
        version: "2.19.1.0" or "3.8.0.0"; default: ICECDC_OPENSEARCH_VERSION, else what fits the Java of Spark.
        keep: Whether to keep the temporary folder with data and log.
        port: The HTTP port; 0: a free one is found.
        timeout_seconds: How long the start may take.

    Raises:
        JavaNotFoundError: No Java fits.
        DownloadError: The jars could not be downloaded.
        PortInUseError: The given port is in use.
        DiskFullError: The disk is full.
        ServiceStartError: It did not start, or stopped during the block; the message names its log, which stays.
    """
    runtime, ports = choose_runtime(version), candidate_ports(port)
    folder = Path(tempfile.mkdtemp(prefix="icecdc-opensearch-"))
    data = Path(data_folder).expanduser().resolve() if data_folder else folder / "data"
    try:
        server = start_server(runtime, folder, data, heap, ports, timeout_seconds, guarded(folder))
    except BaseException as error:
        _remove_but_log(folder, keep_log=isinstance(error, ServiceStartError))
        raise
    died = False
    try:
        yield server.url
    finally:
        if keep and server.process.stdin:
            with suppress(OSError):  # the server has died
                os.write(server.process.stdin.fileno(), b"keep\n")
        end(server.process)
        died = server.process.returncode != 0  # the watchdog's: it may notice a death only now
        if keep:
            _logger.warning("Data and log of the embedded OpenSearch are in %s", folder)
        elif died:
            _logger.error("The embedded OpenSearch ended by itself; its log is %s", server.log)
            _remove_but_log(folder, keep_log=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    if died:
        raise ServiceStartError(
            f"The embedded OpenSearch ended while it was needed. The end of its log:\n{log_tail(server.log)}\n",
            subject="log",
            value=str(server.log),
            remedy="read the log; often the system ended it because memory ran out",
        )


def _remove_but_log(folder: Path, *, keep_log: bool) -> None:
    if not keep_log:
        shutil.rmtree(folder, ignore_errors=True)
    for entry in folder.iterdir() if folder.is_dir() else ():
        if entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)


@dataclass(frozen=True)
class ServerState(LeftRunning):
    """A server that runs in the background."""

    url: str
    cluster_name: str

    @property
    def healthy(self) -> bool:
        """Whether it answers requests."""
        return cluster_at(self.url).get("cluster_name") == self.cluster_name


_place = Place("opensearch", ServerState)


def status() -> ServerState | None:
    """The server that `start_opensearch` started; None if it does not run."""
    return _place.status()


def start_opensearch(
    *,
    data_folder: str | Path | None = None,
    heap: str = "1g",
    version: str | None = None,
    port: int = 0,
    timeout_seconds: float = 180.0,
) -> ServerState:
    """Start an OpenSearch that outlives this process, or return the one that runs.

    A healthy server that runs already is returned as it is, whatever the arguments. The data survive a restart.
    """

    def start(folder: Path) -> ServerState:
        runtime = choose_runtime(version)
        default = folder / f"data-{runtime.version.split('.')[0]}"  # 2.19 cannot read what 3.x wrote
        data = Path(data_folder).expanduser().resolve() if data_folder else default
        ports = candidate_ports(port, first=DEFAULT_PORT)
        server = start_server(runtime, folder, data, heap, ports, timeout_seconds, detached)
        return ServerState(
            url=server.url,
            cluster_name=server.cluster_name,
            version=runtime.version,
            log=str(server.log),
            data_folder=str(data),
            **identity(server.process),
        )

    return _place.running(start)


def stop_opensearch(*, remove_data: bool = False) -> bool:
    """Stop the server that `start_opensearch` started, and no other; returns whether there was one."""
    return _place.stop(remove_data=remove_data)
