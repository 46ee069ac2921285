"""One schedule: a table, a cluster, and several runs of the real jobs that meet all kinds of trouble."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from icecdc_core.config import SyncConfig
from icecdc_core.errors import IcecdcError
from tests.simulation.invariants import Invariants, Violation, vector_of
from tests.simulation.network import Faults, Network, SimulatedConnection
from tests.simulation.scheduler import Killed, Process, Scheduler
from tests.simulation.simulated_jobs import INDEX, JOBS, LEASE_SECONDS, POSITIONS, config
from tests.simulation.simulated_opensearch import SimulatedOpenSearch
from tests.simulation.simulated_table import CHILD, History

MIXES = ("sync", "export"), ("sync", "sync", "export", "repair"), ("export",), ("sync", "repair"), ("sync",)
MIXES += ("sync", "export", "rollback"), ("sync", "sync", "export", "repair", "rollback")
"""The jobs of a schedule. With few kinds of them, those that must meet to break something do so more often."""


@dataclass
class World:
    seed: int
    trace: Callable[[str], None] | None = None
    outcomes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.scheduler = Scheduler(self.random, self)
        self.history = History(self.random)
        self.history.begin()
        # In half of the schedules documents have rows of two tables.
        self.child = History(self.random, CHILD) if self.random.random() < 0.5 else None
        if self.child:
            self.child.begin()
        self.cluster = SimulatedOpenSearch(lambda: self.scheduler.now)
        self.invariants = Invariants(self.cluster, self, INDEX, POSITIONS)
        self.network = Network(self.cluster, self.random, LEASE_SECONDS, self._check, self.trace and self._traced)
        self.pairs = self.random.random() < 0.3
        self.places = self.random.random() < 0.5
        self._mix = self.random.choice(MIXES)
        # A run with other parameters repeats no batch and resumes no export of the run before.
        self._group_bytes = self.random.choice(((1,), (2,), (1, 2), (1, 2)))
        self._policies = self.random.choice((("fail",), ("last",), ("fail", "last"), ("fail", "last")))
        self._processes: dict[int, Process] = {}
        self._hosts = {"a": self.random.uniform(0, 500), "b": self.random.uniform(0, 500), "c": 0.0}

    def run(self) -> None:
        SimulatedConnection.network = self.network
        if self.random.random() < 0.7:
            self._alone("the first export", "export")
            self.history.commit()
            if self.child:
                self.child.commit()
        self.network.faults = Faults.some(self.random)
        for number in range(self.random.choice((2, 2, 2, 3))):
            self._begin(f"r{number + 1}", self.random.choice((1, 2, 3)))
        self.scheduler.spawn(Process("the table"), self._change_table)
        self.scheduler.run()
        self.network.faults = Faults()
        self._settle()
        try:
            self._alone("the last run", "sync")
        except Violation:
            if not self.invariants.foreign or self.outcomes[-1] != "sync RejectedDocumentsError":
                raise
            # Somebody wrote a document of the begun batch: its version is now above that of the batch.
            self._alone("the remedy", "export")
            self._alone("the run after the remedy", "sync")
        self._settle()
        if self.invariants.foreign:
            # A foreign version may equal that of the repair. The validation then says that documents differ,
            # and the next repair exceeds it.
            self._alone("the last repair", "repair")
            self._alone("one more repair", "repair")
            self.invariants.foreign = False
        self._require_recovered()

    def exists(self, pid: int) -> bool:
        process = self._processes.get(pid)
        return process is not None and process.alive

    def keeps_lease(self, owner: dict[str, Any]) -> bool:
        now = self.scheduler.now + self._hosts[owner["host"]]
        return self.exists(owner["pid"]) and now - owner["renewed"] < owner["lease_seconds"]

    def _begin(self, name: str, jobs: int) -> None:
        """Let a process do a job, and another process after it, however it ends."""
        process = self._process(name, self.random.choice("ab"))
        job, chosen = self.random.choice(self._mix), self._config()
        self.scheduler.spawn(process, lambda: self._work(process, job, chosen, jobs))

    def _process(self, name: str, host: str) -> Process:
        process = Process(name, host, pid=len(self._processes) + 1, offset=self._hosts[host])
        self._processes[process.pid] = process
        return process

    def _config(self) -> SyncConfig:
        return config(self.random.choice(self._group_bytes), self.random.choice(self._policies))

    def _work(self, process: Process, job: str, chosen: SyncConfig, jobs: int) -> None:
        # At once, or when the runs before it are at work, stalled or gone.
        self.scheduler.hand_over(deadline=self.scheduler.now + self.random.choice((0.0, 0.5, 5.0, 20.0)))
        self._traced(f"{process.name} begins: {job} {chosen.export_group_bytes} {chosen.on_duplicate_identifier}")
        try:
            JOBS[job](None, chosen)
            outcome = "ok"
        except IcecdcError as error:
            outcome = type(error).__name__
            if job == "sync" and "must show readers" in str(error):
                self.scheduler.fail(Violation("Refusals", f"{process.name}: {error}"))
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
        for _ in range(self.random.choice((1, 2, 3, 4, 5))):
            for _ in range(self.random.randrange(12)):
                self.scheduler.hand_over()
            change = self.random.choice(("commit", "commit", "commit", "roll_back", "roll_back", "expire", "foreign"))
            if change == "foreign":
                self._meddle()
                continue
            table = self.child if self.child and self.random.random() < 0.6 else self.history
            if table is self.child and change == "expire" and self.random.random() < 0.3:
                change = "recreate"
            getattr(table, change)()
            known = [each.snapshot_id for each in table.metadata.snapshots]
            self._traced(f"{table.name}: {change}, now {table.head} of {known}: {table.rows}")

    def _meddle(self) -> None:
        """Somebody else deletes an index that is not published yet, or writes a document that a repair must undo."""
        committed = (self.invariants.position or {}).get("physical_index")
        if "repair" in self._mix and committed in self.cluster.indexes and self.random.random() < 0.5:
            self.invariants.foreign = True
            head = {self.random.choice(("index", "delete")): {"_id": self.random.choice("1234")}}
            if self.places:
                next(iter(head.values()))["routing"] = self.random.choice("xyz")
            lines = [head, {"id": 0, "name": "foreign"}] if "index" in head else [head]
            self.cluster.answer("POST", f"/{committed}/_bulk", {}, lines)
            self._traced(f"somebody writes {lines} to {committed}")
            return
        for name in [name for name in self.cluster.indexes if name not in (committed, POSITIONS)]:
            if INDEX not in self.cluster.indexes[name].aliases:
                self.cluster.answer("DELETE", f"/{name}", {}, None)
                self._traced(f"somebody deletes {name}")

    def _alone(self, name: str, job: str) -> None:
        process = self._process(name, "c")
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
        heads = self.history.head, self.child and self.child.head
        if position is None or position["batch"] is not None or vector_of(position, "snapshot_id") != heads:
            raise Violation("Recovery", f"the position is {position}, the tables have {heads}")
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
