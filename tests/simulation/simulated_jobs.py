"""The real jobs without Spark: with rows in place of frames, and with simulated time, threads and processes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from datetime import datetime
from functools import cache
from types import SimpleNamespace
from typing import Any
from unittest import mock

from icecdc_core.changes.row_changes import NetChanges
from icecdc_core.changes.scan_planning import SideFiles, StepScan
from icecdc_core.changes.steps import plan_steps
from icecdc_core.commits import position, store
from icecdc_core.config import SyncConfig
from icecdc_core.jobs import export, repair, rollback, sync
from icecdc_core.opensearch import bulk, client, client as retry
from icecdc_core.reporting.progress import Progress
from icecdc_core.runs import batch, plan, run as runs
from icecdc_core.runs.plan import BatchPlan
from icecdc_core.runs.run import Run
from tests.simulation.network import SimulatedConnection
from tests.simulation.scheduler import RANDOM, THREADING, TIME, current
from tests.simulation.simulated_table import Actions, History, Rows, at_vector, open_source, to_actions, upserts

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
        self._resources.close()

    @contextmanager
    def stage(self, name: str, *_: Any) -> Iterator[None]:
        with client.typed_errors(self.config, name):
            yield


def open_indexable_source(*_: Any) -> Any:
    current().scheduler.hand_over()
    return open_source(world().history, world().child)


def world() -> Any:
    return current().scheduler.world


def plan_scans(_: Any, metadata: Any, start: int | None, stop: int, mode: str, **more: Any) -> list[StepScan]:
    """In place of `changes.scan_planning.plan_scans`: the steps, without their files."""
    return [StepScan(step, SideFiles(), SideFiles()) for step in plan_steps(metadata, start, stop, mode)]


def images(history: History, scans: Any) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    steps = [scan.step for scan in scans]
    states = [
        (set(history.read(each.from_snapshot_id).items()), set(history.read(each.to_snapshot_id).items()))
        for each in steps
    ]
    return {row for old, new in states for row in old - new}, {row for old, new in states for row in new - old}


def compute_changes(source: Any, config: SyncConfig, plan: BatchPlan) -> NetChanges:
    """In place of `runs.batch.compute_changes`: the documents of all roots that images of any table belong to."""
    deleted, inserted = images(source.table.history, plan.scans)
    after: Rows = source.table.history.read(plan.end)
    changed = {identity for identity, _ in deleted | inserted}
    for table, scans in plan.nested_scans.items():
        for rows in images(source.nested[table].table.history, scans):
            changed |= {value[0] for _, value in rows} & after.keys()
    vector = {table: at.snapshot_id for table, at in plan.nested.items()}
    documents = at_vector(source, None, vector).documents(after)
    rows: list[Any] = upserts({identity: documents[identity] for identity in sorted(changed & after.keys())})
    for identity, place in sorted(deleted):
        moved = world().places and after.get(identity) != place
        # Pairs: as if updates were not merged, a DELETE and an INSERT of one document, in any order.
        if identity not in after or moved or world().pairs:
            rows.append((identity, None, place))
    found: Any = rows or None
    return NetChanges(found, "at-once")


def to_documents(source: Any, plan: BatchPlan, changes: NetChanges, epoch: int) -> Any:
    rows: Any = changes.rows
    return None if rows is None else to_actions(rows, source.key_columns, epoch)


def repair_actions(source: Any, position: Any, wrong: Any, epoch: int, on_duplicate: str) -> Actions:
    rows = source.table.history.read(position.snapshot_id)
    rows = at_vector(source, None, position.nested_snapshots).documents(rows)
    found = {each["id"]: rows[each["id"]] for each in wrong if each["verdict"] != "extra" and each["id"] in rows}
    deletes: list[Any] = [(each["id"], None, each["place"]) for each in wrong if each["verdict"] == "extra"]
    return to_actions([*upserts(found), *deletes], source.key_columns, epoch)


def wrong_documents(wrong: Any) -> tuple[Any, str, int | None]:
    return wrong, *max(((each["id"], each["version"]) for each in wrong), key=lambda each: each[1] or 0)


def validate_and_repair(_: Any, config: SyncConfig) -> None:
    """In place of `jobs.validate.validate_table`, whose comparison is one of frames."""
    with SimulatedRun("validate", None, config) as run:
        with run.stage("check"):
            position, source = run.look()
            run.require_position(position, source)
            repair.require_repairable(position)
        with run.stage("compare"):
            run.client.indices.refresh(index=position.physical_index)
            hits = run.client.search(index=position.physical_index, body={"size": 100})["hits"]["hits"]
        rows: Rows = source.table.history.read(position.snapshot_id)
        rows = at_vector(source, None, position.nested_snapshots).documents(rows)
        found = {(hit["_id"], hit.get("_routing", "")): (hit["_source"]["name"], hit["_version"]) for hit in hits}
        wanted = {(identity, name[0] if world().places else ""): name for identity, name in rows.items()}
        wrong: Any = []
        for key in sorted(wanted.keys() | found.keys()):
            name, version = found.get(key, (None, None))
            if name != wanted.get(key):
                verdict = "missing" if name is None else "extra" if key not in wanted else "stale"
                wrong.append({"id": key[0], "place": key[1], "verdict": verdict, "version": version})
        if wrong:
            with run.stage("repair"):
                repair.repair_differences(run, position, source, wrong)


@contextmanager
def simulated_executor(*_: Any) -> Iterator[Any]:
    """`ThreadPoolExecutor`: the requests of a task one after the other."""

    def submit(work: Callable[..., Any], *arguments: Any) -> Any:
        result = work(*arguments)
        return SimpleNamespace(result=lambda: result)

    yield SimpleNamespace(submit=submit)


@contextmanager
def simulated() -> Iterator[None]:
    """Let the code see simulated time, threads and connections, and rows in place of Spark's frames."""
    replaced: list[tuple[Any, str, Any]] = [
        *((module, "time", TIME) for module in (position, store, retry)),
        (store, "threading", THREADING),
        (store, "CONFIRMED_EVERY", 0.0),
        (retry, "random", RANDOM),
        *((logging.getLogger(name), "disabled", True) for name in ("icecdc", "opensearch")),
        (position, "host_name", lambda: current().task.process.host),
        (position, "started_at", lambda _: ""),
        (position, "datetime", SimpleNamespace(now=lambda zone: datetime(2026, 1, 31, tzinfo=zone))),
        (position, "is_running", lambda pid, _: world().exists(pid)),
        (position, "os", SimpleNamespace(getpid=lambda: current().task.process.pid)),
        (client, "AnswerConnection", SimulatedConnection),
        (bulk, "ThreadPoolExecutor", simulated_executor),
        (bulk, "logging_to", lambda _: nullcontext()),
        (bulk, "collect_at_once", lambda written: written.collect()),
        *((module, "Run", SimulatedRun) for module in (export, rollback, sync)),
        (runs, "open_indexable_source", open_indexable_source),
        (rollback, "table_facts", lambda *_: {}),
        (plan, "plan_scans", plan_scans),
        *((sync, each.__name__, each) for each in (compute_changes, to_documents)),
        (export, "at_vector", at_vector),
        (batch, "shuffle_partitions_for", lambda *_: nullcontext()),
        (export, "to_actions", to_actions),
        *((module, "progress", lambda *_: nullcontext(Progress(None, 0))) for module in (batch, export)),
        (batch, "store_dead_letters", lambda *_: None),
        (sync, "supersede_dead_letters", lambda *_: None),
        (repair, "repair_actions", repair_actions),
        (repair, "wrong_documents", wrong_documents),
    ]
    with ExitStack() as stack:
        for module, name, replacement in replaced:
            stack.enter_context(mock.patch.object(module, name, replacement))
        yield


@cache
def config(group_bytes: int, on_duplicate: str) -> SyncConfig:
    return SyncConfig(
        table="lake.ns.t",
        index=INDEX,
        positions_index=POSITIONS,
        identifier_columns=["id"],
        on_history_gap="reexport",
        on_duplicate_identifier=on_duplicate,
        export_group_bytes=group_bytes,
        keep_index="7d",
        number_of_shards=2,
        lease_seconds=LEASE_SECONDS,
        request_timeout_seconds=2.0,
        retry_timeout_seconds=3.0,
    )


JOBS: dict[str, Callable[[Any, SyncConfig], Any]] = {
    "sync": sync.sync_changes,
    "export": export.export_table,
    "repair": validate_and_repair,
    "rollback": rollback.rollback_index,
}
