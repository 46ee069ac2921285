"""A service on loopback: its process, until it answers and until it ends, for a `with` block or in the background."""

import errno
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

import psutil

from icecdc_core.dependencies import user_folder
from icecdc_core.errors import DiskFullError, PortInUseError, ServiceStartError
from icecdc_core.local import watchdog
from icecdc_core.secrets import mask_secrets
from icecdc_core.session.processes import is_running, one_process_at_a_time, started_at

# Log4j settings of a server: it logs to its output.
LOGGING = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d{ISO8601}][%-5p][%c{1.}] %m%n
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
"""


@dataclass(frozen=True)
class Service:
    name: str
    version: str
    ports: Sequence[int]  # to try; 0 is any free one
    # Writes its files into its folder and the data folder, and returns the command for a port.
    prepare: Callable[[Path, Path, int], list[str]]
    # Where it answers, once its log says so and it does; else empty.
    find_url: Callable[[str, int], str]


@dataclass(frozen=True)
class ServerState:
    """A server that runs in the background; the URL of Kafka is its bootstrap servers."""

    url: str
    pid: int
    started: str
    version: str
    log: str
    data_folder: str


@contextmanager
def running(service: Service, data_folder: str | Path | None, seconds: float) -> Iterator[str]:
    """Run a server for the block; yields its URL. It ends with this process, however that ends."""
    folder = Path(tempfile.mkdtemp(prefix=f"icecdc-{service.name.lower()}-"))
    data = Path(data_folder).expanduser().resolve() if data_folder else folder / "data"
    keep_log = False
    try:
        url, process, log = start(service, folder, data, seconds, guarded=True)
        try:
            yield url
        finally:
            end(process)
            if process.wait() != 0:  # the watchdog's: it may notice a death only now
                raise _start_error(service, "ended while it was needed", log)
    except ServiceStartError:
        keep_log = True
        raise
    finally:
        for entry in folder.iterdir() if keep_log else [folder]:
            if entry.is_dir():
                shutil.rmtree(entry, ignore_errors=True)


def start(
    service: Service, folder: Path, data: Path, seconds: float, *, guarded: bool
) -> tuple[str, psutil.Popen, Path]:
    """Start a server and wait until it answers; one that is guarded cannot outlive this process."""
    log = folder / f"{service.name.lower()}.log"
    guard = [sys.executable, watchdog.__file__, str(os.getpid()), str(folder)] if guarded else []
    for port in islice(free_ports(service.ports), 4):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            data.mkdir(parents=True, exist_ok=True)
            command = service.prepare(folder, data, port)
            with log.open("wb") as output:
                process = psutil.Popen(
                    [*guard, *command], stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
                )
        except OSError as error:
            raise _folder_error(service, data, error) from error
        try:
            url = _wait(service, process, log, data, port, seconds)
        except BaseException:  # also an interrupt: nobody else knows the process
            end(process)
            raise
        if url and (len(service.ports) > 1 or url.endswith(f":{port}")):
            return url, process, log
        end(process)  # another process took the port after the check
    raise PortInUseError(
        f"The port of the embedded {service.name} is in use",
        subject="port",
        value=service.ports[0],
        remedy="stop the process that uses it, or leave the port out to use a free one",
    )


def _wait(service: Service, process: psutil.Popen, log: Path, data: Path, port: int, seconds: float) -> str:
    """Return the URL once the server answers; empty if another process took its port."""
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline:
        if url := service.find_url(log.read_text(encoding="utf-8", errors="replace"), port):
            return url
        time.sleep(0.1)
    text, ended = log.read_text(encoding="utf-8", errors="replace"), process.poll() is not None
    if ended and re.search(r"BindHttpException|BindException|Address already in use", text):
        return ""
    if "No space left on device" in text:
        raise _folder_error(service, data, OSError(errno.ENOSPC, "No space left on device"))
    how = f"ended with exit code {process.returncode}" if ended else f"was not healthy after {seconds:g} seconds"
    raise _start_error(service, how, log)


def run_java(command: list[str], service: str) -> None:
    """Run what a service needs before its start, until it ends."""
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise ServiceStartError(
            f"The embedded {service} could not be prepared: {mask_secrets(ended.stderr or ended.stdout)[-1000:]}",
            subject="java",
            value=command[0],
            remedy="read the message; often the disk is full, or the data folder is that of something else",
        )


def end(process: psutil.Process, seconds: float = 30.0) -> None:
    with suppress(psutil.NoSuchProcess, psutil.TimeoutExpired):
        process.terminate()
        try:
            process.wait(seconds)
        except psutil.TimeoutExpired:
            process.kill()
            process.wait(5.0)


def free_ports(ports: Sequence[int]) -> Iterator[int]:
    """Yield the ports on which nothing listens at that moment; any such port for 0."""
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            free = int(probe.getsockname()[1])
        yield free


def answers(url: str) -> bool:
    host, _, port = url.removeprefix("http://").rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=1):
            return True
    except OSError:
        return False


def _start_error(service: Service, how: str, log: Path) -> ServiceStartError:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.is_file() else []
    errors = [line for line in lines if re.search(r"\[(ERROR|FATAL)|Exception|Error:|Caused by", line)]
    tail = mask_secrets("\n".join((errors or lines)[-12:]))
    return ServiceStartError(
        f"The embedded {service.name} {how}. The end of its log:\n{tail}\n",
        subject="log",
        value=str(log),
        remedy="read the log; often there is too little memory (heap=...) or another server uses the same data folder",
    )


def _folder_error(service: Service, data: Path, error: OSError) -> DiskFullError | ServiceStartError:
    kind = DiskFullError if error.errno in (errno.ENOSPC, errno.EDQUOT) else ServiceStartError
    return kind(
        f"The folder of the embedded {service.name} cannot be used: {error}",
        subject="data_folder",
        value=str(data),
        remedy="give a folder with room that you may write to (the default one follows TMPDIR)",
    )


@dataclass
class Background:
    """The server of a service that outlives the process that started it, recorded in the user's state folder."""

    name: str

    def status(self) -> ServerState | None:
        try:
            state = ServerState(**json.loads(self._file().read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None
        return state if is_running(state.pid, state.started) else None

    def start(self, service: Callable[[], Service], seconds: float) -> ServerState:
        file = self._file()
        folder = file.parent
        with one_process_at_a_time(folder / "lock", "XDG_STATE_HOME"):
            found = self.status()
            if found is not None and answers(found.url):
                return found
            self.stop()
            wanted = service()
            data = folder / f"data-{wanted.version.split('.')[0]}"  # OpenSearch 2.19 cannot read what 3.x wrote
            url, process, log = start(wanted, folder, data, seconds, guarded=False)
            state = ServerState(url, process.pid, started_at(process.pid), wanted.version, str(log), str(data))
            file.write_text(json.dumps(asdict(state), indent=2), encoding="utf-8")
            return state

    def stop(self, *, remove_data: bool = False) -> bool:
        """Stop the server that runs in the background, and no other; returns whether there was one."""
        state = self.status()
        if state is not None:
            with suppress(psutil.NoSuchProcess):
                end(psutil.Process(state.pid))
        if remove_data:
            for data in self._file().parent.glob("data*"):
                shutil.rmtree(data, ignore_errors=True)
        self._file().unlink(missing_ok=True)
        return state is not None

    def _file(self) -> Path:
        return user_folder("XDG_STATE_HOME", ".local/state") / self.name / "server.json"
