"""An OpenSearch that is left running, and found again by any later process: `make services-up` and `services-down`."""

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
    """A server that was left running."""

    url: str
    cluster_name: str

    @property
    def healthy(self) -> bool:
        """Whether it answers."""
        return cluster_at(self.url).get("cluster_name") == self.cluster_name


_place = Place("opensearch", ServerState)


def status() -> ServerState | None:
    """The server left running by `start_opensearch`; None if there is none."""
    return _place.status()


def start_opensearch(
    *,
    data_folder: str | Path | None = None,
    heap: str = "1g",
    version: str | None = None,
    port: int = 0,
    timeout_seconds: float = 180.0,
) -> ServerState:
    """Start an OpenSearch that outlives this process; if one already runs, that one is used.

    Port 9200 is taken if it is free, as that is the default of `opensearch_url`. The data stay over a restart, in the
    user's state folder unless `data_folder` is given. The arguments are those of `running_opensearch`.
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
    """Stop the server that `start_opensearch` left running, and no other; says whether there was one."""
    return _place.stop(remove_data=remove_data)
