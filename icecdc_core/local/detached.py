"""An OpenSearch that is left running, and found again by any later process: `make services-up` and `services-down`."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path

from icecdc_core.local.ports import DEFAULT_PORT, candidate_ports
from icecdc_core.local.processes import end_process, start_time
from icecdc_core.local.runtime import choose_runtime
from icecdc_core.local.server import cluster_at, start_server


@dataclass(frozen=True)
class ServerState:
    """A server that was left running: what is needed to find it again, and to be sure that it is ours."""

    url: str
    pid: int
    started: str
    cluster_name: str
    version: str
    log: str
    data_folder: str

    @property
    def alive(self) -> bool:
        """Whether the process is still the one that was started: ids are used again, start times are not."""
        return start_time(self.pid) == self.started

    @property
    def healthy(self) -> bool:
        """Whether it answers."""
        return cluster_at(self.url).get("cluster_name") == self.cluster_name


def status() -> ServerState | None:
    """The server left running by `start_opensearch`; None if there is none."""
    try:
        state = ServerState(**json.loads(_state_file().read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return state if state.alive else None


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
    folder = _state_file().parent
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        running = status()
        if running is not None and running.healthy:
            return running
        if running is not None:
            stop_opensearch()
        runtime = choose_runtime(version)
        default = folder / f"data-{runtime.version.split('.')[0]}"  # 2.19 cannot read what 3.x wrote
        data = Path(data_folder).expanduser().resolve() if data_folder else default
        ports = candidate_ports(port, first=DEFAULT_PORT)
        server = start_server(runtime, folder, data, heap, ports, timeout_seconds, _spawn_detached)
        state = ServerState(
            url=server.url,
            pid=server.process.pid,
            started=start_time(server.process.pid) or "",
            cluster_name=server.cluster_name,
            version=runtime.version,
            log=str(server.log),
            data_folder=str(data),
        )
        unfinished = _state_file().with_suffix(".new")
        unfinished.write_text(json.dumps(asdict(state), indent=2), encoding="utf-8")
        unfinished.replace(_state_file())
        return state


def stop_opensearch(*, remove_data: bool = False) -> bool:
    """Stop the server that `start_opensearch` left running, and no other; says whether there was one."""
    state = status()
    if state is not None:
        end_process(state.pid, state.started)
    if remove_data:
        for data in _state_file().parent.glob("data-*"):
            shutil.rmtree(data, ignore_errors=True)
    _state_file().unlink(missing_ok=True)
    return state is not None


def _spawn_detached(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)


def _state_file() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "icecdc" / "opensearch" / "server.json"
