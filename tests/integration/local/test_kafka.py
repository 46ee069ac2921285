"""The embedded Kafka broker: in the background, found again, and its errors when it cannot start."""

import socket

import pytest

from icecdc_core.errors import PortInUseError
from icecdc_core.local.__main__ import main
from icecdc_core.local.kafka import background, running_kafka, start_kafka
from icecdc_core.local.server import answers
from tests.kafka_topics import Topic


@pytest.mark.tools
def it_is_left_running_and_found_again_until_it_is_stopped(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    first, second = start_kafka(), start_kafka()
    try:
        Topic(first.url).send({"id": 1})
        main(["status"])
        printed = capsys.readouterr().out
    finally:
        stopped = background.stop(remove_data=True)
    assert (first, stopped, background.status()) == (second, True, None)
    assert f"Kafka {first.version} at {first.url}" in printed
    assert not answers(first.url)


def it_names_the_port_that_is_in_use():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PortInUseError) as caught, running_kafka(port=port):
            pass
    assert str(port) in str(caught.value)
