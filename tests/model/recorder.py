"""Records what really happens between icecdc and OpenSearch: a proxy that writes down every write and its answer.

It stands in front of the real server, so nothing in icecdc knows of it. Writes reach the server one after the other, so
the order of the events is that in which the server executed them. The trace of an index is a list of events, as
`tests/model/translation.py` reads them. The rows of a snapshot are read with Spark alone, when a batch names it.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote, urlsplit

from opensearchpy import OpenSearch

from tests.servers.loopback_proxy import loopback_proxy

Event = dict[str, Any]

_POSITION = re.compile(r"/[^/]+/_(?:doc|create)/position:[^/]+$")
_COMMIT_LOG = re.compile(r"/[^/]+/_(?:doc|create)/commit:")
_BULK = re.compile(r"--(?P<number>\d+)--WRITE/_bulk$")
_DOCUMENT = re.compile(r"/[^/]+/_(?:doc|create)/(?P<id>[^/]+)$")
_PHYSICAL = re.compile(r"--(?P<number>\d+)$")


def digest(document: Mapping[str, Any]) -> str:
    """Return a short name for what a row or a document contains; null is the same as absent."""
    present = {name: value for name, value in document.items() if value is not None}
    text = json.dumps(present, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


class Recorder:
    def __init__(self, target: str, index: str) -> None:
        self.url, self.events = "", list[Event]()
        self._client = OpenSearch(target)
        self._index = index
        self._readers: list[int] = []

    def gate(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> None:
        """Before a batch is begun: read the rows of its snapshot, while the table still has it."""
        if not _POSITION.search(unquote(urlsplit(path).path)) or method not in ("PUT", "POST"):
            return
        position = json.loads(body)
        named = [position["snapshot_id"]] if position["physical_index"] else []
        named += [position["batch"]["to_snapshot_id"]] if position.get("batch") else []
        known = {event["id"] for event in self.events if event["event"] == "snapshot"}
        for snapshot in dict.fromkeys(named):
            if snapshot is not None and snapshot not in known:
                self.events.append({"event": "snapshot", "id": snapshot, "rows": _rows(position["table"], snapshot)})

    def record(self, method: str, path: str, body: bytes, status: int, content: bytes) -> None:
        path = unquote(urlsplit(path).path)
        if method in ("GET", "HEAD") or _COMMIT_LOG.search(path):
            return
        if _POSITION.search(path):
            self._position(body, status)
        elif found := _BULK.search(path):
            self._bulk(int(found["number"]), body, status, content)
        elif path == "/_aliases" and status < 300:
            self._aliases()
        elif (found := _DOCUMENT.search(path)) and status < 300:
            # Of somebody else, in the index that readers see.
            version, value = json.loads(content)["_version"], digest(json.loads(body))
            event = {"event": "foreign", "index": self._readers[0], "id": found["id"]}
            self.events.append({**event, "version": version, "value": value})
        elif method in ("PUT", "DELETE") and status < 300 and (found := _PHYSICAL.search(path)):
            self.events.append({"event": "create" if method == "PUT" else "delete", "index": int(found["number"])})

    def _position(self, body: bytes, status: int) -> None:
        if status >= 300 and status != 409:
            return
        document = json.loads(body)
        batch = document.get("batch")
        kept = {name: document[name] for name in ("snapshot_id", "epoch", "physical_index")}
        kept["batch"] = _batch(batch)
        if earlier := document.get("earlier"):
            kept["earlier"] = {**{name: earlier[name] for name in kept}, "batch": _batch(earlier["batch"])}
        owner = (document.get("owner") or {}).get("run_id")
        self.events.append({"event": "position", "accepted": status < 300, "owner": owner, "position": kept})

    def _bulk(self, number: int, body: bytes, status: int, content: bytes) -> None:
        if status >= 300:
            return
        lines = iter(body.decode().splitlines())
        items = []
        for answer in json.loads(content)["items"]:
            ((op, head),) = json.loads(next(lines)).items()
            value = digest(json.loads(next(lines))) if op == "index" else None
            ((_, outcome),) = answer.items()
            if outcome["status"] == 404 and "error" in outcome:
                continue  # the index is gone, so nothing was executed
            items.append([op, head["_id"], head["version"], outcome["status"], value])
        self.events.append({"event": "bulk", "index": number, "items": items})

    def _aliases(self) -> None:
        """Look at what the alias means now; it may have moved."""
        found = self._client.indices.get_alias(name=self._index, ignore=404)
        readers = sorted(int(name["number"]) for name in map(_PHYSICAL.search, found) if name)
        if readers != self._readers:
            self._readers = readers
            self.events.append({"event": "alias", "indexes": readers})


def _batch(batch: Event | None) -> Event | None:
    names = ("kind", "epoch", "from_snapshot_id", "to_snapshot_id", "physical_index", "groups_done", "cuts")
    made = {"made": bool((batch or {}).get("index_uuid"))}
    return batch and {**{name: batch.get(name) for name in names}, **made, "over": _batch(batch.get("over"))}


def _rows(table: str, snapshot: int) -> dict[str, str]:
    from pyspark.sql import SparkSession

    session = SparkSession._instantiatedSession
    assert session is not None
    rows = session.sql(f"SELECT * FROM {table} VERSION AS OF {snapshot}").collect()
    return {str(row["id"]): digest(row.asDict(recursive=True)) for row in rows}


@contextmanager
def recording(target: str, index: str) -> Iterator[Recorder]:
    recorder = Recorder(target, index)
    with loopback_proxy(target, gate=recorder.gate, record=recorder.record) as proxy:
        recorder.url = proxy.url
        yield recorder
