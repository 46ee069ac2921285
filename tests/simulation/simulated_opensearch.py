"""OpenSearch in memory, as far as icecdc uses it: documents with versions and conditions, aliases, indexes, searches.

`test_simulated_opensearch.py` sends the same requests to a real OpenSearch and compares the answers.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

Answer = tuple[int, dict[str, Any]]
_WHOLE: dict[str, Any] = {"_shards": {"failed": 0}}


@dataclass
class Document:
    """A document, or a tombstone: what the index remembers of a deleted one."""

    version: int
    seq_no: int
    source: Mapping[str, Any] | None
    written: float = 0.0
    routing: str | None = None


@dataclass
class Index:
    """An index. Searches find what was there at the last refresh."""

    uuid: str = ""
    created: int = 0
    mappings: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    aliases: dict[str, dict[str, Any]] = field(default_factory=dict)
    documents: dict[str, Document] = field(default_factory=dict)
    searchable: dict[str, Document] = field(default_factory=dict)
    next_seq_no: int = 0

    @property
    def shown(self) -> dict[str, Any]:
        own = {"uuid": self.uuid, "creation_date": str(self.created)}
        return {"aliases": self.aliases, "mappings": self.mappings, "settings": {"index": {**self.settings, **own}}}

    def key(self, identity: str, routing: str | None) -> str:
        """Where a document is: each shard may have one of the same id. `y` and `z` share a shard, as in a real one."""
        return f"{identity}@x" if routing == "x" and self.settings.get("number_of_shards", "1") != "1" else identity

    def refresh(self) -> None:
        self.searchable = {name: found for name, found in self.documents.items() if found.source is not None}

    def forget_tombstones(self, now: float) -> None:
        """`index.gc_deletes` is over for some."""
        limit = now - _seconds(self.settings.get("gc_deletes", "60s"))
        gone = [name for name, each in self.documents.items() if each.source is None and each.written < limit]
        for name in gone:
            del self.documents[name]


class SimulatedOpenSearch:
    def __init__(self, clock: Callable[[], float] = lambda: 0.0) -> None:
        self.clock = clock
        self.indexes: dict[str, Index] = {}
        self._created = 0

    def behind(self, name: str) -> dict[str, Index]:
        """The indexes that names, aliases or patterns mean."""
        return {
            each: index
            for each, index in self.indexes.items()
            if any(
                part in (each, *index.aliases) or ("*" in part and fnmatchcase(each, part)) for part in name.split(",")
            )
        }

    def answer(self, method: str, path: str, params: Mapping[str, Any], body: Any) -> Answer:
        parts = [part for part in path.split("/") if part]
        if not parts:
            return 200, {"version": {"number": "3.0.0", "distribution": "opensearch"}}
        if parts[0] == "_aliases":
            return self._change_aliases(body["actions"])
        if parts[0] == "_alias":
            shown = {each: {"aliases": {parts[1]: {}}} for each in self.behind(parts[1]) if each != parts[1]}
            return (200, shown) if shown else (404, {"error": f"alias [{parts[1]}] missing", "status": 404})
        name, api = parts[0], parts[1] if len(parts) > 1 else ""
        if api == "_bulk":
            return self._bulk(name, params, body)
        if api == "_doc" and method == "PUT" and not self._writable(name, params):
            return _missing(name)
        if not api and method == "PUT":
            return self._create(name, body)
        found = self.behind(name)
        if not found and not ("*" in name or params.get("ignore_unavailable") == "true"):
            return _missing(name)
        if not api and method != "DELETE":
            return 200, {each: index.shown for each, index in found.items()}
        if not api and name not in self.indexes and found:
            return error(400, "illegal_argument_exception", "an alias cannot be deleted")
        if not api:
            self.indexes.pop(name, None)
            return 200, {"acknowledged": True}
        index = next(iter(found.values()))
        if api == "_doc":
            return self._document(method, index, name, parts[2], params, body)
        for each in found.values():
            if api == "_settings":
                changed = {**each.settings, **body["index"]}
                each.settings = {key: str(value) for key, value in changed.items() if value is not None}
            elif api == "_mapping":
                known = each.mappings["properties"]
                if wrong := [name for name, new in body["properties"].items() if known.get(name, new) != new]:
                    return error(400, "illegal_argument_exception", f"mapper [{wrong[0]}] cannot be changed")
                known.update(body["properties"])
                each.mappings.update({key: value for key, value in body.items() if key != "properties"})
            elif api == "_refresh":
                each.refresh()
        if api == "_search":
            return 200, {"timed_out": False, **_WHOLE, "hits": {"hits": _found(found, body)}}
        if api == "_count":
            return 200, {**_WHOLE, "count": sum(len(each.searchable) for each in found.values())}
        return 200, _WHOLE if api == "_refresh" else {"acknowledged": True}

    def _create(self, name: str, body: dict[str, Any]) -> Answer:
        if name not in self.indexes and self.behind(name):
            return error(400, "invalid_index_name_exception", "already exists as alias")
        if name in self.indexes:
            return error(400, "resource_already_exists_exception", f"index [{name}] already exists")
        self._created += 1
        settings = body.get("settings", {})
        flat = {key: str(value) for key, value in settings.get("index", settings).items()}
        aliases = {alias: dict(options) for alias, options in body.get("aliases", {}).items()}
        mappings = {"properties": {}, **json.loads(json.dumps(body.get("mappings", {})))}
        self.indexes[name] = Index(
            f"uuid-{self._created}", int(self.clock() * 1000) + self._created, mappings, flat, aliases
        )
        return 200, {"acknowledged": True, "index": name}

    def _change_aliases(self, actions: list[dict[str, Any]]) -> Answer:
        """All of the actions, or none."""
        changed = {name: dict(index.aliases) for name, index in self.indexes.items()}
        for action in actions:
            ((kind, change),) = action.items()
            if change["index"] not in changed:
                return _missing(change["index"])
            aliases, before = changed[change["index"]], self.indexes[change["index"]].aliases
            if kind == "add":
                aliases[change["alias"]] = {key: each for key, each in change.items() if key not in ("index", "alias")}
            elif change.get("must_exist") and change["alias"] not in before:
                return error(404, "aliases_not_found_exception", f"aliases [{change['alias']}] missing")
            else:
                aliases.pop(change["alias"], None)
        for name, aliases in changed.items():
            self.indexes[name].aliases = aliases
        return 200, {"acknowledged": True}

    def _writable(self, name: str, params: Mapping[str, Any]) -> dict[str, Index]:
        found = self.behind(name)
        return {} if params.get("require_alias") == "true" and name in self.indexes else found

    def _document(
        self, method: str, index: Index, name: str, identity: str, params: Mapping[str, Any], body: Any
    ) -> Answer:
        if method == "GET":
            known = index.documents.get(identity)
            if known is None or known.source is None:
                return 404, {"_index": name, "_id": identity, "found": False}
            version = {"_version": known.version, "_seq_no": known.seq_no, "_primary_term": 1}
            return 200, {"_index": name, "_id": identity, "found": True, **version, "_source": known.source}
        return self._write(index, identity, dict(params), body)

    def _bulk(self, name: str, params: Mapping[str, Any], body: list[Any]) -> Answer:
        found, items, lines = self._writable(name, params), [], iter(body)
        for line in lines:
            ((kind, head),) = line.items()
            source = next(lines) if kind == "index" else None
            if found:
                index = next(iter(found.values()))
                identity = head.get("_id", f"made-{index.next_seq_no}")
                status, answer = self._write(index, identity, head, source)
            else:
                status, answer = _missing(name)
            items.append({kind: {**answer, "status": status}})
        return 200, {"errors": any("error" in next(iter(item.values())) for item in items), "items": items}

    def _write(self, index: Index, identity: str, options: dict[str, Any], source: Any) -> Answer:
        """Write a document, or delete it if there is no source."""
        index.forget_tombstones(self.clock())
        routing = options.get("routing")
        key = index.key(identity, routing)
        known = index.documents.get(key)
        exists = known is not None and known.source is not None
        current = known.version if known else -1
        version = current + 1 if known else 1
        if options.get("op_type") == "create" and exists:
            return _conflict(identity, f"document already exists (current version [{current}])")
        if "if_seq_no" in options:
            wanted = int(options["if_seq_no"]), int(options["if_primary_term"])
            if known is None or not exists or wanted != (known.seq_no, 1):
                return _conflict(identity, f"required seqNo {wanted}, current document has another (or none)")
        if options.get("version_type", "").startswith("external"):
            version = int(options["version"])
            equal = options["version_type"] == "external_gte" and version == current
            if version <= current and not equal:
                reason = f"current version [{current}] is higher or equal to the one provided [{version}]"
                return _conflict(identity, reason)
        index.documents[key] = Document(version, index.next_seq_no, source, self.clock(), routing)
        index.next_seq_no += 1
        answer = {"_id": identity, "_version": version, "_seq_no": index.next_seq_no - 1, "_primary_term": 1}
        if source is None:
            return (200 if exists else 404), {**answer, "result": "deleted" if exists else "not_found"}
        return (200 if exists else 201), {**answer, "result": "updated" if exists else "created"}


def _found(indexes: dict[str, Index], body: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Search with `term` and `range` filters, `sort` by one field and `size`."""
    body = body or {}
    hits = [
        {"_index": name, "_id": key.partition("@")[0], "_version": found.version, "_source": found.source}
        | ({"_routing": found.routing} if found.routing else {})
        for name, index in indexes.items()
        for key, found in index.searchable.items()
    ]
    for condition in body.get("query", {}).get("bool", {}).get("filter", []):
        ((kind, rule),) = condition.items()
        ((name, value),) = rule.items()
        if kind == "term":
            hits = [hit for hit in hits if hit["_source"].get(name) == value]
        else:
            hits = [hit for hit in hits if name in hit["_source"] and hit["_source"][name] <= value["lte"]]
    for order in body.get("sort", []):
        ((name, direction),) = order.items()
        hits.sort(key=lambda hit: hit["_source"].get(name, 0), reverse=direction == "desc")
    return hits[: body.get("size", 10)]


def _seconds(text: str) -> float:
    return float(text[:-1]) * {"s": 1, "m": 60, "h": 3600}[text[-1]]


def error(status: int, kind: str, reason: str = "made by the test") -> Answer:
    cause = {"type": kind, "reason": reason}
    return status, {"error": {**cause, "root_cause": [cause]}, "status": status}


def _missing(name: str) -> Answer:
    return error(404, "index_not_found_exception", f"no such index [{name}]")


def _conflict(identity: str, reason: str) -> Answer:
    return error(409, "version_conflict_engine_exception", f"[{identity}]: version conflict, {reason}")
