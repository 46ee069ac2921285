"""One schedule: a table, a cluster, and several runs of the real jobs that meet all kinds of trouble."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest import mock

from icecdc_core.commits import lease, lock, positions
from icecdc_core.config import SyncConfig
from icecdc_core.errors import IcecdcError
from icecdc_core.jobs import export, repair, sync
from icecdc_core.opensearch import bulk_writer, client, retry
from icecdc_core.runs import batch
from icecdc_core.runs.changes import BatchChanges, BatchPlan
from icecdc_core.runs.run import Run
from icecdc_core.table.snapshots import missing_snapshot
from tests.simulation.invariants import Invariants, Violation
from tests.simulation.network import Faults, Network, SimulatedConnection
from tests.simulation.scheduler import (
    Killed,
    Process,
    Scheduler,
    SimulatedRandom,
    SimulatedThreading,
    SimulatedTime,
    current,
)
from tests.simulation.simulated_opensearch import SimulatedOpenSearch
from tests.simulation.simulated_table import Actions, History, open_source, to_actions

INDEX, POSITIONS = "t", "positions"
LEASE_SECONDS = 4.0


class SimulatedRun(Run):
    """The real run; only what needs Spark is left out: the session's checks, and the translation of its failures."""

    def __init__(self, job: str, spark: Any, config: SyncConfig) -> None:
        super().__init__(job, spark, config)
        self.run_id = current().task.process.name

    def __enter__(self) -> SimulatedRun:
        self._open()
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        with self.typed_errors(name):
            yield

    def open_source(self, needs_history: bool = True) -> Any:
        return open_source(world().history)


def world() -> World:
    """The world of this thread's schedule."""
    return current().scheduler.world  # type: ignore[attr-defined]


# What the jobs do with Spark, with rows in place of frames. ---------------------------------------------------------


def plan_batch(source: Any, config: SyncConfig, start: int | None, end: int | None, cuts: Any = ()) -> BatchPlan:
    """In place of `runs.changes.plan_batch`: the steps as pairs of snapshots."""
    steps: list[Any] = []
    for stop in (each for each in (*cuts, end) if each is not None):
        for snapshot_id in (start, stop):
            if snapshot_id is not None and (gap := missing_snapshot(source.metadata, snapshot_id)):
                raise gap
        steps.append((start, stop))
        start = stop
    return BatchPlan(steps, end, len(steps), [])


def compute_changes(source: Any, config: SyncConfig, plan: BatchPlan) -> BatchChanges:
    """In place of `runs.changes.compute_changes`: one change for each identifier, the last step's."""
    changed: dict[str, str | None] = {}
    steps: list[Any] = plan.scans
    updated = set()
    for start, stop in steps:
        before, after = source.table.history.read(start), source.table.history.read(stop)
        for identity in sorted(before.keys() | after.keys()):
            if before.get(identity) != after.get(identity):
                changed[identity] = after.get(identity)
                updated |= {identity} if identity in before else set()
    rows: list[Any] = list(changed.items())
    if world().pairs:
        # As if updates were not merged: a DELETE and an INSERT of one document, in any order.
        rows += [(identity, None) for identity in sorted(updated) if changed[identity] is not None]
    found: Any = rows or None
    return BatchChanges(found, "diff")


def to_documents(source: Any, plan: BatchPlan, changes: BatchChanges, epoch: int) -> Any:
    """In place of `runs.changes.to_documents`."""
    rows: Any = changes.rows
    return None if rows is None else to_actions(rows, source.key_columns, epoch)


def repairs(source: Any, position: Any, wrong: Any, epoch: int, on_duplicate: str) -> Actions:
    """In place of `jobs.repair._repairs`."""
    rows = source.table.history.read(position.snapshot_id)
    upserts = [(each["id"], rows[each["id"]]) for each in wrong if each["verdict"] != "extra" and each["id"] in rows]
    deletes: list[Any] = [(each["id"], None) for each in wrong if each["verdict"] == "extra"]
    return to_actions([*upserts, *deletes], source.key_columns, epoch)


def newest(wrong: Any) -> tuple[str, int | None]:
    """In place of `jobs.repair._newest`."""
    return max(((each["id"], each["version"]) for each in wrong), key=lambda each: each[1] or 0)


