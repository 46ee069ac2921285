"""`make lab`: JupyterLab answers on loopback, with a kernel of this Python and notebooks that run as they are."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
import psutil
import pytest
from nbclient import NotebookClient

from tests.waiting import is_true_within

ROOT = Path(__file__).parents[3]
NOTEBOOKS = ("00_setup", "10_initial_export", "15_day_of_operations", "20_incremental_cdc", "30_validation")
pytestmark = [pytest.mark.tools, pytest.mark.slow, pytest.mark.timeout(900)]


class Lab(NamedTuple):
    """A running JupyterLab."""

    folder: Path
    port: int
    token: str
    process: subprocess.Popen[bytes]

    def answer(self, path: str, token: str = "") -> Any:
        """What the server answers, as JSON."""
        given = {"Authorization": f"token {token}"} if token else {}
        with urllib.request.urlopen(
            urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", headers=given)
        ) as got:
            return json.load(got)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, opensearch_url: str) -> Iterator[Lab]:
    folder, port, token = tmp_path_factory.mktemp("lab"), free_port(), secrets.token_hex(16)
    # A kernel of the user with the same name, which must not be used.
    other = folder / "home" / "share" / "jupyter" / "kernels" / "python3"
    other.mkdir(parents=True)
    (other / "kernel.json").write_text('{"argv": ["/bin/false"], "display_name": "another", "language": "python"}')
    command = [sys.executable, "-m", "demo.lab", "--output", str(folder / "lab"), "--index", "demo-airlines"]
    command += ["--opensearch-url", opensearch_url, "--no-browser", f"--IdentityProvider.token={token}"]
    environment = {**os.environ, "JUPYTER_DATA_DIR": str(folder / "home" / "share" / "jupyter")}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, f"--ServerApp.port={port}"], cwd=ROOT, env=environment, stdout=log, stderr=log
        )
        running = Lab(folder / "lab", port, token, process)
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline and process.poll() is None:
            try:
                running.answer("/api")
                break
            except OSError:
                time.sleep(0.5)
        else:
            raise AssertionError((folder / "log").read_text())
        yield running
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)
        assert (process.wait(60), psutil.wait_procs(children, timeout=30)[1]) == (0, [])


def listens(url: str) -> bool:
    address = urllib.parse.urlsplit(url)
    with socket.socket() as probe:
        return probe.connect_ex((address.hostname, address.port)) == 0


@contextmanager
def lab_of_its_own(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A lab that has just started its OpenSearch, and the URL of that."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "XDG_STATE_HOME": str(folder / "state")}
    environment.pop("ICECDC_OPENSEARCH_URL", None)
    command = [sys.executable, "-m", "demo.lab", "--output", str(folder / "lab"), "--index", "demo-airlines"]
    command += ["--no-browser", f"--ServerApp.port={free_port()}"]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            wait_for_line(process, "OpenSearch starts on loopback")
            mine = psutil.Process(process.pid).children(recursive=True)
            server = next(each for each in mine if each.name() == "java")
            assert is_true_within(30, lambda: bool(ports_of(server)))
            yield process, f"http://127.0.0.1:{min(ports_of(server))}"
        finally:
            process.kill()


def ports_of(process: psutil.Process) -> list[int]:
    return [each.laddr.port for each in process.net_connections() if each.status == psutil.CONN_LISTEN]


def wait_for_line(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line)
        if text in line:
            return
    raise AssertionError("".join(seen))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def it_leaves_no_server_when_it_is_ended_while_the_tables_are_made(tmp_path: Path, number: signal.Signals):
    with lab_of_its_own(tmp_path) as (process, url):
        assert listens(url)
        process.send_signal(number)
        assert process.wait(60) == (-number if number is signal.SIGKILL else 128 + number)
        assert is_true_within(30, lambda: not listens(url))


def it_leaves_nothing_when_its_terminal_is_closed(tmp_path: Path):
    with lab_of_its_own(tmp_path) as (process, url):
        wait_for_line(process, "/lab/tree/")
        started = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGHUP)
        output = process.communicate(timeout=60)[0]
        assert "OpenSearch was stopped; its data are kept in " in output
        assert (psutil.wait_procs(started, timeout=30)[1], listens(url)) == ([], False)


def it_offers_the_kernel_of_this_python(lab: Lab):
    kernels = lab.answer("/api/kernelspecs", lab.token)
    argv = kernels["kernelspecs"]["python3"]["spec"]["argv"]
    assert (kernels["default"], argv[0]) == ("python3", sys.executable)


def it_refuses_those_without_the_token(lab: Lab):
    with pytest.raises(urllib.error.HTTPError, match="403"):
        lab.answer("/api/kernelspecs")


def it_listens_on_loopback_only(lab: Lab):
    server = next(each for each in psutil.Process(lab.process.pid).children() if "jupyterlab" in each.cmdline())
    listening = [each.laddr for each in server.net_connections() if each.status == psutil.CONN_LISTEN]
    assert {address.ip for address in listening if address.port == lab.port} == {"127.0.0.1"}


def it_leaves_the_memory_to_the_kernels(lab: Lab):
    names = {each.name() for each in psutil.Process(lab.process.pid).children(recursive=True)}
    assert "java" not in names


def it_lists_the_notebooks(lab: Lab):
    found = {entry["name"] for entry in lab.answer("/api/contents", lab.token)["content"]}
    assert {f"{name}.ipynb" for name in NOTEBOOKS} <= found


def it_has_notebooks_that_run_from_the_first_to_the_last(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("JUPYTER_PATH", str(lab.folder / "jupyter"))
    reports = {}
    for name in NOTEBOOKS:
        node = nbformat.read(lab.folder / f"{name}.ipynb", as_version=4)
        NotebookClient(node, kernel_name="python3", timeout=300, resources={"metadata": {"path": lab.folder}}).execute()
        reports[name] = "".join(output.get("text", "") for output in node.cells[-1].outputs)
    sync, validation = (json.loads(reports[name]) for name in ("20_incremental_cdc", "30_validation"))
    assert "US Airways becomes American Airlines" in reports["15_day_of_operations"]
    assert (sync["upserts"], validation["ok"], validation["index_documents"]) == (1, True, 16)
