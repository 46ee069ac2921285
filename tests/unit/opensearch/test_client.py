"""Which answers are OpenSearch's, and which failures are retried, for how long and with which pauses."""

import json
import ssl
from types import SimpleNamespace

import pytest
from opensearchpy.exceptions import TransportError

from icecdc_core.opensearch.client import AnswerReader, Backoff, Connection, without_retries
from tests.servers.tiny_opensearch import error
from tests.simulation.simulated_opensearch import Index


def it_reads_json_with_any_declared_character_set():
    for text in ('{"a": [1, "é"]}', '{"a": "\\ud800"}'):
        assert AnswerReader(True).loads(text, "application/json; charset=UTF-8") == json.loads(text)


@pytest.fixture
def client(server):
    server.indexes["t"] = Index()
    opened = Connection(server.url).client(retry_seconds=20)
    yield opened
    opened.close()


def failing(server, *answers):
    left = list(answers)
    server.trouble = lambda method, path: left.pop(0) if left else None
    return left


def it_trusts_the_file_of_the_system(monkeypatch, tmp_path):
    paths = SimpleNamespace(cafile=str(tmp_path / "ca.pem"))
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: paths)
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    opened = Connection("https://127.0.0.1:9", options={"verify_certs": True}).client()
    trusted = opened.transport.get_connection().pool.ca_certs
    opened.close()
    assert trusted == paths.cafile


def it_pauses_twice_as_long_each_time_until_the_time_since_the_first_failure_is_over(monkeypatch):
    backoff, now, pauses = Backoff(3.0, 0.5), [0.0], []
    # Only the module's clock: threads of other tests may sleep meanwhile.
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=pauses.append)
    monkeypatch.setattr("icecdc_core.opensearch.client.time", clock)
    assert not Backoff(0.0, 0.5).wait("it failed")
    for now[0] in (100.0, 101.0, 102.0, 102.5):
        assert backoff.wait("it failed")
    assert (pauses[2] > pauses[0], pauses[3] <= 0.5) == (True, True)
    now[0] = 103.0
    assert not backoff.wait("it failed")


class DescribeRetryingTransport:
    def it_retries_neither_a_refusal_nor_where_retries_are_off(self, server, client):
        left = failing(server, error(403, "refused"), error(503, "never asked for"))
        with pytest.raises(TransportError, match="refused"):
            client.indices.get(index="t")
        assert len(left) == 1
        left = failing(server, *[error(503, "busy")] * 2)
        with without_retries(client), pytest.raises(TransportError):
            client.indices.get(index="t")
        assert (len(left), list(client.indices.get(index="t")), left) == (1, ["t"], [])
