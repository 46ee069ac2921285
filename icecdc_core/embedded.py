"""Start one real OpenSearch on loopback: configuration, a free port, the command, and waiting until it is healthy."""

from __future__ import annotations

import errno
import json
import os
import random
import re
import secrets
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from icecdc_core.errors import ConfigError, DiskFullError, PortInUseError, ServiceStartError
from icecdc_core.jars import cached_jars, opensearch_versions
from icecdc_core.java import JavaHome, find_java, find_spark_java

DEFAULT_PORT = 9200
_LARGEST_PORT = 9299  # the runner of the embedded server refuses those above
_SMALLEST_DISK = 300 * 1024 * 1024
_ATTEMPTS = 4
_MAIN_CLASS = "org.codelibs.opensearch.runner.OpenSearchRunner"

# The watermarks are off because a laptop's disk is often fuller than the 90 % from which a server takes no shards.
_SETTINGS = """\
network.host: 127.0.0.1
transport.port: 0
discovery.type: single-node
cluster.routing.allocation.disk.threshold_enabled: false
"""
_LOGGING = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d{ISO8601}][%-5p][%c{1.}] %m%n
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
"""

Spawn = Callable[[list[str], Path], "subprocess.Popen[bytes]"]


@dataclass(frozen=True)
class Runtime:
    """What the server runs on: a Java, and the server's version that fits it."""

    java: JavaHome
    version: str


@dataclass(frozen=True)
class Server:
    """A healthy server: its URL, the process that was spawned for it, its cluster's name and its log."""

    url: str
    process: subprocess.Popen[bytes]
    cluster_name: str
    log: Path


def choose_runtime(version: str | None = None) -> Runtime:
    """The version asked for on a Java that fits it; without one, what fits the Java of Spark.

    Args:
        version: "2.19.1.0", "3.8.0.0" or the beginning of one; default: the environment variable
            ICECDC_OPENSEARCH_VERSION.

    Raises:
        ConfigError: There is no such version.
        JavaNotFoundError: No Java fits.
    """
    wanted = version or os.environ.get("ICECDC_OPENSEARCH_VERSION", "")
    old, new = opensearch_versions()
    if not wanted:
        java = find_spark_java()
        return Runtime(java, new if java.version >= 21 else old)
    for known in (old, new):
        if f"{known}.".startswith(f"{wanted}."):
            # 2.19 needs Java's security manager, which 24 has removed; 3.x has locale data at index creation.
            minimum, maximum = (17, 23) if known == old else (21, None)
            java = find_java(minimum, maximum, modules=["jdk.localedata"], purpose=f"OpenSearch {known}")
            return Runtime(java, known)
    raise ConfigError(
        "No such version of the embedded OpenSearch",
        subject="version",
        value=wanted,
        remedy=f"use one of {old}, {new}",
    )


def start_server(
    runtime: Runtime, folder: Path, data_folder: Path, heap: str, ports: list[int], seconds: float, spawn: Spawn
) -> Server:
    """Start a server and wait until it is healthy.

    Args:
        runtime: From `choose_runtime`.
        folder: Where its configuration and its log go.
        data_folder: Where its data go.
        heap: The JVM's heap, such as "1g".
        ports: The HTTP ports to try, in this order.
        seconds: How long one attempt may take.
        spawn: Starts the command with the log as its output, and returns the process.

    Raises:
        PortInUseError: None of the ports is free.
        DiskFullError: There is no room for data.
        ServiceStartError: It ended, or was not healthy in time; the message has the end of the log.
    """
    log = folder / "opensearch.log"
    cluster_name = f"icecdc-{secrets.token_hex(4)}"
    _prepare(folder, data_folder)
    jars = cached_jars(runtime.version, runtime.java)
    for attempt, port in enumerate(free_ports(ports), start=1):
        # fmt: off
        command = [
            str(runtime.java.executable), f"-Xmx{heap}", f"-Djava.io.tmpdir={folder}",
            "-cp", os.pathsep.join(map(str, jars)), _MAIN_CLASS,
            "-basePath", str(folder), "-confPath", str(folder / "config"), "-dataPath", str(data_folder),
            "-clusterName", cluster_name, "-numOfNode", "1", "-baseHttpPort", str(port - 1),
        ]
        # fmt: on
        process = spawn(command, log)
        url = _wait_until_healthy(process, log, cluster_name, seconds)
        if url is not None and (len(ports) > 1 or url.endswith(f":{port}")):
            return Server(url, process, cluster_name, log)
        end(process)  # somebody else took the port after we looked
        if attempt == _ATTEMPTS:
            break
    raise PortInUseError(
        "The port is taken" if len(ports) == 1 else "All ports for the embedded OpenSearch are taken",
        subject="port",
        value=ports[0] if len(ports) == 1 else f"{min(ports)} to {max(ports)}",
        remedy="end what listens there (lsof -i -P | grep LISTEN), or let a free port be found (no port given)",
    )


