"""Translates a recorded trace into the vocabulary of the specification, see `Trace.tla`.

Runs become 1, 2, ... in the order in which they appear. Snapshots become 1, 2, ... in the order in which batches name
them; 1 is the empty table. Epochs become 1, 2, ... in their order. Identifiers become 1, 2, ...; those that lived the
same life, row by row and operation by operation, are one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Event = dict[str, Any]

NONE = "None"
# Numbers that no epoch has: indexes and operations of no batch.
_UNKNOWN = 10_000
EXECUTED = {200: True, 201: True, 404: True, 409: False}
"""Statuses of operations that were executed, and whether they were applied."""
BUSY = {429, 503}
"""Statuses of operations that were not executed."""


@dataclass
class Trace:
    name: str
    events: list[Event] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    groups: dict[int, list[set[int]]] = field(default_factory=dict)
    written: dict[int, set[int]] = field(default_factory=dict)
    epochs: int = 0
    ids: int = 0
    runs: int = 0


def translate(recorded: Mapping[str, Any]) -> Trace:
    return _Translation(recorded["test"], recorded["events"]).trace


def _number(physical: str) -> int:
    return int(physical.rpartition("--")[2]) if physical else 0


class _Translation:
    def __init__(self, name: str, events: list[Event]) -> None:
        self.trace = Trace(name)
        self.rows = {event["id"]: event["rows"] for event in events if event["event"] == "snapshot"}
        positions = [event for event in events if event["event"] == "position"]
        batches = [event["position"]["batch"] for event in positions if event["position"]["batch"]]
        epochs = {batch["epoch"] for batch in batches}
        self.epochs = {epoch: rank for rank, epoch in enumerate(sorted(epochs), 1)}
        self.epochs[0] = 0
        self.trace.epochs = len(epochs)
        self.syncs = {batch["epoch"] for batch in batches if batch["kind"] == "sync"}
        self.ids, self.values = identifiers(events, self.rows)
        self.trace.ids = max(self.ids.values(), default=0)
        self.snapshots: dict[Any, int] = {None: 1}
        self.head: Any = None
        self.runs: dict[str, int] = {}
        self.owner: str | None = None
        self.batch: Event = {}
        self.exports: dict[int, tuple[Any, int]] = {}
        for event in events:
            getattr(self, f"_{event['event']}")(event)
        for epoch, groups in self.trace.groups.items():
            self._rest(epoch, groups)
        self.trace.runs = len(self.runs)

    def _emit(self, source: str, **event: Any) -> None:
        self.trace.events.append(event)
        self.trace.sources.append(source)

    def _run(self, name: str) -> int:
        return self.runs.setdefault(name, len(self.runs) + 1)

    def _epoch(self, number: int) -> int:
        return self.epochs.get(number, _UNKNOWN + number)

    def _snapshot(self, event: Event) -> None:
        """Its rows are known; the table commits it when a batch names it."""

    def _name(self, snapshot: Any) -> None:
        if snapshot not in self.snapshots:
            self.snapshots[snapshot] = len(self.snapshots) + 1
            of_id = {number: identity for identity, number in self.ids.items()}
            rows = self.rows[snapshot]
            wanted = [self.values.get((of_id[n], rows.get(of_id[n])), NONE) for n in range(1, self.trace.ids + 1)]
            self._emit(f"the table has snapshot {snapshot}", event='"snapshot"', rows=wanted)
        elif self.head != snapshot:
            self._emit(f"the table is back at {snapshot}", event='"rollback"', to=str(self.snapshots[snapshot]))
        self.head = snapshot

    def _position(self, event: Event) -> None:
        position, accepted, owner = event["position"], event["accepted"], event["owner"]
        by = owner or self.owner
        if by is None or (not accepted and owner is None):
            return  # nobody knows whose late release this was
        batch = position["batch"] or {}
        origin = 0
        if accepted:
            named = [position["snapshot_id"]] if position["physical_index"] else []
            named += [*(batch["cuts"] or ()), batch["to_snapshot_id"]] if batch else []
            for snapshot in named:
                if snapshot not in self.snapshots:
                    self._name(snapshot)
            if batch and batch["epoch"] != self.batch.get("epoch"):
                self._name(batch["to_snapshot_id"])
            if batch and batch["kind"] != "export":
                origin = self.snapshots.get(batch["from_snapshot_id"], _UNKNOWN)
            self.batch, self.owner = batch, owner
        verb = "writes" if accepted else "is refused to write"
        kept = {name: value for name, value in position.items() if name != "batch"}
        self._emit(
            f"run {self._run(by)} {verb} {kept}, batch {position['batch']}, owner {owner and self._run(owner)}",
            event='"position"',
            run=str(self._run(by)),
            accepted=str(accepted).upper(),
            owner=str(self._run(owner)) if owner else NONE,
            pos=self._pos(position) if accepted else NONE,
            **{"from": str(origin)},
        )

    def _pos(self, position: Mapping[str, Any], of_kept: bool = False) -> str:
        earlier = position.get("earlier")
        exists = bool(position["physical_index"])
        snap = self.snapshots[position["snapshot_id"]] if exists else 0
        there = {"snap": _vector(snap), "idx": self._epoch(_number(position["physical_index"]))}
        there["batch"] = self._batch(position["batch"])
        if of_kept:
            return _record(**there)
        kept = self._pos(earlier, of_kept=True) if earlier else NONE
        return _record(**there, epoch=self._epoch(position["epoch"]), kept=kept)

    def _batch(self, batch: Event | None) -> str:
        if not batch:
            return '[kind |-> "none"]'
        is_export, epoch = batch["kind"] == "export", self._epoch(batch["epoch"])
        if is_export:
            self.trace.groups.setdefault(epoch, [])
            done = max(batch["groups_done"], self.exports.get(epoch, (None, 0))[1])
            self.exports[epoch] = batch["to_snapshot_id"], done
        return _record(
            kind=f'"{batch["kind"]}"',
            epoch=epoch,
            to=_vector(self.snapshots[batch["to_snapshot_id"]]),
            cut=as_set(_vector(self.snapshots[cut]) for cut in batch["cuts"] or []),
            idx=self._epoch(_number(batch["physical_index"])),
            made=str(is_export and batch["made"]).upper(),
            done=batch["groups_done"] if is_export else 0,
            order=f"@{epoch}@" if is_export else NONE,
            over=self._batch(batch.get("over")),
        )

    def _bulk(self, event: Event) -> None:
        epoch = self._epoch(event["index"])
        seen: set[tuple[Any, ...]] = set()
        for op, identity, version, status, value in event["items"]:
            if status in BUSY:
                continue
            number = self.ids[identity]
            item = (op, number, version, status, self.values.get((identity, value)))
            if item in seen:
                continue
            seen.add(item)
            batch = self._epoch(version // 2)
            if version // 2 in self.syncs:
                self.trace.written.setdefault(batch, set()).add(number)
            if batch in self.exports:
                self._group(batch, self.exports[batch][1], number)
            self._emit(
                f"bulk on index {event['index']}: {op} of '{identity}' with version {version} answers {status}",
                event='"item"',
                idx=str(epoch),
                id=str(number),
                ver=str(2 * batch + version % 2),
                val=self.values[identity, value] if op == "index" else NONE,
                applied=str(EXECUTED[status]).upper(),
            )

    def _group(self, epoch: int, done: int, number: int) -> None:
        groups = self.trace.groups.setdefault(epoch, [])
        if not any(number in group for group in groups):
            groups.extend(set() for _ in range(done + 1 - len(groups)))
            groups[done].add(number)

    def _rest(self, epoch: int, groups: list[set[int]]) -> None:
        """Put every row into a group: those that were never written into one that was never recorded."""
        snapshot, done = self.exports[epoch]
        groups.extend(set() for _ in range(done - len(groups)))
        rows = {self.ids[identity] for identity in self.rows.get(snapshot, {})}
        if missing := rows - set().union(*groups):
            groups.append(missing)

    def _create(self, event: Event) -> None:
        kind, index = event["event"], event["index"]
        self._emit(f"index {index} is {kind}d", event=f'"{kind}"', idx=str(self._epoch(index)))

    _delete = _create

    def _alias(self, event: Event) -> None:
        indexes = as_set(self._epoch(number) for number in event["indexes"])
        self._emit(f"the alias moves to {event['indexes']}", event='"alias"', indexes=indexes)

    def _foreign(self, event: Event) -> None:
        version = event["version"]
        self._emit(
            f"somebody writes document '{event['id']}' with version {version}",
            event='"foreign"',
            idx=str(self._epoch(event["index"])),
            id=str(self.ids[event["id"]]),
            ver=str(2 * self.epochs[version // 2] + version % 2 if version // 2 in self.epochs else version),
            val=self.values.get((event["id"], event["value"]), NONE),
        )


def _record(**fields: Any) -> str:
    return "[" + ", ".join(f"{name} |-> {value}" for name, value in fields.items()) + "]"


def _vector(snapshot: int) -> str:
    return _record(root=snapshot)


def as_set(elements: Any) -> str:
    return "{" + ", ".join(str(element) for element in sorted(elements)) + "}"


def identifiers(events: list[Event], rows: Mapping[Any, Mapping[str, str]]) -> tuple[dict[str, int], dict[Any, str]]:
    """Return the number of each identifier, and a name for each of its values.

    The specification treats every identifier alike, and none of its steps depends on how many there are. So one stands
    for all others with the same history.
    """
    lives: dict[str, list[Any]] = {}
    named: dict[str, dict[str, str]] = {}

    def lived(identity: str, when: Any, value: str | None, *what: Any) -> None:
        names = named.setdefault(identity, {})
        if value is not None:
            names.setdefault(value, f'"v{len(names) + 1}"')
        lives.setdefault(identity, []).append((when, value and names[value], *what))

    for snapshot, content in rows.items():
        for identity, value in content.items():
            lived(identity, ("row", snapshot), value)
    for number, event in enumerate(events):
        if event["event"] == "bulk":
            for op, identity, version, status, value in event["items"]:
                lived(identity, number, value, op, version, status)
        elif event["event"] == "foreign":
            lived(event["id"], number, event["value"], event["version"])
    classes: dict[tuple[Any, ...], int] = {}
    ids = {identity: classes.setdefault(tuple(life), len(classes) + 1) for identity, life in lives.items()}
    values = {(identity, value): name for identity, names in named.items() for value, name in names.items()}
    return ids, values
