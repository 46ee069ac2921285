"""Any answer to any request: a job ends in sync or with an error that names the server, and the next one is right.

A run of the real jobs in the simulation meets up to three faults: a request, and perhaps those after it, is answered
wrongly, before or after the server executed it. ICECDC_FUZZ says how many runs, ICECDC_SEED which.
"""

import json
import os
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

from hypothesis import Phase, strategies as st
from opensearchpy.exceptions import ConnectionError, ConnectionTimeout

from icecdc_core.errors import IcecdcError, RejectedDocumentsError, SchemaRegistryError
from icecdc_core.ingest.formats import schemas
from icecdc_core.jobs import export, sync
from icecdc_core.runs.cluster_status import cluster_status
from tests.checks.examples import for_examples
from tests.servers.http_server import http_server
from tests.servers.loopback_proxy import Act
from tests.simulation import simulated_jobs
from tests.simulation.network import Network, SimulatedConnection
from tests.simulation.scheduler import current
from tests.simulation.world import World

MANY = int(os.environ.get("ICECDC_FUZZ", "6")) * 50

REASONS = (
    *("index_not_found_exception", "resource_already_exists_exception", "version_conflict_engine_exception"),
    *("security_exception", "cluster_block_exception", "es_rejected_execution_exception", "mapper_parsing_exception"),
    *("illegal_argument_exception", "aliases_not_found_exception"),
)
STATUSES = (302, 400, 401, 403, 404, 405, 408, 409, 413, 429, 500, 501, 502, 503, 504)
HTML, OK = b"<html>Bad gateway</html>", {"message": "ok"}
NO_JSON = (b"", b"{", HTML, b"[" * 200_000)
UNACKNOWLEDGED = {"acknowledged": False}
WRONG = [*NO_JSON, *(json.dumps(each).encode() for each in (None, [], "x", 1, {}, OK, UNACKNOWLEDGED))]
VALUES: tuple[Any, ...] = (None, "x", 0, 1, -1, {}, [], True, {"failed": 1}, {"type": 1}, [{}])


def error_of(kind):
    details = {"type": kind, "reason": "made by the test"}
    return {**details, "root_cause": [details]}


BODIES = st.sampled_from(
    [
        *(*WRONG, b'{"error": "text"}', b'{"error": {"type": 1, "root_cause": {}, "caused_by": "x"}}'),
        *(json.dumps({"error": error_of(kind)}).encode() for kind in REASONS),
    ]
)
PAGES = st.sampled_from(["application/json; charset=UTF-8", "text/html"])


@dataclass(frozen=True)
class Lie:
    """The server's answer with one value changed, or one field or element removed."""

    pick: int
    value: Any
    removes: bool = False

    def __call__(self, status, content):
        answer = json.loads(content or b"{}")
        if places := list(_places(answer)):
            inside, key = places[self.pick % len(places)]
            if self.removes:
                del inside[key]
            else:
                inside[key] = self.value
        return status, answer


def _places(value, is_hits=False):
    """What can be changed: neither documents nor the list of hits, which nobody but the server knows."""
    for key, each in (value.items() if isinstance(value, dict) else enumerate(value)) if value else ():
        if key != "_source" and not is_hits:
            yield value, key
        if isinstance(each, dict | list) and key not in ("_source", "mappings", "settings"):
            yield from _places(each, key == "hits" and isinstance(each, list))


@dataclass(frozen=True)
class Items:
    """The server's answer to a bulk request with another outcome of one of its items."""

    pick: int
    status: int
    error: Any

    def __call__(self, status, content):
        answer = json.loads(content)
        if items := answer.get("items"):
            item = items[self.pick % len(items)]
            item[next(iter(item))] = {"status": self.status, "error": self.error}
        return status, answer


