"""An OpenSearch in the background, which later processes find again: `make services-up` and `services-down`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from icecdc_core.local.left_running import LeftRunning, Place, identity
from icecdc_core.local.ports import DEFAULT_PORT, candidate_ports
from icecdc_core.local.processes import detached
from icecdc_core.local.runtime import choose_runtime
from icecdc_core.local.server import cluster_at, start_server


@dataclass(frozen=True)
class ServerState(LeftRunning):
    """A server that runs in the background.

    Attributes:
        url: Its URL.
        cluster_name: The name of its cluster.
    """

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

    Args:
        data_folder: A folder for the data; None: one in the user's state folder.
        heap: The server's heap, such as "512m" or "2g".
        version: "2.19.1.0" or "3.8.0.0"; None: ICECDC_OPENSEARCH_VERSION, else what fits the Java of Spark.
        port: The HTTP port; 0: 9200, the default of `opensearch_url`, if it is free, else any free one.
        timeout_seconds: How long the start may take.

    Raises:
        ConfigError: There is no such version, or the server cannot use the port.
        JavaNotFoundError: No Java fits.
        DependencyError: Spark, whose compiler is used, is not installed.
        DownloadError: The jars could not be downloaded.
        PortInUseError: The given port is in use, or no port is free.
        DiskFullError: The disk is full.
        ServiceStartError: It did not start; the message has the end of its log.
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
