"""Start one real OpenSearch on loopback: configuration, command, and waiting until it is healthy."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from icecdc_core.errors import PortInUseError, ServiceStartError
from icecdc_core.local.folders import disk_full_error, folder_errors
from icecdc_core.local.jars import cached_jars
from icecdc_core.local.ports import free_ports
from icecdc_core.local.processes import LOGGING, Spawn, end, log_tail
from icecdc_core.local.runtime import Runtime
from icecdc_core.session.maven.ivy import spark_jar

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
