"""The simulated OpenSearch behind HTTP on loopback: rules of positions and indexes are tested in milliseconds.

`tests/simulation/test_simulated_opensearch.py` compares its answers with those of a real one.
"""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.servers.http_server import Request, http_server
from tests.simulation.simulated_opensearch import Answer, Document, SimulatedOpenSearch, error

__all__ = ["TinyOpenSearch", "error", "tiny_opensearch"]


class TinyOpenSearch(SimulatedOpenSearch):
    """The server; `trouble` looks at a request (method, path), and what it returns is the answer. It may also sleep."""

    def __init__(self) -> None:
        super().__init__()
        self.url = ""
        self.trouble: Callable[[str, str], Answer | None] | None = None
        self._lock = threading.Lock()

    def document(self, index: str, identity: str) -> Document:
        return self.indexes[index].documents[identity]

    def request(self, method: str, target: str, body: Any) -> Answer:
        parts = urlsplit(target)
        if self.trouble and (made := self.trouble(method, parts.path)) is not None:
            return made
        with self._lock:
            return self.answer(method, unquote(parts.path), dict(parse_qsl(parts.query)), body)


@contextmanager
def tiny_opensearch() -> Iterator[TinyOpenSearch]:
    server = TinyOpenSearch()

    def answer(request: Request) -> Answer:
        return server.request(request.method, request.path, json.loads(request.body) if request.body else None)

    with http_server(answer) as server.url:
        yield server
