"""The way from a run to OpenSearch: at each request others may go first, and requests and answers get lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from random import Random
from typing import Any
from urllib.parse import unquote

import orjson
from opensearchpy.connection import Connection
from opensearchpy.exceptions import ConnectionTimeout

from icecdc_core.opensearch.client import AnswerConnection
from tests.simulation.scheduler import Killed, Process, current
from tests.simulation.simulated_opensearch import Answer, SimulatedOpenSearch

_PLACES = ("GET", "_bulk", "/_aliases", "DELETE", "--*", "_refresh", "/position:", "/commit:")
"""Requests at which trouble matters most: between a check and what depends on it."""


@dataclass
class Faults:
    """How often something goes wrong, as probabilities for each request; all are 0 once faults stop.

    Only writes of documents are executed late or again. OpenSearch queues changes of indexes and aliases, and refuses
    those that waited for 30 seconds; no client has given up by then.
    """

    lost: float = 0.0
    doubled: float = 0.0
    refused: float = 0.0
    rejected: float = 0.0
    killed: float = 0.0
    stalled: float = 0.0
    jump: float = 0.0

    focus: tuple[str, ...] = ()

    @classmethod
    def some(cls, random: Random) -> Faults:
        """Choose which faults a schedule has, how many, and at which requests most of them are."""
        most = (0.1, 0.1, 0.1, 0.4, 0.1, 0.1, 0.02)
        focus = tuple(random.sample(_PLACES, random.choice((0, 1, 2))))
        return cls(*(random.choice((0.0, each / 5, each)) for each in most), focus=focus)

    def at(self, method: str, path: str) -> Faults:
        if not self.focus:
            return self
        factor = 6.0 if any(each in f"{method} {path}" for each in self.focus) else 0.4
        values = {name: min(0.6, getattr(self, name) * factor) for name in _KINDS}
        return Faults(**values)


_KINDS = tuple(each.name for each in fields(Faults) if each.name != "focus")


@dataclass
class Network:
    cluster: SimulatedOpenSearch
    random: Random
    lease_seconds: float
    check: Callable[[], None]
    trace: Callable[[str], None] | None
    faults: Faults = field(default_factory=Faults)
    sender: str = ""
    """The process of the last request that was executed, perhaps late."""

    def _trace(self, line: str) -> None:
        if self.trace:
            self.trace(line)

    def send(self, method: str, path: str, params: dict[str, Any], body: Any, timeout: float) -> Any:
        scheduler, process = current().scheduler, current().task.process
        faults = self.faults.at(method, path)
        self._disturb(process, faults)
        scheduler.hand_over()
        scheduler.now += self.random.uniform(0.0, 0.1)
        documents = method in ("PUT", "POST") and ("/_doc/" in path or "_bulk" in path)
        text = f"{process.name}: {method} {path} {_shown(params, body) if self.trace else ''}"
        if self._happens(faults.killed):
            if self._happens(0.5):
                self._execute(f"{text} (then {process.name} is killed)", method, path, params, body)
            self._trace(f"{process.name} is killed at {method} {path}")
            process.alive = False
            raise Killed
        if self._happens(faults.refused):
            status = self.random.choice((429, 503))
            if "_bulk" in path and self._happens(0.5):
                return self._refuse_some(text, method, path, params, body, 429)
            self._trace(f"{text} -> {status}")
            return status, {"error": {"type": "too_busy", "reason": "simulated", "root_cause": []}, "status": status}
        if "_bulk" in path and self._happens(faults.rejected):
            return self._refuse_some(text, method, path, params, body, 400)
        if self._happens(faults.lost):
            fates = ("the request is lost", "the answer is lost", *(("it is executed late",) if documents else ()))
            fate = self.random.choice(fates)
            if fate == "the answer is lost":
                self._execute(f"{text} ({fate})", method, path, params, body)
            else:
                self._trace(f"{text} ({fate})")
            if fate == "it is executed late":
                self._later(text, method, path, params, body, timeout)
            scheduler.hand_over(deadline=scheduler.now + timeout)
            raise ConnectionTimeout("TIMEOUT", "simulated", None)
        if documents and self._happens(faults.doubled):
            self._later(f"{text} (again)", method, path, params, body, 0.0)
        return self._execute(text, method, path, params, body)

    def _disturb(self, process: Process, faults: Faults) -> None:
        scheduler = current().scheduler
        if self._happens(faults.stalled):
            process.paused_until = scheduler.now + self.lease_seconds * self.random.choice((0.3, 1.5, 10.0))
            self._trace(f"{process.name} stalls until {process.paused_until:.1f}")
        if self._happens(faults.jump):
            scheduler.now += 3 * self.lease_seconds
            self._trace(f"all clocks jump to {scheduler.now:.1f}")

    def _happens(self, probability: float) -> bool:
        return probability > 0 and self.random.random() < probability

    def _later(self, text: str, method: str, path: str, params: dict[str, Any], body: Any, after: float) -> None:
        seconds = after + self.random.choice((0.1, 1.0, 5.0)) * self.lease_seconds * self.random.random()
        execute = lambda: self._execute(f"late: {text}", method, path, params, body)  # noqa: E731
        current().scheduler.at(current().scheduler.now + seconds, execute)

    def _execute(self, text: str, method: str, path: str, params: dict[str, Any], body: Any) -> Answer:
        self.sender = text.removeprefix("late: ").partition(":")[0]
        status, answer = self.cluster.answer(method, path, params, body)
        self._trace(f"{text} -> {status}{_outcomes(answer)}")
        if method not in ("GET", "HEAD") and not path.endswith(("_search", "_count")):
            self.check()
        return status, answer

    def _refuse_some(self, text: str, method: str, path: str, params: Any, body: list[Any], status: int) -> Answer:
        """Execute some operations of a bulk request; the others get this status."""
        operations: list[list[Any]] = []
        for line in body:
            if len(line) == 1 and ("index" in line or "delete" in line):
                operations.append([])
            operations[-1].append(line)
        kept = [self._happens(0.5) for _ in operations]
        lines = [line for keep, operation in zip(kept, operations, strict=True) if keep for line in operation]
        _, answer = self._execute(f"{text} (some get {status})", method, path, params, lines)
        done = iter(answer["items"])
        refused = {"status": status, "error": {"type": "refused", "reason": "simulated"}}
        items = [
            next(done) if keep else {next(iter(operation[0])): refused}
            for keep, operation in zip(kept, operations, strict=True)
        ]
        return 200, {"errors": True, "items": items}


class SimulatedConnection(AnswerConnection):
    """The connection of the real client; `network` of the current schedule carries its requests."""

    network: Network

    def __init__(self, *_: Any, timeout: float = 60.0, **__: Any) -> None:
        Connection.__init__(self, host="simulated", timeout=timeout)

    def close(self) -> None:
        """There is nothing to close."""

    def perform_request(self, method: str, url: str, params: Any = None, body: Any = None, **options: Any) -> Any:
        lines: Any = None
        if body:
            text = body.decode() if isinstance(body, bytes) else body
            lines = [orjson.loads(line) for line in text.splitlines()] if "_bulk" in url else orjson.loads(text)
        wait = float(options.get("timeout") or self.timeout)
        status, answer, *kind = self.network.send(method, unquote(url), dict(params or {}), lines, wait)
        kind = kind[0] if kind else "application/json"
        data = answer.decode() if isinstance(answer, bytes) else json.dumps(answer)
        data = "" if method == "HEAD" else data
        if not 200 <= status < 300 and status not in options.get("ignore", ()):
            self._raise_error(status, data, kind)
        return status, {"content-type": kind}, data


def _shown(params: dict[str, Any], body: Any) -> str:
    """What a trace shows of a request: bulk lines, changes of aliases, and the most of positions."""
    if isinstance(body, dict):
        body = {name: body[name] for name in ("actions", "snapshot_id", "epoch", "batch", "owner") if name in body}
    return f"{params} {json.dumps(body)}" if body else str(params)


def _outcomes(answer: dict[str, Any]) -> str:
    items = answer.get("items")
    return f" {[next(iter(item.values()))['status'] for item in items]}" if items is not None else ""
