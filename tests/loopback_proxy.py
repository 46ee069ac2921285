"""A proxy on loopback in front of the real OpenSearch that asks for credentials and makes trouble when told to."""

from __future__ import annotations

import base64
import http.client
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

# Looks at a request (method, path, body); what it returns is the answer instead of the server's: status and JSON.
Trouble = Callable[[str, str, bytes], "tuple[int, dict[str, Any]] | None"]
# Looks at a request's path and body and the server's JSON answer, and returns the JSON to answer with.
Spoil = Callable[[str, bytes, dict[str, Any]], dict[str, Any]]


@dataclass
class Proxy:
    """A running proxy: its address, the (method, path, bytes) of every request it let in, and what these authorised."""

    url: str
    seen: list[tuple[str, str, int]] = field(default_factory=list)
    authorizations: set[str] = field(default_factory=set)

    @property
    def bulks(self) -> list[int]:
        """The sizes of the bulk requests, in order."""
        return [size for _, path, size in self.seen if "/_bulk" in path]


@contextmanager
def loopback_proxy(
    target: str, credentials: str = "", trouble: Trouble | None = None, spoil: Spoil | None = None
) -> Iterator[Proxy]:
    """Forward everything to a real server.

    Args:
        target: The real server's URL.
        credentials: ``user:password`` that every request must carry; empty: none.
        trouble: Answers some requests itself.
        spoil: Changes some answers.
    """
    host = urlsplit(target).netloc
    wanted = f"Basic {base64.b64encode(credentials.encode()).decode()}"
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if credentials and self.headers.get("Authorization") != wanted:
                self.reply(401, b'{"error": "Unauthorized"}')
                return
            with lock:
                proxy.seen.append((self.command, self.path, len(body)))
                proxy.authorizations.add(self.headers.get("Authorization") or "")
                made = trouble(self.command, self.path, body) if trouble else None
            if made is not None:
                self.reply(made[0], json.dumps(made[1]).encode())
                return
            kept = {"Content-Type": self.headers.get("Content-Type") or "application/json"}
            upstream = http.client.HTTPConnection(host, timeout=60)
            try:
                upstream.request(self.command, self.path, body or None, kept)
                answer = upstream.getresponse()
                content = answer.read()
            finally:
                upstream.close()
            if spoil and content:
                with lock:
                    content = json.dumps(spoil(self.path, body, json.loads(content))).encode()
            self.reply(answer.status, content)

        do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = handle_one  # noqa: N815

        def reply(self, status: int, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def log_message(self, *arguments: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    proxy = Proxy(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
