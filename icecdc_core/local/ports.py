"""Ports for the embedded server: found free, never assumed."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator

from icecdc_core.errors import ConfigError

DEFAULT_PORT = 9200
_LARGEST_PORT = 9299  # the runner of the embedded server refuses those above


def candidate_ports(port: int = 0, first: int = 0) -> list[int]:
    """The given port alone; or all the runner can use, in random order so that two starting at once rarely meet.

    Raises:
        ConfigError: The port is outside of what the embedded server can use.
    """
    if port:
        if not 1024 <= port <= _LARGEST_PORT:
            raise ConfigError(
                "The embedded OpenSearch cannot use this port",
                subject="port",
                value=port,
                remedy=f"take one from 1024 to {_LARGEST_PORT}, or none: then a free one is found",
            )
        return [port]
    others = list(range(DEFAULT_PORT + 1, _LARGEST_PORT + 1))
    lower = list(range(8200, DEFAULT_PORT))
    random.shuffle(others)
    random.shuffle(lower)
    return [first] * bool(first) + others + lower


def free_ports(ports: list[int]) -> Iterator[int]:
    """Those of the ports nobody listens on at the moment they are asked for."""
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        yield port
