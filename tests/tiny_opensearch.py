"""The simulated OpenSearch behind HTTP on loopback: rules of positions and indexes are tested in milliseconds.

`tests/simulation/test_simulated_opensearch.py` compares its answers with those of a real one.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

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
        """The stored document, which a test may change."""
        return self.indexes[index].documents[identity]

    def request(self, method: str, target: str, body: Any) -> Answer:
        """Answer one request."""
        parts = urlsplit(target)
        if self.trouble and (made := self.trouble(method, parts.path)) is not None:
            return made
        with self._lock:
            return self.answer(method, unquote(parts.path), dict(parse_qsl(parts.query)), body)


@contextmanager
def tiny_opensearch() -> Iterator[TinyOpenSearch]:
    """Run one for the block."""
    server = TinyOpenSearch()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one(self) -> None:
            text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, answer = server.request(self.command, self.path, json.loads(text) if text else None)
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = handle_one  # noqa: N815

        def log_message(self, *arguments: Any) -> None:
            """Log nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Ignore a client that does not wait for its answer."""

    listening = Server(("127.0.0.1", 0), Handler)
    server.url = f"http://127.0.0.1:{listening.server_address[1]}"
    thread = threading.Thread(target=listening.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        listening.shutdown()
        listening.server_close()
        thread.join()