def candidate_ports(port: int = 0, first: int = 0) -> list[int]:
    """The given port alone; or all the runner can use, in random order so that two starting at once rarely meet.

    Raises:
        ConfigError: The port is outside of what the embedded server can use.
    """
    if port:
        if not 1024 <= port <= _LARGEST_PORT:
            raise ConfigError(
                "The embedded OpenSearch cannot use this port",
                subject="port",
                value=port,
                remedy=f"take one from 1024 to {_LARGEST_PORT}, or none: then a free one is found",
            )
        return [port]
    others = list(range(DEFAULT_PORT + 1, _LARGEST_PORT + 1))
    lower = list(range(8200, DEFAULT_PORT))
    random.shuffle(others)
    random.shuffle(lower)
    return [first] * bool(first) + others + lower


def free_ports(ports: list[int]) -> Iterator[int]:
    """Those of the ports nobody listens on at the moment they are asked for."""
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        yield port


def cluster_at(url: str, seconds: float = 5.0) -> dict[str, object]:
    """What the server at the URL says about its health; empty if nothing healthy answers in time."""
    # Never through a proxy from the environment: it does not know our loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url}/_cluster/health?wait_for_status=yellow&timeout=2s", timeout=seconds) as answer:
            health: dict[str, object] = json.load(answer)
            return health
    except (OSError, ValueError, urllib.error.URLError):
        return {}


def end(process: subprocess.Popen[bytes], seconds: float = 30.0) -> None:
    """End a process that was spawned here, by force if it does not within the given time."""
    if process.stdin:
        process.stdin.close()
    else:
        process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def log_tail(log: Path, lines: int = 12) -> str:
    """The last lines of a log, those with errors first of all."""
    text = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.is_file() else []
    errors = [line for line in text if re.search(r"\[(ERROR|FATAL)|Exception|Error:|Caused by", line)]
    return "\n".join((errors or text)[-lines:])


def _prepare(folder: Path, data_folder: Path) -> None:
    try:
        (folder / "config").mkdir(parents=True, exist_ok=True)
        data_folder.mkdir(parents=True, exist_ok=True)
        (folder / "config" / "opensearch.yml").write_text(_SETTINGS, encoding="utf-8")
        (folder / "config" / "log4j2.properties").write_text(_LOGGING, encoding="utf-8")
        full = shutil.disk_usage(data_folder).free < _SMALLEST_DISK
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise ServiceStartError(
                f"The folder of the embedded OpenSearch cannot be used: {error}",
                subject="data_folder",
                value=str(data_folder),
                remedy="give a folder you may write to",
            ) from error
        full = True
    if full:
        raise _disk_full(data_folder)


def _wait_until_healthy(process: subprocess.Popen[bytes], log: Path, cluster_name: str, seconds: float) -> str | None:
    """The URL once it is healthy; None if its port was taken; any other end is an error."""
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline:
        text = log.read_text(encoding="utf-8", errors="replace")
        # The log tells the port it really got; the name tells that it is ours which answers there.
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
        raise _disk_full(log.parent)
    ended = process.poll() is not None
    how = f"ended with exit code {process.returncode}" if ended else f"was not healthy after {seconds:.0f} seconds"
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


def _disk_full(folder: Path) -> DiskFullError:
    return DiskFullError(
        "No room left for the data of the embedded OpenSearch",
        subject="data_folder",
        value=str(folder),
        remedy="free some space, or give a data_folder on another disk (the default one follows TMPDIR)",
    )