def validate_and_repair(_: Any, config: SyncConfig) -> None:
    """In place of `jobs.validate.validate_table`, whose comparison is one of frames."""
    with SimulatedRun("validate", None, config) as run:
        with run.stage("check"):
            source = run.open_source()
            position = run.require_position(source)
            repair.require_repairable(position)
        with run.stage("compare"):
            run.client.indices.refresh(index=position.physical_index)
            hits = run.client.search(index=position.physical_index, body={"size": 100})["hits"]["hits"]
        rows: dict[str, str] = source.table.history.read(position.snapshot_id)  # type: ignore[attr-defined]
        found = {hit["_id"]: (hit["_source"]["name"], hit["_version"]) for hit in hits}
        wrong: Any = []
        for identity in sorted(rows.keys() | found.keys()):
            name, version = found.get(identity, (None, None))
            if name != rows.get(identity):
                verdict = "missing" if name is None else "extra" if identity not in rows else "stale"
                wrong.append({"id": identity, "verdict": verdict, "version": version})
        if wrong:
            with run.stage("repair"):
                repair.repair_differences(run, source, position, wrong)


class SimulatedExecutor:
    """`ThreadPoolExecutor`: the requests of a task one after the other."""

    def __init__(self, *_: Any) -> None:
        pass

    def __enter__(self) -> SimulatedExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Any:
        result = work(*arguments)
        return SimpleNamespace(result=lambda: result)


@contextmanager
def simulated() -> Iterator[None]:
    """Let the code see simulated time, threads and connections, and rows in place of Spark's frames."""
    bar = SimpleNamespace(update=lambda _: None)
    replaced: list[tuple[Any, str, Any]] = [
        *((module, "time", SimulatedTime) for module in (lease, positions, retry)),
        (lock, "threading", SimulatedThreading),
        (retry, "random", SimulatedRandom),
        (lease, "_host", lambda: current().task.process.host),
        (lease, "_started", lambda _: ""),
        (lease, "_exists", lambda holder: world().exists(holder)),
        (lease, "os", SimpleNamespace(getpid=lambda: current().task.process.pid)),
        (client, "AnswerConnection", SimulatedConnection),
        (bulk_writer, "ThreadPoolExecutor", SimulatedExecutor),
        (bulk_writer, "logging_to", lambda _: nullcontext()),
        *((module, "Run", SimulatedRun) for module in (export, sync)),
        *((sync, each.__name__, each) for each in (plan_batch, compute_changes, to_documents)),
        (sync, "partitions_for", lambda *_: nullcontext()),
        (export, "to_actions", to_actions),
        (export, "_check_identifiers", lambda *_: None),
        (export, "progress", lambda *_: nullcontext(bar)),
        (batch, "store_dead_letters", lambda *_: None),
        (repair, "_repairs", repairs),
        (repair, "_newest", newest),
        (repair, "_wrong", lambda differences: differences),
    ]
    with ExitStack() as stack:
        for module, name, replacement in replaced:
            stack.enter_context(mock.patch.object(module, name, replacement))
        yield


@cache
def config(group_bytes: int, on_duplicate: str) -> SyncConfig:
    """The parameters of a run."""
    return SyncConfig(
        table="lake.ns.t",
        index=INDEX,
        positions_index=POSITIONS,
        identifier_columns=["id"],
        on_history_gap="reexport",
        on_duplicate_identifier=on_duplicate,
        export_group_bytes=group_bytes,
        lease_seconds=LEASE_SECONDS,
        request_timeout_seconds=2.0,
        retry_timeout_seconds=3.0,
    )


MIXES = ("sync", "export"), ("sync", "sync", "export", "repair"), ("export",), ("sync", "repair"), ("sync",)
"""The jobs of a schedule. With few kinds of them, those that must meet to break something do so more often."""

JOBS: dict[str, Callable[[Any, SyncConfig], Any]] = {
    "sync": sync.sync_changes,
    "export": export.export_table,
    "repair": validate_and_repair,
}


