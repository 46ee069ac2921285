"""The embedded OpenSearch and Kafka: real servers, their start, their end, and their failures."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
import urllib3
from opensearchpy import OpenSearch

from icecdc_core.errors import DownloadError, PortInUseError, ServiceStartError
from icecdc_core.local import kafka, running_opensearch, server, start_opensearch
from icecdc_core.local.__main__ import main
from icecdc_core.local.kafka import running_kafka, start_kafka
from icecdc_core.local.opensearch import background
from icecdc_core.local.server import answers
from icecdc_core.session.jars import kafka_jars, listed_jars
from icecdc_core.session.processes import is_running
from tests.checks.waiting import is_true_within
from tests.given.kafka_topics import Topic

_HEAP, CONNECTIONS = "384m", urllib3.PoolManager()
# These start servers of their own, while every other test of the suite has one from `running_opensearch`.
tools = pytest.mark.tools


@pytest.fixture
def temporary_folder(tmp_path, monkeypatch):
    """A folder of its own for temporary files, so that a test sees what is left in it."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def state_folder(tmp_path, monkeypatch):
    """No server of the person who runs the tests is seen or stopped."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    yield tmp_path / "state"
    for each in (background, kafka.background):
        each.stop(remove_data=True)


@pytest.fixture
def occupied_port():
    with socket.socket() as listener:
        port = next(server.free_ports(list(range(8100, 8200))))
        listener.bind(("127.0.0.1", port))
        listener.listen()
        yield port


class DescribeRunningOpensearch:
    @tools
    def it_is_on_loopback_keeps_given_data_and_says_when_it_ended_too_early(self, tmp_path, temporary_folder):
        given = {"heap": _HEAP, "data_folder": tmp_path / "data"}
        with pytest.raises(ServiceStartError, match="ended while it was needed"), running_opensearch(**given) as url:
            _use_and_kill(url, temporary_folder)
        assert [entry.name for entry in temporary_folder.glob("*/*")] == ["opensearch.log"]
        with running_opensearch(**given) as url:
            with OpenSearch(url) as client:
                assert client.get(index="t", id="1")["_source"] == {"a": 1}
            with pytest.raises(ServiceStartError, match="data folder"), running_opensearch(**given):
                pass
        assert not answers(url)

    def it_ends_with_a_process_that_was_killed(self, temporary_folder):
        program = (
            "import os, signal, sys\n"
            "from icecdc_core.local.server import Service, answers, running\n"
            "serve = lambda folder, data, port: [sys.executable, '-m', 'http.server', str(port), '-b', '127.0.0.1']\n"
            "find_url = lambda log, port: f'127.0.0.1:{port}' if answers(f'127.0.0.1:{port}') else ''\n"
            "with running(Service('Pages', '1', [0], serve, find_url), None, 30) as url:\n"
            "    print(url, flush=True)\n"
            "    os.kill(os.getpid(), signal.SIGKILL)\n"
        )
        environment = {**os.environ, "TMPDIR": str(temporary_folder), "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", program]
        killed = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=False)
        assert killed.returncode == -signal.SIGKILL
        assert is_true_within(30, lambda: not answers(killed.stdout.strip()) and not list(temporary_folder.iterdir()))

    @tools
    def it_keeps_its_log_when_it_does_not_start(self, temporary_folder):
        for heap, seconds, message in (("1m", 60, "Too small maximum heap"), (_HEAP, 0.5, "not healthy after 0.5 sec")):
            given = {"heap": heap, "timeout_seconds": seconds}
            with pytest.raises(ServiceStartError, match=message) as caught, running_opensearch(**given):
                pass
            assert Path(str(caught.value.value)).is_file()

    def it_reports_an_occupied_port(self, occupied_port, temporary_folder):
        for running in (running_opensearch, running_kafka):
            with pytest.raises(PortInUseError, match=f"port={occupied_port}"), running(port=occupied_port):
                pass
        assert not list(temporary_folder.iterdir())


def it_ends_a_server_whose_start_is_interrupted(tmp_path):
    def interrupt(log, port):
        raise KeyboardInterrupt

    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    service = server.Service("Sleeper", "1", [0], lambda *_: command, interrupt)
    with pytest.raises(KeyboardInterrupt):
        server.start(service, tmp_path, tmp_path, 9, guarded=False)
    assert [each.pid for each in psutil.Process().children() if each.cmdline() == command] == []


class DescribeStartOpensearch:
    @tools
    def it_leaves_one_running_uses_it_again_and_stops_only_that(self, state_folder, capsys):
        assert (background.status(), main(["status"])) == (None, 1)
        first = start_opensearch(heap=_HEAP)
        assert (main(["up"]), main(["status"])) == (0, 0)
        assert capsys.readouterr().out.count(f"{first.url} (process {first.pid},") == 2
        assert (main(["down"]), is_running(first.pid, first.started), answers(first.url)) == (0, False, False)
        assert (Path(first.data_folder).exists(), background.stop()) == (True, False)
        assert (main(["down", "--remove-data"]), Path(first.data_folder).exists()) == (0, False)

    def it_does_not_stop_a_stranger_with_the_same_process_id(self, state_folder):
        (file := state_folder / "icecdc/opensearch/server.json").parent.mkdir(parents=True)
        rest = {"url": "http://127.0.0.1:1", "version": "2.19.1.0", "log": "", "data_folder": ""}
        with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as stranger:
            file.write_text(json.dumps({"pid": stranger.pid, "started": "another time", **rest}))
            stopped, code = background.stop(), stranger.poll()
            stranger.kill()
        assert (stopped, code) == (False, None)


def it_shows_the_end_of_a_log_without_secrets(tmp_path):
    log = tmp_path / "log"
    log.write_text("Picked up JAVA_TOOL_OPTIONS: -Dhttps.proxyPassword=hunter2")
    error = server._start_error(server.Service("Kafka", "4", [0], None, None), "ended", log)
    assert ("proxyPassword=***" in str(error), "hunter2" in str(error)) == (True, False)


@tools
def it_leaves_a_kafka_running_and_finds_it_again_until_it_is_stopped(state_folder, capsys):
    first, second = start_kafka(), start_kafka()
    Topic(first.url).send({"id": 1})
    main(["status"])
    assert f"Kafka {first.version} at {first.url}" in capsys.readouterr().out
    assert (first, kafka.background.stop(), kafka.background.status()) == (second, True, None)
    assert not answers(first.url)


class DescribeJarsInTheCache:
    part = "connector-4.1"

    @pytest.fixture
    def mirror(self, tmp_path, monkeypatch):
        """A Maven repository; the cache is empty."""
        for jar in listed_jars("icecdc_core.session", "kafka_jars.json", self.part):
            place = tmp_path / jar.url.partition("/maven2/")[2]
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(kafka_jars(self.part)[0].parent / jar.file_name)
        monkeypatch.setenv("ICECDC_MAVEN_URL", tmp_path.as_uri())
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        return tmp_path

    def it_fetches_what_a_mirror_has_and_a_corrupted_jar_again(self, mirror):
        jars = kafka_jars(self.part)
        assert jars[0].parent == mirror / "cache" / "icecdc" / f"kafka-{self.part}"
        content = jars[1].read_bytes()
        jars[1].write_bytes(content[:-1] + b"x")
        assert (kafka_jars(self.part), jars[1].read_bytes()) == (jars, content)

    def it_refuses_a_mirror_that_lacks_a_file_or_has_another_one(self, mirror):
        place = next(mirror.glob("org/**/*.jar"))
        for message, change in (("ICECDC_MAVEN_URL", place.unlink), ("SHA-256", lambda: place.write_bytes(b"another"))):
            change()
            with pytest.raises(DownloadError, match=message):
                kafka_jars(self.part)
            assert not list((mirror / "cache").rglob(f"*{place.name}"))


def _use_and_kill(url, temporary_folder):
    """It answers this machine, and no web page; one document in the index `t` stays."""
    port = int(url.rpartition(":")[2])
    with OpenSearch(url) as client:
        node = next(iter(client.nodes.info()["nodes"].values()))
        bound = [address for layer in ("http", "transport") for address in node[layer]["bound_address"]]
        assert all(address.startswith("127.0.0.1:") for address in [url.removeprefix("http://"), *bound])
        client.index(index="t", id="1", body={"a": 1}, refresh=True)
        for host in (f"127.0.0.1:{port}", f"LOCALHOST:{port}", f"[::1]:{port}", "localhost"):
            assert _asked(port, "GET", "/t/_doc/1", Host=host)[0] == 200
        foreign = (f"evil.example:{port}", "127.0.0.1.evil.example", f"localhost.evil.example:{port}", "")
        origins = ("https://evil.example", "null", url, f"http://localhost:{port}")
        wrong = [{"Host": host} for host in foreign]
        wrong += [{"Host": f"127.0.0.1:{port}", "Origin": origin} for origin in origins]
        for headers in wrong:
            for method, path, body in (
                *(("GET", "/", ""), ("GET", "/t/_search", ""), ("POST", "/t/_doc/2?refresh=true", '{"a": 2}')),
                *(("POST", "/_bulk?refresh=true", '{"index":{"_index":"t"}}\n{"a":3}\n'), ("DELETE", "/t", "")),
            ):
                status, text = _asked(port, method, path, body, **headers)
                assert (status, text[:8]) == (403, "refused:"), (headers, method, path)
        assert client.count(index="t")["count"] == 1
    (log,) = temporary_folder.glob("*/opensearch.log")
    os.kill(int(re.search(r"pid\[(\d+)\]", log.read_text())[1]), signal.SIGKILL)
    assert is_true_within(10, lambda: not answers(url))


def _asked(port, method, path, body="", **headers):
    given = {"Content-Type": "application/json", **headers}
    answer = CONNECTIONS.request(method, f"http://127.0.0.1:{port}{path}", body=body, headers=given, retries=False)
    return answer.status, answer.data.decode()
