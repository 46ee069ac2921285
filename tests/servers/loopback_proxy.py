"""A proxy on loopback in front of the real OpenSearch that asks for credentials and makes trouble on request."""

import base64
import http.client
import json
import re
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from enum import Enum
from typing import Any
from urllib.parse import urlsplit

from tests.servers.http_server import Answer, Request, http_server


class Act(Enum):
    """What else can happen to a request than an answer."""

    RESET = "the connection breaks before the server sees the request"
    RESET_AFTER = "the connection breaks after the server has done it, before the answer"
    STALL = "nobody answers"
    SLOW = "the answer takes a third of a second"


# Looks at a request (method, path, body); what it returns is the answer instead of the server's, or what becomes of it.
Trouble = Callable[[str, str, bytes], "Answer | Act"]
# Looks at a request (method, path, headers, body) before anything else; what it returns is a refusal.
Gate = Callable[[str, str, Mapping[str, str], bytes], "tuple[int, dict[str, Any]] | None"]
# Looks at a request's path and body and the server's JSON answer, and returns the JSON to answer with.
Spoil = Callable[[str, bytes, dict[str, Any]], dict[str, Any]]
# Sees each write (method, path, body) and the server's answer to it (status, text), in the order of the server.
Record = Callable[[str, str, bytes, int, bytes], None]


def at_first(kind: str, act: Callable[[], Any]) -> Trouble:
    """Do something at the first request, "METHOD path", that a pattern finds, before the server sees it."""
    found: list[str] = []

    def trouble(method: str, path: str, body: bytes) -> Any:
        if found or not re.search(kind, f"{method} {path}"):
            return None
        found.append(path)
        return act()

    return trouble


def cut_off(number: int, after: bool = False, kind: str = "") -> Trouble:
    """Let no request through from the n-th of a kind on; the n-th is done if `after`, but its answer is lost."""
    seen: list[str] = []

    def trouble(method: str, path: str, body: bytes) -> Act | None:
        if re.search(kind, f"{method} {path}") or len(seen) >= number:
            seen.append(path)
        if len(seen) < number:
            return None
        return Act.RESET_AFTER if after and len(seen) == number else Act.RESET

    return trouble


@dataclass
class Proxy:
    """A running proxy: its address, the (method, path, bytes) of every request it let in, and what these authorised."""

    url: str
    seen: list[tuple[str, str, int]] = field(default_factory=list)
    authorizations: set[str] = field(default_factory=set)

    @property
    def bulks(self) -> list[int]:
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
    host = urlsplit(target).netloc
    wanted = f"Basic {base64.b64encode(credentials.encode()).decode()}"
    lock, ended, one_write = threading.Lock(), threading.Event(), threading.Lock()

    def forward(request: Request) -> tuple[int, bytes]:
        upstream = http.client.HTTPConnection(host, timeout=60)
        try:
            kept = {"Content-Type": request.headers.get("Content-Type") or "application/json"}
            upstream.request(request.method, request.path, request.body or None, kept)
            answer = upstream.getresponse()
            return answer.status, answer.read()
        finally:
            upstream.close()

    def answer(request: Request) -> Answer:
        method, path, body = request.method, request.path, request.body
        if credentials and request.headers.get("Authorization") != wanted:
            return 401, {"error": "Unauthorized"}
        if gate and (refused := gate(method, path, request.headers, body)) is not None:
            return refused
        with lock:
            proxy.seen.append((method, path, len(body)))
            proxy.authorizations.add(request.headers.get("Authorization") or "")
            made = trouble(method, path, body) if trouble else None
        if made is Act.STALL:
            ended.wait(60)
        if made in (Act.STALL, Act.RESET):
            return None
        if made is Act.SLOW:
            ended.wait(0.3)
        if isinstance(made, tuple):
            return made
        with one_write if record and method in ("PUT", "POST", "DELETE") else nullcontext():
            status, content = forward(request)
            if record:
                record(method, path, body, status, content)
        if made is Act.RESET_AFTER:
            return None
        if spoil and content:
            with lock:
                # Without spaces, as the server itself writes it.
                content = json.dumps(spoil(path, body, json.loads(content)), separators=(",", ":")).encode()
        return status, content

    with http_server(answer, tls) as url:
        proxy = Proxy(url)
        try:
            yield proxy
        finally:
            ended.set()