@dataclass
class World:
    """A schedule and what it is played with.

    Args:
        seed: Decides everything.
        trace: Called with a line for each step, if anybody wants to know.
    """

    seed: int
    trace: Callable[[str], None] | None = None
    outcomes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.scheduler = Scheduler(self.random)
        self.scheduler.world = self  # type: ignore[attr-defined]
        self.history = History(self.random)
        self.history.begin()
        self.cluster = SimulatedOpenSearch(lambda: self.scheduler.now)
        self.invariants = Invariants(self.cluster, self.history.rows, INDEX, POSITIONS)
        self.network = Network(self.cluster, self.random, LEASE_SECONDS, self._check, self.trace and self._traced)
        self.pairs = self.random.random() < 0.3
        self._mix = self.random.choice(MIXES)
        # A run with other parameters repeats no batch and resumes no export of the run before.
        self._group_bytes = self.random.choice(((1,), (2,), (1, 2)))
        self._policies = self.random.choice((("fail",), ("last",), ("fail", "last")))
        self._processes: dict[int, Process] = {}
        self._hosts = {host: self.random.uniform(0, 500) for host in ("a", "b")}

    def run(self) -> None:
        """Play the schedule.

        Raises:
            Violation: An invariant does not hold, a run fails with an error of no type, or nothing recovers.
        """
        SimulatedConnection.network = self.network
        if self.random.random() < 0.7:
            self._alone("the first export", "export")
            self.history.commit()
        self.network.faults = Faults.some(self.random)
        for number in range(self.random.choice((2, 2, 2, 3))):
            self._begin(f"r{number + 1}", self.random.choice((1, 2, 3)))
        self.scheduler.spawn(Process("the table"), self._change_table)
        self.scheduler.run()
        self.network.faults = Faults()
        self._settle()
        self._alone("the last run", "sync")
        self._settle()
        self._require_recovered()

    def exists(self, holder: Any) -> bool:
        """Whether a process of this machine exists."""
        process = self._processes.get(holder.get("pid"))
        return process is not None and process.alive

    def _begin(self, name: str, jobs: int) -> None:
        """Let a process do a job, and another process after it, however it ends."""
        process = Process(name, self.random.choice("ab"))
        process.offset = self._hosts[process.host]
        process.pid = len(self._processes) + 1
        self._processes[process.pid] = process
        job, chosen = self.random.choice(self._mix), self._config()
        self.scheduler.spawn(process, lambda: self._work(process, job, chosen, jobs))

    def _config(self) -> SyncConfig:
        return config(self.random.choice(self._group_bytes), self.random.choice(self._policies))

    def _work(self, process: Process, job: str, chosen: SyncConfig, jobs: int) -> None:
        self._traced(f"{process.name} begins: {job} {chosen.export_group_bytes} {chosen.on_duplicate_identifier}")
        try:
            JOBS[job](None, chosen)
            outcome = "ok"
        except IcecdcError as error:
            outcome = type(error).__name__
            self._traced(f"{process.name}: {error}")
        except Killed:
            outcome = "killed"
        except Exception as error:
            self.scheduler.fail(error)
            return
        self._traced(f"{process.name} ends: {outcome}")
        self.outcomes.append(f"{job} {outcome}")
        process.alive = False
        if jobs > 1 and self.scheduler.failure is None:
            self._begin(f"{process.name}'", jobs - 1)

    def _change_table(self) -> None:
        for _ in range(self.random.choice((1, 2, 3, 4))):
            for _ in range(self.random.randrange(25)):
                self.scheduler.hand_over()
            change = self.random.choice(("commit", "commit", "commit", "roll_back", "roll_back", "expire", "lose"))
            if change == "lose":
                self._lose_index()
                continue
            getattr(self.history, change)()
            known = [each.snapshot_id for each in self.history.metadata.snapshots]
            self._traced(f"the table: {change}, now {self.history.head} of {known}: {self.history.rows}")

    def _lose_index(self) -> None:
        """Somebody deletes an index that is not published yet."""
        committed = (self.invariants.position or {}).get("physical_index")
        unread = [name for name in self.cluster.indexes if name not in (committed, POSITIONS)]
        for name in unread:
            if INDEX not in self.cluster.indexes[name].aliases:
                self.cluster.answer("DELETE", f"/{name}", {}, None)
                self._traced(f"somebody deletes {name}")

    def _alone(self, name: str, job: str) -> None:
        """Do a job that nobody disturbs."""
        process = Process(name, "c")
        process.pid = len(self._processes) + 1
        self._processes[process.pid] = process
        begun, chosen = len(self.outcomes), self._config()
        self.scheduler.spawn(process, lambda: self._work(process, job, chosen, 1))
        self.scheduler.run()
        if self.outcomes[begun:] != [f"{job} ok"]:
            raise Violation("Recovery", f"{name} ended with {self.outcomes[begun:]}")

    def _settle(self) -> None:
        self.scheduler.settle()
        if self.scheduler.failure is not None:
            raise self.scheduler.failure

    def _require_recovered(self) -> None:
        position = self.invariants.position
        if position is None or position["batch"] is not None or position["snapshot_id"] != self.history.head:
            raise Violation("Recovery", f"the position is {position}, the table has {self.history.head}")
        self.invariants.check()

    def _check(self) -> None:
        try:
            self.invariants.check()
        except Violation as violation:
            self._traced(str(violation))
            self.scheduler.fail(violation)

    def _traced(self, line: str) -> None:
        if self.trace:
            self.trace(f"{self.scheduler.now:8.1f}  {line}")
