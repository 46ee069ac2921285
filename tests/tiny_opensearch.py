"""A small HTTP server on loopback that keeps documents as OpenSearch does: versions, conditions, aliases.

The rules of positions and indexes are tested against it in milliseconds; tests/faults tests the same rules against a
real OpenSearch.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

Answer = tuple[int, Any]
# Looks at a request (method, path); what it returns is the answer. It may also sleep, as a slow server does.
Trouble = Callable[[str, str], "Answer | None"]


def error(status: int, kind: str, reason: str = "made by the test") -> Answer:
    """An error as OpenSearch gives it."""
    return status, {"error": {"type": kind, "reason": reason, "root_cause": []}, "status": status}


class TinyOpenSearch:
    """The indexes and their documents."""

    def __init__(self) -> None:
        self.url = ""
        self.indexes: dict[str, dict[str, Any]] = {}
        self.trouble: Trouble | None = None
        self._lock = threading.Lock()

    def document(self, index: str, identity: str) -> dict[str, Any]:
        """The stored document, which a test may change."""
        return self.indexes[index]["docs"][identity]

    def answer(self, method: str, target: str, body: Any) -> Answer:
        """Answer one request."""
        parts, query = urlsplit(target), dict(parse_qsl(urlsplit(target).query))
        if self.trouble and (made := self.trouble(method, parts.path)) is not None:
            return made
        names = [unquote(part) for part in parts.path.strip("/").split("/")]
        with self._lock:
            if names[0] == "_alias":
                shown = {each: {} for each, entry in self.indexes.items() if names[1] in entry["aliases"]}
                return (200, shown) if shown else error(404, "alias_missing")
            if names == ["_aliases"]:
                return self._change_aliases(body["actions"])
            index, api = names[0], names[1] if len(names) > 1 else ""
            if api == "_doc":
                return self._document(method, index, names[2], query, body)
            if api == "_search":
                hits = [{"_id": each, **doc} for each, doc in self._found(index)[0]["docs"].items()]
                return 200, {"hits": {"hits": [hit for hit in hits if hit["_source"]["type"] == "commit"]}}
            if api == "_settings":
                self.indexes[index]["settings"]["index"].update(body["index"])
                return 200, {"acknowledged": True}
            if api == "_mapping":
                known = self.indexes[index]["mappings"]["properties"]
                if wrong := [name for name, field in body["properties"].items() if known.get(name, field) != field]:
                    return error(400, "illegal_argument_exception", f"mapper [{wrong[0]}] cannot be changed")
                known.update(body["properties"])
                return 200, {"acknowledged": True}
            if api == "_refresh":
                return 200, {"_shards": {}}
            return self._index(method, index, body)

    def _index(self, method: str, index: str, body: Any) -> Answer:
        if method == "PUT":
            if index in self.indexes:
                return error(400, "resource_already_exists_exception")
            settings = {"index": {**(body["settings"].get("index") or body["settings"]), "uuid": f"uuid of {index}"}}
            settings["index"]["creation_date"] = str(len(self.indexes))
            entry = {"aliases": body.get("aliases", {}), "mappings": body["mappings"], "settings": settings}
            self.indexes[index] = {**entry, "docs": {}}
            return 200, {"acknowledged": True, "index": index}
        if method == "DELETE":
            self.indexes.pop(index, None)
            return 200, {"acknowledged": True}
        prefix = index.removesuffix("*")
        found = {
            name: {part: entry[part] for part in ("aliases", "mappings", "settings")}
            for name, entry in self.indexes.items()
            if name == index or index in entry["aliases"] or (prefix != index and name.startswith(prefix))
        }
        return (200, found) if found or prefix != index else error(404, "index_not_found_exception")

    def _document(self, method: str, index: str, identity: str, query: dict[str, str], body: Any) -> Answer:
        found = self._found(index)
        if not found or (query.get("require_alias") == "true" and index in self.indexes):
            return error(404, "index_not_found_exception")
        docs = found[0]["docs"]
        known = docs.get(identity)
        if method == "GET":
            return (200, {"_id": identity, "found": True, **known}) if known else (404, {"found": False})
        seq_no = known["_seq_no"] if known else None
        expected = query.get("if_seq_no")
        if (query.get("op_type") == "create" and known) or (expected is not None and expected != str(seq_no)):
            return error(409, "version_conflict_engine_exception")
        docs[identity] = {"_source": body, "_seq_no": 0 if seq_no is None else seq_no + 1, "_primary_term": 1}
        return 201, {"_id": identity, "_seq_no": docs[identity]["_seq_no"], "_primary_term": 1}

    def _change_aliases(self, actions: list[dict[str, Any]]) -> Answer:
        for action in actions:
            ((kind, change),) = action.items()
            entry = self.indexes[change["index"]]
            if change.get("must_exist") and change["alias"] not in entry["aliases"]:
                return error(404, "aliases_not_found_exception")
            if kind == "add":
                entry["aliases"][change["alias"]] = {
                    name: value for name, value in change.items() if name not in ("index", "alias")
                }
            else:
                entry["aliases"].pop(change["alias"], None)
        return 200, {"acknowledged": True}

    def _found(self, name: str) -> list[dict[str, Any]]:
        return [entry for index, entry in self.indexes.items() if index == name or name in entry["aliases"]]


@contextmanager
def tiny_opensearch() -> Iterator[TinyOpenSearch]:
    """Run one for the block."""
    server = TinyOpenSearch()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one(self) -> None:
            text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, answer = server.answer(self.command, self.path, json.loads(text) if text else None)
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