ANSWERS = st.one_of(
    st.sampled_from(list(Act)),
    st.builds(Lie, st.integers(0, 99), st.sampled_from(VALUES), st.booleans()),
    st.tuples(st.sampled_from(STATUSES), BODIES, PAGES),
    st.tuples(st.just(200), st.sampled_from(WRONG), PAGES),
)
ERRORS = st.sampled_from([*map(error_of, REASONS), None, "x", {}])
ITEMS = st.builds(Items, st.integers(0, 99), st.sampled_from([200, 201, *STATUSES]), ERRORS)
NO_ITEMS = st.just((200, b'{"errors": false, "items": []}', "application/json"))
REQUESTS = (
    *("_aliases", "GET .*_doc", "PUT .*_doc", "_search", "point_in_time", "_refresh", "_mapping|_settings", "_count"),
    *("PUT /[^_]+$", "GET /[^_]+$", "DELETE ", "HEAD ", "_search_shards", "_bulk", "_mget"),
)


@dataclass(frozen=True)
class Fault:
    """From the n-th request of a kind on, so many requests are answered like this."""

    kind: str
    number: int
    times: int
    answer: Any

    @property
    def passes(self):
        """Whether the request is to be sent again until it has another answer."""
        if self.times > 1 or not isinstance(self.answer, Act | tuple):
            return False
        if not isinstance(self.answer, tuple):
            return True
        status, body, _ = self.answer
        # Proxies answer so, too: only OpenSearch says in JSON that something is not there, or in conflict.
        is_strange = (status == 200 and body in NO_JSON) or (status in (404, 409) and body in NO_JSON[1:])
        return status in (429, 502, 503, 504) or is_strange


EVER = 9999
TIMES = st.sampled_from([1, 1, 3, EVER])
FAULT = st.one_of(
    st.builds(Fault, st.just(""), st.integers(2, 30), TIMES, ANSWERS),
    st.builds(Fault, st.sampled_from(REQUESTS), st.integers(1, 3), TIMES, ANSWERS),
    st.builds(Fault, st.just("_bulk"), st.integers(1, 2), TIMES, ITEMS | NO_ITEMS),
)
# What a request meets no more when it is sent again; often a write of the position whose answer is lost.
PAGE = (HTML, "text/html")
ONCE = st.builds(
    Fault,
    st.sampled_from([*REQUESTS, "_bulk", *["PUT .*_doc"] * 3]),
    st.integers(1, 4),
    st.just(1),
    st.sampled_from(
        [
            Act.RESET,
            Act.STALL,
            *[Act.RESET_AFTER] * 3,
            *((status, *PAGE) for status in (200, 404, 409, 429, 502, 503, 504)),
        ]
    ),
)
# No request reaches the server any more; the last one does, but its answer is lost.
CUT_OFF = st.integers(2, 30).map(lambda n: [Fault("", n, 1, Act.RESET_AFTER), Fault("", n + 1, EVER, Act.RESET)])
ONE = (ONCE.map(lambda fault: [fault]), FAULT.map(lambda fault: [fault]))
FAULTS = st.sampled_from([*ONE, ONE[0], st.lists(FAULT, min_size=2, max_size=3), CUT_OFF]).flatmap(lambda each: each)


class Trouble:
    def __init__(self, faults):
        self.faults, self.seen, self.met = faults, Counter(), 0

    def __call__(self, method, path, body):
        made = None
        for at, fault in enumerate(self.faults):
            if re.search(fault.kind, f"{method} {path.partition('?')[0]}"):
                self.seen[at] += 1
                if fault.number <= self.seen[at] < fault.number + fault.times:
                    made = fault.answer
        self.met += made is not None
        assert self.met < 400, "the job does not end"
        return made


def require_named(error, config):
    """An error of the server says where and what to do; one of documents names them, one of the mapping names that."""
    place = rf"{config.opensearch_url}|'{config.index}['-]|{config.positions_index}"
    is_of_content = isinstance(error, RejectedDocumentsError) or error.subject == "mapping"
    is_named = is_of_content or re.search(place, str(error))
    assert bool(is_named and error.remedy), f"{type(error).__name__}: {error}"


