"""A proxy on loopback in front of the real OpenSearch that asks for credentials and makes trouble on request."""

from __future__ import annotations

import base64
import http.client
import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit


class Act(Enum):
    """What else can happen to a request than an answer."""

    RESET = "the connection breaks before the server sees the request"
    RESET_AFTER = "the connection breaks after the server has done it, before the answer"
    STALL = "nobody answers"
    SLOW = "the answer takes a third of a second"


@dataclass(frozen=True)
class Page:
    """An answer that need not be JSON, as something in between may give it."""

    text: str
    content_type: str = "application/json"
    status: int = 200


# Looks at a request (method, path, body); what it returns is the answer instead of the server's: status and JSON, or a
# page; or what becomes of the request.
Trouble = Callable[[str, str, bytes], "tuple[int, dict[str, Any]] | Page | Act | None"]
# Looks at a request (method, path, headers, body) before anything else; what it returns is a refusal.
Gate = Callable[[str, str, Mapping[str, str], bytes], "tuple[int, dict[str, Any]] | None"]
# Looks at a request's path and body and the server's JSON answer, and returns the JSON to answer with.
Spoil = Callable[[str, bytes, dict[str, Any]], dict[str, Any]]
# Sees each write (method, path, body) and the server's answer to it (status, text), in the order of the server.
Record = Callable[[str, str, bytes, int, bytes], None]


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
    target: str,
    credentials: str = "",
    trouble: Trouble | None = None,
    spoil: Spoil | None = None,
    gate: Gate | None = None,
    record: Record | None = None,
    tls: ssl.SSLContext | None = None,
) -> Iterator[Proxy]:
    """Forward everything to a real server."""
    host = urlsplit(target).netloc
    wanted = f"Basic {base64.b64encode(credentials.encode()).decode()}"
    lock, ended, one_write = threading.Lock(), threading.Event(), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if credentials and self.headers.get("Authorization") != wanted:
                self.reply(401, b'{"error": "Unauthorized"}')
                return
            refused = gate(self.command, self.path, self.headers, body) if gate else None
            if refused is not None:
                self.reply(refused[0], json.dumps(refused[1]).encode())
                return
            with lock:
                proxy.seen.append((self.command, self.path, len(body)))
                proxy.authorizations.add(self.headers.get("Authorization") or "")
                made = trouble(self.command, self.path, body) if trouble else None
            if made is Act.STALL:
                ended.wait(60)
            if made in (Act.STALL, Act.RESET):
                self.hang_up()
                return
            if made is Act.SLOW:
                ended.wait(0.3)
            if isinstance(made, Page):
                self.reply(made.status, made.text.encode(), made.content_type)
                return
            if isinstance(made, tuple):
                self.reply(made[0], json.dumps(made[1]).encode())
                return
            kept = {"Content-Type": self.headers.get("Content-Type") or "application/json"}
            with one_write if record and self.command in ("PUT", "POST", "DELETE") else nullcontext():
                status, content = self.forward(body, kept)
                if record:
                    record(self.command, self.path, body, status, content)
            if made is Act.RESET_AFTER:
                self.hang_up()
                return
            if spoil and content:
                with lock:
                    spoilt = spoil(self.path, body, json.loads(content))
                    # Without spaces, as the server itself writes it.
                    content = json.dumps(spoilt, separators=(",", ":")).encode()
            self.reply(status, content)

        def forward(self, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
            upstream = http.client.HTTPConnection(host, timeout=60)
            try:
                upstream.request(self.command, self.path, body or None, headers)
                answer = upstream.getresponse()
                return answer.status, answer.read()
            finally:
                upstream.close()

        do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = handle_one  # noqa: N815

        def hang_up(self) -> None:
            # A reset, not an orderly end: what a dying load balancer does.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            self.connection.close()

        def reply(self, status: int, content: bytes, content_type: str = "application/json") -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def log_message(self, *arguments: Any) -> None:
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            """A client that went away is part of the game."""

    server = Server(("127.0.0.1", 0), Handler)
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    proxy = Proxy(f"{'https' if tls else 'http'}://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        ended.set()
        server.shutdown()
        server.server_close()
        thread.join()
