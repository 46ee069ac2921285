"""A real Kafka broker on loopback without Docker: one node in KRaft mode, broker and controller in one process."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from icecdc_core.local.server import LOGGING, Background, ServerState, Service, answers, free_ports, run_java, running
from icecdc_core.session.jars import kafka_jars
from icecdc_core.session.java import find_spark_java

KAFKA_VERSION = "4.1.2"
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
background = Background("kafka")


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
        ServiceStartError: It did not start, or stopped during the block; the message has the end of its log.
    """
    with running(_kafka([port] if port else [0] * 4, heap, settings or {}), data_folder, timeout_seconds) as servers:
        yield servers


def _kafka(ports: Sequence[int], heap: str, settings: Mapping[str, str]) -> Service:
    java = find_spark_java() / "bin" / "java"
    classpath = os.pathsep.join(map(str, kafka_jars(f"broker-{KAFKA_VERSION}")))

    def prepare(folder: Path, data: Path, port: int) -> list[str]:
        controller = next(free_ports([0]))
        addresses = {
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
            "log.dirs": str(data),
        }
        properties, logging = folder / "server.properties", folder / "log4j2.properties"
        merged = {**_SETTINGS, **addresses, **settings}
        # Java reads it as ISO-8859-1, and understands the escapes of JSON.
        properties.write_text("".join(f"{key}={json.dumps(str(value))[1:-1]}\n" for key, value in merged.items()))
        logging.write_text(LOGGING, encoding="utf-8")
        command = [str(java), f"-Xmx{heap}", f"-Dlog4j2.configurationFile={logging}", "-cp", classpath]
        if not (data / "meta.properties").is_file():
            # The cluster id is no secret. A fixed one lets a later broker use the same data.
            given = ["--standalone", "--cluster-id", "aWNlY2RjLWthZmthLTAwMQ", "--config", str(properties)]
            run_java([*command, "kafka.tools.StorageTool", "format", *given], "Kafka")
        return [*command, "kafka.Kafka", str(properties)]

    def find_url(log: str, port: int) -> str:
        servers = f"127.0.0.1:{port}"
        return servers if "Kafka Server started" in log and answers(servers) else ""

    return Service("Kafka", KAFKA_VERSION, ports, prepare, find_url)


def start_kafka() -> ServerState:
    """Start a broker that outlives this process, or return the one that runs."""
    return background.start(lambda: _kafka([9092, 0, 0, 0], "512m", {}), 120.0)