class Wire(Network):
    """The way to the simulated OpenSearch."""

    trouble: Any

    def send(self, method, path, params, body, timeout):
        scheduler = current().scheduler
        scheduler.hand_over()
        made = self.trouble(method, path, body)
        if made is Act.STALL:
            scheduler.hand_over(deadline=scheduler.now + timeout)
            raise ConnectionTimeout("TIMEOUT", "stalled", None)
        if isinstance(made, tuple):
            return made[:3]
        if made is not Act.RESET:
            status, answer = self._execute(f"{current().task.process.name}:", method, path, params, body)
        if made in (Act.RESET, Act.RESET_AFTER):
            raise ConnectionError("N/A", "reset", None)
        return made(status, json.dumps(answer).encode()) if callable(made) else (status, answer)


SIMULATED = {
    **simulated_jobs.JOBS,
    # The spec of the index changes, and its mapping is tried out.
    "edit": lambda _, config: sync.sync_changes(None, config.replace(settings={"refresh_interval": "9s"})),
    "remap": lambda _, config: export.export_table(None, config.replace(mapping={"name": {"type": "keyword"}})),
    "status": lambda _, config: cluster_status(config),
}


def simulate(number, job, faults):
    world = World(number)
    SimulatedConnection.network = world.network
    config = world._config()
    if number % 4:
        world._alone("the first export", "export")
        world.history.commit()
        if job == "rollback":
            world._alone("the export that it undoes", "export")
    wire = Wire(world.cluster, world.random, 4.0, world.network.check, None)
    wire.trouble, ends = Trouble(faults), []
    direct, SimulatedConnection.network, world.network = world.network, wire, wire

    def work():
        try:
            ends.append(SIMULATED[job](None, config))
        except IcecdcError as error:
            ends.append(error)

    began, process = world.scheduler.now, world._process("r", "c")
    world.scheduler.spawn(process, work)
    world.scheduler.run()
    process.alive, SimulatedConnection.network, world.network = False, direct, direct
    assert world.scheduler.now - began < 120
    is_retried = wire.trouble.met and [fault.passes for fault in faults] == [True] and number % 4
    if isinstance(ends[0], IcecdcError):
        require_named(ends[0], config)
        assert not is_retried or job == "status", ends[0]
    elif job in ("sync", "export"):
        assert not is_retried or job in (ends[0].kind, "edit"), "the answer counts as one of OpenSearch"
        world._require_recovered()
    world._alone("the next run", "sync")
    world._settle()
    world._require_recovered()


def it_ends_in_sync_at_the_latest_with_the_next_run():
    drawn = {"number": st.integers(0, 10_000), "job": st.sampled_from(sorted(SIMULATED)), "faults": FAULTS}
    with simulated_jobs.simulated():
        for_examples(simulate, MANY, Phase.shrink, **drawn)


class DescribeASchemaRegistry:
    def it_gives_a_schema_or_is_named(self, monkeypatch):
        monkeypatch.setattr(schemas, "_RETRY_SECONDS", (0.0, 0.0))
        reference = {"name": "A", "subject": "a/b", "version": 1}
        true = {
            "/schemas/ids/7": {"schema": '"A"', "references": [reference]},
            "/subjects/a%2Fb/versions/1": {"schema": "1"},
        }
        faults: list[Any] = []

        def answer(request):
            made = faults[0].answer if faults and faults[0].times > 1 else faults.pop(0).answer if faults else None
            content = true.get(request.path, {})
            if callable(made):
                return made(200, json.dumps(content).encode())
            return None if isinstance(made, Act) else made or (200, content)

        def read():
            return schemas.registered_schema(7, {}, url)

        def ask(drawn):
            faults[:] = drawn
            try:
                found = read()
            except SchemaRegistryError as error:
                found = str(error) if error.remedy and url in str(error) else None
            assert isinstance(getattr(found, "text", found), str)
            faults.clear()
            assert read() == right

        with http_server(answer) as url:
            right = read()
            for_examples(ask, MANY // 5, Phase.shrink, drawn=st.lists(FAULT, min_size=1, max_size=4))
