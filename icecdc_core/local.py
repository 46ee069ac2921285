"""A real OpenSearch on loopback without Docker: for a `with` block, or left running for `make services-up`.

python -m icecdc_core.local up | status | down
"""

from __future__ import annotations

import argparse
import fcntl
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from icecdc_core import watchdog
from icecdc_core.embedded import (
    DEFAULT_PORT,
    candidate_ports,
    choose_runtime,
    cluster_at,
    end,
    log_tail,
    start_server,
)
from icecdc_core.errors import IcecdcError, ServiceStartError
from icecdc_core.processes import end_process, start_time

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

    It ends with the block, and also if this process dies. Its data are temporary and removed at the end, unless told
    otherwise. Several may run at once. The jars are fetched on first use.

    Args:
        data_folder: Where to put the data, which then stay; default: a temporary folder.
        heap: The server's heap, such as "512m" or "2g".
        version: "2.19.1.0" or "3.8.0.0"; default: ICECDC_OPENSEARCH_VERSION, else what fits the Java of Spark.
        keep: Whether to leave the temporary folder, with data and log, for a look afterwards.
        port: The HTTP port; 0: a free one is found.
        timeout_seconds: How long the start may take.

    Raises:
        JavaNotFoundError: No Java fits.
        DownloadError: The jars could not be fetched.
        PortInUseError: The given port is taken.
        DiskFullError: There is no room.
        ServiceStartError: It did not start, or ended while it was needed; the message names its log, which is kept.
    """
    runtime, ports = choose_runtime(version), candidate_ports(port)
    folder = Path(tempfile.mkdtemp(prefix="icecdc-opensearch-"))
    data = Path(data_folder).expanduser().resolve() if data_folder else folder / "data"
    removed = str(folder)

    def spawn(command: list[str], log: Path) -> subprocess.Popen[bytes]:
        guarded = [sys.executable, str(Path(watchdog.__file__)), removed, *command]
        with log.open("wb") as output:
            return subprocess.Popen(
                guarded, stdin=subprocess.PIPE, stdout=output, stderr=output, start_new_session=True
            )

    try:
        server = start_server(runtime, folder, data, heap, ports, timeout_seconds, spawn)
    except BaseException as error:
        _remove_but_log(folder, keep_log=isinstance(error, ServiceStartError))
        raise
    died = False
    try:
        yield server.url
    finally:
        died = server.process.poll() is not None
        if keep and not died and server.process.stdin:
            server.process.stdin.write(b"keep\n")
            server.process.stdin.flush()
        end(server.process)
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
            remedy="read the log; often something killed it for want of memory",
        )


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


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line: `up`, `down`, `status`."""
    parser = argparse.ArgumentParser(prog="python -m icecdc_core.local", description="An OpenSearch on loopback.")
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="start it and leave it running; a running one is used again")
    up.add_argument("--port", type=int, default=0, help="default: 9200 if free, else any free one")
    up.add_argument("--heap", default="1g", help="default: 1g")
    up.add_argument("--version", help="2.19.1.0 or 3.8.0.0; default: what fits the Java of Spark")
    up.add_argument("--data-folder", help="default: in the user's state folder")
    down = commands.add_parser("down", help="stop it")
    down.add_argument("--remove-data", action="store_true", help="forget its data too")
    commands.add_parser("status", help="say whether it runs; exit code 1 if not")
    given = parser.parse_args(arguments)
    try:
        if given.command == "up":
            state: ServerState | None = start_opensearch(
                data_folder=given.data_folder, heap=given.heap, version=given.version, port=given.port
            )
        elif given.command == "down":
            stopped = stop_opensearch(remove_data=given.remove_data)
            sys.stdout.write("stopped\n" if stopped else "nothing to stop\n")
            return 0
        else:
            state = status()
    except IcecdcError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if state is None:
        sys.stdout.write("OpenSearch is not running\n")
        return 1
    sys.stdout.write(f"OpenSearch {state.version} at {state.url} (process {state.pid}, log {state.log})\n")
    return 0


def _spawn_detached(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)


def _state_file() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "icecdc" / "opensearch" / "server.json"


def _remove_but_log(folder: Path, *, keep_log: bool) -> None:
    if not keep_log:
        shutil.rmtree(folder, ignore_errors=True)
    for entry in folder.iterdir() if folder.is_dir() else ():
        if entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
