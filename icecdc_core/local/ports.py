"""Free ports for the embedded server."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator

from icecdc_core.errors import ConfigError

DEFAULT_PORT = 9200
_LARGEST_PORT = 9299  # the embedded server refuses ports above


def candidate_ports(port: int = 0, first: int = 0) -> list[int]:
    """Return the ports to try."""
    if port:
        if not 1024 <= port <= _LARGEST_PORT:
            raise ConfigError(
                "The embedded OpenSearch cannot use this port",
                subject="port",
                value=port,
                remedy=f"use one from 1024 to {_LARGEST_PORT}, or none: then a free one is found",
            )
        return [port]
    others = list(range(DEFAULT_PORT + 1, _LARGEST_PORT + 1))
    lower = list(range(8200, DEFAULT_PORT))
    random.shuffle(others)
    random.shuffle(lower)
    return [first] * bool(first) + others + lower


def free_ports(ports: list[int]) -> Iterator[int]:
    """Yield the ports on which nothing listens at that moment."""
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        yield port
