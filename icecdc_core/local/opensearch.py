"""An OpenSearch for the length of a `with` block."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from icecdc_core.errors import ServiceStartError
from icecdc_core.local.ports import candidate_ports
from icecdc_core.local.processes import end, guarded, log_tail
from icecdc_core.local.runtime import choose_runtime
from icecdc_core.local.server import start_server

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

    It stops with the block, and also if this process dies. Its data are temporary, unless `data_folder` or `keep` is
    given. Several servers may run at once. The jars are downloaded on first use.

    Args:
        data_folder: A folder for the data, which then stay; default: a temporary folder.
        heap: The server's heap, such as "512m" or "2g".
        version: "2.19.1.0" or "3.8.0.0"; default: ICECDC_OPENSEARCH_VERSION, else what fits the Java of Spark.
        keep: Whether to keep the temporary folder with data and log.
        port: The HTTP port; 0: a free one is found.
        timeout_seconds: How long the start may take.

    Raises:
        JavaNotFoundError: No Java fits.
        DownloadError: The jars could not be downloaded.
        PortInUseError: The given port is in use.
        DiskFullError: The disk is full.
        ServiceStartError: It did not start, or stopped during the block; the message names its log, which stays.
    """
    runtime, ports = choose_runtime(version), candidate_ports(port)
    folder = Path(tempfile.mkdtemp(prefix="icecdc-opensearch-"))
    data = Path(data_folder).expanduser().resolve() if data_folder else folder / "data"
    try:
        server = start_server(runtime, folder, data, heap, ports, timeout_seconds, guarded(folder))
    except BaseException as error:
        _remove_but_log(folder, keep_log=isinstance(error, ServiceStartError))
        raise
    died = False
    try:
        yield server.url
    finally:
        if keep and server.process.stdin:
            with suppress(OSError):  # the server has died
                os.write(server.process.stdin.fileno(), b"keep\n")
        end(server.process)
        died = server.process.returncode != 0  # the watchdog's: it may notice a death only now
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
            remedy="read the log; often the system ended it because memory ran out",
        )


def _remove_but_log(folder: Path, *, keep_log: bool) -> None:
    if not keep_log:
        shutil.rmtree(folder, ignore_errors=True)
    for entry in folder.iterdir() if folder.is_dir() else ():
        if entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)
