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
