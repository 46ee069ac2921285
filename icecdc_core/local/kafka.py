"""A real Kafka broker on loopback without Docker: one node in KRaft mode, broker and controller in one process.

`running_kafka` runs it for the length of a `with` block under `watchdog`, so it never outlives its process.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from icecdc_core.errors import PortInUseError, ServiceStartError
from icecdc_core.local.processes import (
    LOGGING,
    LeftRunning,
    Place,
    Spawn,
    detached,
    end,
    folder_errors,
    free_ports,
    guarded,
    identity,
    log_tail,
)
from icecdc_core.session.jars import kafka_jars
from icecdc_core.session.java import JavaHome, find_spark_java

KAFKA_VERSION = "4.1.2"
DEFAULT_KAFKA_PORT = 9092
_ATTEMPTS = 4
# There is one node, so all replication factors are 1. Topics are created explicitly, never by a misspelt name.
_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "auto.create.topics.enable": "false",
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.dedupe.buffer.size": "8388608",
}


@dataclass(frozen=True)
class Broker:
    """A broker that runs."""

    bootstrap_servers: str
    process: subprocess.Popen[bytes]
    log: Path


@contextmanager
def running_kafka(
    *,
    data_folder: str | Path | None = None,
    heap: str = "512m",
    port: int = 0,
    settings: Mapping[str, str] | None = None,
    timeout_seconds: float = 120.0,
) -> Iterator[str]:
    """Run a real Kafka broker on loopback for the length of a `with` block; yields its bootstrap servers.

    It stops with the block, and also if this process dies. Its data are temporary, unless a folder is given: then a
    later broker with the same folder and port continues with them. The jars are downloaded on first use.

    Args:
        data_folder: Where to put the data, which then stay; default: a temporary folder.
        heap: The broker's heap, such as "512m".
        port: The port for clients; 0: a free one is found.
        settings: Broker settings to add or change, as in `server.properties`.
        timeout_seconds: How long the start may take.

    Raises:
        JavaNotFoundError: No Java fits.
        DownloadError: The jars could not be downloaded.
        PortInUseError: The given port is in use.
        DiskFullError: The disk is full.
        ServiceStartError: It did not start; the message has the end of its log.
    """
    folder = Path(tempfile.mkdtemp(prefix="icecdc-kafka-"))
    data = Path(data_folder).expanduser().resolve() if data_folder else folder / "data"
    try:
        broker = start_broker(folder, data, port, heap, dict(settings or {}), timeout_seconds, guarded(folder))
        try:
            yield broker.bootstrap_servers
        finally:
            end(broker.process)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def start_broker(
    folder: Path, data: Path, port: int, heap: str, settings: dict[str, str], seconds: float, spawn: Spawn
) -> Broker:
    """Start a broker and wait until it answers."""
    java = find_spark_java()
    jars = kafka_jars(f"broker-{KAFKA_VERSION}", java)
    for _ in range(_ATTEMPTS):
        chosen, controller = next(free_ports([port]), 0) if port else _free_port(), _free_port()
        if not chosen:
            break
        addresses = {
            "listeners": f"PLAINTEXT://127.0.0.1:{chosen},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{chosen}",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
            "log.dirs": str(data),
        }
        _prepare(folder, {**_SETTINGS, **addresses, **settings}, data, java, jars)
        log = folder / "kafka.log"
        process = spawn([*_java(java, jars, folder, heap), "kafka.Kafka", str(folder / "server.properties")], log)
        if _wait_until_up(process, log, chosen, seconds):
            return Broker(f"127.0.0.1:{chosen}", process, log)
        end(process)  # another process took a port after the check
    raise PortInUseError(
        "The port of the embedded Kafka broker is in use",
        subject="port",
        value=port,
        remedy="stop the process that uses it (lsof -i -P | grep LISTEN), or leave the port out to use a free one",
    )


def answers(bootstrap_servers: str) -> bool:
    """Whether something listens at this address."""
    host, _, port = bootstrap_servers.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=1):
            return True
    except OSError:
        return False


def _java(java: JavaHome, jars: list[Path], folder: Path, heap: str) -> list[str]:
    logging = f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}"
    return [str(java.executable), f"-Xmx{heap}", logging, "-cp", os.pathsep.join(map(str, jars))]


def _prepare(folder: Path, settings: dict[str, str], data: Path, java: JavaHome, jars: list[Path]) -> None:
    """Write the configuration, and format the data folder if it is new."""
    with folder_errors(data, "Kafka broker"):
        folder.mkdir(parents=True, exist_ok=True)
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        (folder / "server.properties").write_text(text, encoding="utf-8")
        (folder / "log4j2.properties").write_text(LOGGING, encoding="utf-8")
        if (data / "meta.properties").is_file():
            return
        data.mkdir(parents=True, exist_ok=True)
    # The cluster id is no secret. A fixed one lets a later broker use the same data.
    command = [*_java(java, jars, folder, "256m"), "kafka.tools.StorageTool", "format", "--standalone"]
    command += ["--cluster-id", "aWNlY2RjLWthZmthLTAwMQ", "--config", str(folder / "server.properties")]
    formatted = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if formatted.returncode != 0:
        raise ServiceStartError(
            "The data folder of the embedded Kafka broker could not be formatted: " + formatted.stderr[-1000:],
            subject="data_folder",
            value=str(data),
            remedy="read the message; give an empty folder",
        )


def _wait_until_up(process: subprocess.Popen[bytes], log: Path, port: int, seconds: float) -> bool:
    """Whether it started; False if another process took the port; any other end is an error."""
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline:
        if "Kafka Server started" in log.read_text(encoding="utf-8", errors="replace"):
            return answers(f"127.0.0.1:{port}")
        time.sleep(0.1)
    ended = process.poll() is not None
    if ended and re.search(r"Address already in use|BindException", log.read_text(encoding="utf-8", errors="replace")):
        return False
    tail = log_tail(log)
    end(process)
    how = f"ended with exit code {process.returncode}" if ended else f"was not up after {seconds:g} seconds"
    raise ServiceStartError(
        f"The embedded Kafka broker {how}. The end of its log:\n{tail}\n",
        subject="heap",
        remedy="read the log; often there is too little memory (heap=...) or another broker uses the same data folder",
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class BrokerState(LeftRunning):
    """A broker that runs in the background."""

    bootstrap_servers: str

    @property
    def healthy(self) -> bool:
        """Whether it accepts connections."""
        return answers(self.bootstrap_servers)


_place = Place("kafka", BrokerState)


def kafka_status() -> BrokerState | None:
    """The broker that `start_kafka` started; None if it does not run."""
    return _place.status()


def start_kafka(*, heap: str = "512m", port: int = 0, timeout_seconds: float = 120.0) -> BrokerState:
    """Start a broker that outlives this process, or return the one that runs.

    A healthy broker that runs already is returned as it is, whatever the arguments. The data survive a restart; they
    are in the user's state folder.
    """

    def start(folder: Path) -> BrokerState:
        data = folder / "data"
        chosen = port or next(free_ports([DEFAULT_KAFKA_PORT]), 0)
        broker = start_broker(folder, data, chosen, heap, {}, timeout_seconds, detached)
        return BrokerState(
            bootstrap_servers=broker.bootstrap_servers,
            version=KAFKA_VERSION,
            log=str(broker.log),
            data_folder=str(data),
            **identity(broker.process),
        )

    return _place.running(start)


def stop_kafka(*, remove_data: bool = False) -> bool:
    """Stop the broker that `start_kafka` started, and no other; returns whether there was one."""
    return _place.stop(remove_data=remove_data)
