"""Records what really happens between icecdc and OpenSearch: a proxy that writes down every write and its answer.

It stands in front of the real server, so nothing in icecdc knows of it. Writes reach the server one after the other, so
the order of the events is that in which the server executed them. Each index has a trace of its own: a list of events,
as `tests/model/translation.py` reads them. The rows of a snapshot are read with Spark alone, when a batch names it.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.loopback_proxy import loopback_proxy

Event = dict[str, Any]

_POSITION = re.compile(r"/(?P<stored>[^/]+)/_(?:doc|create)/position:(?P<index>[^/]+)$")
_COMMIT_LOG = re.compile(r"/[^/]+/_(?:doc|create)/commit:")
_BULK = re.compile(r"/(?P<index>[^/]+)--(?P<number>\d+)--write/_bulk$")
_DOCUMENT = re.compile(r"/(?P<name>[^/]+)/_(?:doc|create)/(?P<id>[^/]+)$")
_PHYSICAL = re.compile(r"/(?P<index>[^/]+)--(?P<number>\d+)$")
_ALIAS = re.compile(r"/(?P<name>[^/]+)/_alias(?:es)?/(?P<alias>[^/]+)$")
# What cannot change a document, an index, an alias or a position.
_HARMLESS = re.compile(r"_search|_refresh|_mget|_count|_pit|point_in_time|_settings|_mapping|_template|_msearch|_flush")


def digest(document: Mapping[str, Any]) -> str:
    """Return a short name for what a row or a document contains; null is the same as absent."""
    present = {name: value for name, value in document.items() if value is not None}
    text = json.dumps(present, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


class Recorder:
    """The traces of all indexes that are written through the proxy."""

    def __init__(self, target: str) -> None:
        self.traces: dict[str, list[Event]] = {}
        self.tests: dict[str, str] = {}
        self._host = urlsplit(target).netloc
        self._stored: dict[str, str] = {}  # the positions index of each trace
        self._readers: dict[str, list[int]] = {}

    def gate(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> None:
        """Before a batch is begun: read the rows of its snapshot, while the table still has it."""
        found = _POSITION.search(unquote(urlsplit(path).path))
        if not found or method not in ("PUT", "POST") or not found["stored"].endswith("--write"):
            return
        position = json.loads(body)
        trace = self._trace(found["index"])
        named = [position["snapshot_id"]] if position["physical_index"] else []
        named += [position["batch"]["to_snapshot_id"]] if position.get("batch") else []
        for snapshot in named:
            known = any(event["event"] == "snapshot" and event["id"] == snapshot for event in trace)
            if snapshot is not None and not known:
                selection = (position["batch"] or position)["selection"]
                trace.append({"event": "snapshot", "id": snapshot, **_rows(position["table"], snapshot, selection)})

    def record(self, method: str, path: str, body: bytes, status: int, content: bytes) -> None:
        """Write down a write and its answer."""
        parts = urlsplit(path)
        path, parameters = unquote(parts.path), parse_qs(parts.query)
        if method == "GET" or _HARMLESS.search(path) or _COMMIT_LOG.search(path):
            return
        if found := _POSITION.search(path):
            self._position(found, method, body, status)
        elif found := _BULK.search(path):
            self._bulk(found, body, status, content)
        elif method == "POST" and path == "/_aliases":
            self._aliases(status)
        elif found := _ALIAS.search(path):
            self._end(found["alias"], "somebody else moved an alias")
        elif (found := _DOCUMENT.search(path)) and status < 300:
            self._foreign(found, method, body, content, parameters)
        elif method in ("PUT", "DELETE") and status < 300:
            self._index(method, path, body)

    def save(self, folder: Path) -> None:
        """Write each trace to a file of its own, without names that differ from machine to machine."""
        folder.mkdir(parents=True, exist_ok=True)
        for index, events in self.traces.items():
            runs = dict.fromkeys(event["owner"] for event in events if event.get("owner"))
            lines = ",\n".join(json.dumps(event) for event in events).replace(f'"{index}--', '"index--')
            for number, run in enumerate(runs, 1):
                lines = lines.replace(run, f"run {number}")
            text = f'{{"test": {json.dumps(self.tests[index])}, "events": [\n{lines}\n]}}\n'
            (folder / f"{index}.json").write_text(text, encoding="utf-8")

    def _trace(self, index: str) -> list[Event]:
        if index not in self.traces:
            self.traces[index] = []
            self.tests[index] = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" (")[0]
        return self.traces[index]

    def _end(self, index: str, reason: str) -> None:
        if index in self.traces:
            self.traces[index].append({"event": "end", "reason": reason})

    def _position(self, found: re.Match[str], method: str, body: bytes, status: int) -> None:
        index, by_icecdc = found["index"], found["stored"].endswith("--write")
        self._stored[index] = found["stored"].removesuffix("--write")
        if method == "DELETE":
            self._end(index, "somebody deleted the position")
        elif status < 300 and not by_icecdc and b'"epoch"' not in body:
            self._end(index, "somebody wrote a position that is none")
        elif status < 300 or (status == 409 and by_icecdc):
            document = json.loads(body)
            batch = document.get("batch")
            kept = {name: document[name] for name in ("snapshot_id", "epoch", "physical_index")}
            names = ("kind", "epoch", "from_snapshot_id", "to_snapshot_id", "physical_index", "groups_done", "cuts")
            made = {"made": bool((batch or {}).get("index_uuid"))}
            kept["batch"] = batch and {name: batch.get(name) for name in names} | made
            owner = (document.get("owner") or {}).get("run_id")
            event = {"event": "position", "accepted": status < 300, "owner": owner, "position": kept}
            self._trace(index).append(event if by_icecdc else {**event, "foreign": True})

    def _bulk(self, found: re.Match[str], body: bytes, status: int, content: bytes) -> None:
        if status >= 300:
            return
        lines = iter(body.decode().splitlines())
        items = []
        for answer in json.loads(content)["items"]:
            ((op, head),) = json.loads(next(lines)).items()
            value = digest(json.loads(next(lines))) if op == "index" else None
            ((_, outcome),) = answer.items()
            external = head.get("version_type") == "external"
            if outcome["status"] == 404 and "error" in outcome:
                continue  # the index is gone, so nothing was executed
            items.append([op, head["_id"], head["version"] if external else None, outcome["status"], value])
        self._trace(found["index"]).append({"event": "bulk", "index": int(found["number"]), "items": items})

    def _foreign(
        self, found: re.Match[str], method: str, body: bytes, content: bytes, parameters: Mapping[str, list[str]]
    ) -> None:
        """A document that icecdc did not write: into the index that readers see, or into a physical one."""
        physical = _PHYSICAL.search(f"/{found['name']}")
        index = physical["index"] if physical else found["name"]
        readers = self._readers.get(index, [])
        if index in self.traces and (physical or len(readers) == 1):
            number = int(physical["number"]) if physical else readers[0]
            value = digest(json.loads(body)) if method != "DELETE" else None
            version = json.loads(content)["_version"]
            event = {"event": "foreign", "index": number, "id": found["id"], "version": version, "value": value}
            self.traces[index].append(event)
        elif any(found["name"] in (stored, f"{stored}--write") for stored in self._stored.values()):
            return  # another document beside the positions
        else:
            self._end(index, "somebody wrote documents")

    def _index(self, method: str, path: str, body: bytes) -> None:
        for index, stored in self._stored.items():
            if method == "DELETE" and stored in path.strip("/").split(","):
                self._end(index, "somebody deleted the positions index")
        found = _PHYSICAL.search(path)
        if not found or found["index"] not in self.traces:
            return
        event: Event = {"event": "create" if method == "PUT" else "delete", "index": int(found["number"])}
        if method == "PUT":
            meta = json.loads(body or b"{}").get("mappings", {}).get("_meta", {}).get("icecdc", {})
            event["run"] = meta.get("run")
        self.traces[found["index"]].append(event)

    def _aliases(self, status: int) -> None:
        """Look at what each alias means now; one of them may have moved."""
        for index in self.traces if status < 300 else ():
            readers = self._indexes_behind(index)
            if readers != self._readers.get(index, []):
                self._readers[index] = readers
                self.traces[index].append({"event": "alias", "indexes": readers})

    def _indexes_behind(self, index: str) -> list[int]:
        upstream = http.client.HTTPConnection(self._host, timeout=60)
        try:
            upstream.request("GET", f"/_alias/{index}")
            answer = upstream.getresponse()
            content = json.loads(answer.read())
        finally:
            upstream.close()
        names = [_PHYSICAL.search(f"/{name}") for name in content] if answer.status == 200 else []
        return sorted(int(name["number"]) for name in names if name)


def _rows(table: str, snapshot: int, selection: Mapping[str, Any]) -> Event:
    """The rows of a snapshot by identifier, read by no code of icecdc; without ``rows`` if that is not possible."""
    from pyspark.sql import SparkSession

    session, identifiers = SparkSession._instantiatedSession, selection.get("identifier_columns") or []
    special = any(selection.get(name) for name in ("select", "columns", "row_filter", "nest", "routing"))
    if session is None or len(identifiers) != 1 or special:
        return {"unknown": "its rows are not those of the table"}
    try:
        frame = session.sql(f"SELECT * FROM {table} VERSION AS OF {snapshot}")
        rows = [row.asDict(recursive=True) for row in frame.collect()]
    except Exception as error:
        return {"unknown": f"it cannot be read: {type(error).__name__}"}
    found = {str(row[identifiers[0]]): digest(row) for row in rows}
    return {"rows": found} if len(found) == len(rows) else {"unknown": "an identifier has two rows"}


@contextmanager
def recording(target: str, folder: Path) -> Iterator[str]:
    """Record everything that is written through the proxy, whose URL this yields, to files in a folder."""
    recorder = Recorder(target)
    with loopback_proxy(target, gate=recorder.gate, record=recorder.record) as proxy:
        try:
            yield proxy.url
        finally:
            recorder.save(folder)
