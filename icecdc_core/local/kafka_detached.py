"""A Kafka broker that is left running, and found again by any later process: `make services-up` and `services-down`."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path

from icecdc_core.local.kafka import DEFAULT_KAFKA_PORT, KAFKA_VERSION, answers, start_broker
from icecdc_core.local.ports import free_ports
from icecdc_core.local.processes import end_process, start_time


@dataclass(frozen=True)
class BrokerState:
    """A broker that was left running: what is needed to find it again, and to be sure that it is ours."""

    bootstrap_servers: str
    pid: int
    started: str
    version: str
    log: str
    data_folder: str

    @property
    def alive(self) -> bool:
        """Whether the process is still the one that was started."""
        return start_time(self.pid) == self.started


def kafka_status() -> BrokerState | None:
    """The broker left running by `start_kafka`; None if there is none."""
    try:
        state = BrokerState(**json.loads(_state_file().read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return state if state.alive else None


def start_kafka(*, heap: str = "512m", port: int = 0, timeout_seconds: float = 120.0) -> BrokerState:
    """Start a broker that outlives this process; if one already runs, that one is used.

    Port 9092 is taken if it is free. The data stay over a restart, in the user's state folder. The arguments are those
    of `running_kafka`.
    """
    folder = _state_file().parent
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        running = kafka_status()
        if running is not None and answers(running.bootstrap_servers):
            return running
        if running is not None:
            stop_kafka()
        data = folder / "data"
        chosen = port or next(free_ports([DEFAULT_KAFKA_PORT]), 0)
        broker = start_broker(folder, data, chosen, heap, {}, timeout_seconds, _spawn_detached)
        state = BrokerState(
            bootstrap_servers=broker.bootstrap_servers,
            pid=broker.process.pid,
            started=start_time(broker.process.pid) or "",
            version=KAFKA_VERSION,
            log=str(broker.log),
            data_folder=str(data),
        )
        unfinished = _state_file().with_suffix(".new")
        unfinished.write_text(json.dumps(asdict(state), indent=2), encoding="utf-8")
        unfinished.replace(_state_file())
        return state


def stop_kafka(*, remove_data: bool = False) -> bool:
    """Stop the broker that `start_kafka` left running, and no other; says whether there was one."""
    state = kafka_status()
    if state is not None:
        end_process(state.pid, state.started)
    if remove_data:
        shutil.rmtree(_state_file().parent / "data", ignore_errors=True)
    _state_file().unlink(missing_ok=True)
    return state is not None


def _spawn_detached(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)


def _state_file() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "icecdc" / "kafka" / "server.json"
