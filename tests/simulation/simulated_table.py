"""Tables as plain Python: their snapshots, a source for the jobs, and rows where the jobs have frames.

The root has a row for each document; its value is the place of the document, too. A row of the child table says which
document it belongs to, and may move: `1x` is the value `x` in document `1`.

What a job does with Spark ends in a frame of bulk lines. Here such a frame is a list of texts, and the real bulk writer
writes it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from random import Random
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql import types as T

from icecdc_core.documents import bulk_lines
from icecdc_core.table.snapshots import Snapshot, TableMetadata, history_gap_error
from icecdc_core.table.source import Source
from tests.simulation.scheduler import Process, current

Rows = dict[str, str]
"""The rows of a snapshot: id and name."""

Change = tuple[str, str | None, str]
"""The id of a document, its text (None: it is deleted), and its place."""

ROOT, CHILD = "lake.ns.t", "lake.ns.child"
_VALUES = {ROOT: ("x", "y", "z", None), CHILD: ("1x", "1y", "2x", "3x", None)}

_SCHEMA = Schema(NestedField(1, "id", LongType(), True), NestedField(2, "name", StringType()))
_SCHEMA_JSON = _SCHEMA.model_dump_json()
_SPARK_SCHEMA = T.StructType([T.StructField("id", T.LongType(), False), T.StructField("name", T.StringType())])
_NEW = TableMetadata("table", "", json.loads(_SCHEMA_JSON), (), {}, None, False, False)


@dataclass
class History:
    random: Random
    name: str = ROOT
    metadata: TableMetadata = _NEW
    rows: dict[int | None, Rows] = field(default_factory=lambda: {None: {}})
    heads: list[int | None] = field(default_factory=list)

    @property
    def head(self) -> int | None:
        return self.metadata.current_snapshot_id

    def begin(self) -> None:
        values = _VALUES[self.name][:-1]
        self._append({identity: self.random.choice(values) for identity in self.random.sample("123", 2)})

    def commit(self) -> None:
        """Change a row or two, so that values return and rows come and go."""
        before = self.rows[self.head]
        rows = dict(before)
        while rows == before:
            for _ in range(self.random.choice((1, 2))):
                identity, name = self.random.choice("123"), self.random.choice(_VALUES[self.name])
                if name is None:
                    rows.pop(identity, None)
                else:
                    rows[identity] = name
        self._append(rows)

    def _append(self, rows: Rows) -> None:
        number = len(self.rows)
        self.rows[number] = rows
        made = Snapshot(number, number * 1000, self.head, number, "append")
        self.metadata = replace(self.metadata, snapshots=(*self.metadata.snapshots, made), current_snapshot_id=number)
        self.heads.append(number)

    def roll_back(self) -> None:
        others = [each.snapshot_id for each in self.metadata.snapshots if each.snapshot_id != self.head]
        if others:
            self.metadata = replace(self.metadata, current_snapshot_id=self.random.choice(others))
            self.heads.append(self.head)

    def expire(self) -> None:
        """Expire a snapshot that is not the current one."""
        others = [each.snapshot_id for each in self.metadata.snapshots if each.snapshot_id != self.head]
        if others:
            gone = self.random.choice(others)
            kept = tuple(each for each in self.metadata.snapshots if each.snapshot_id != gone)
            self.metadata = replace(self.metadata, snapshots=kept)

    def recreate(self) -> None:
        self.metadata = replace(_NEW, table_uuid=f"{self.name} {len(self.rows)}")
        self.begin()

    def read(self, snapshot_id: int | None) -> Rows:
        """Read the rows of a snapshot now; another process may have expired it."""
        if snapshot_id is not None and (gap := history_gap_error(self.metadata, snapshot_id)) is not None:
            raise gap
        return self.rows[snapshot_id]


class Table:
    """The table as `Source` has it; each row has a file of its own, so a group of files is a part of the rows."""

    spark = None

    def __init__(self, history: History) -> None:
        self.history = history
        self.name = history.name

    def plan(self, snapshot_id: int) -> list[tuple[int, str, str]]:
        return [(snapshot_id, identity, name) for identity, name in self.history.read(snapshot_id).items()]

    def locations(self, tasks: list[tuple[int, str, str]]) -> list[str]:
        # By the value first: so the same row is in another group once another row changed.
        return [f"{name}-{identity}" for _, identity, name in tasks]

    def sizes(self, tasks: list[Any]) -> list[int]:
        return [1] * len(tasks)

    row_counts = sizes

    def select(self, tasks: list[Any], positions: list[int]) -> list[Any]:
        return [tasks[position] for position in positions]

    def release(self) -> None:
        """There is nothing to release."""


@dataclass(frozen=True)
class SimulatedSource(Source):
    """The real `Source`; only what reads rows is replaced."""

    schema_json = _SCHEMA_JSON
    vector: Mapping[str, int | None] = field(default_factory=dict)
    """The snapshots of nested tables that documents are put together of."""

    def require_unique_identifiers(self, on_duplicate: str, snapshot_id: int | None) -> None:
        """They are unique; the real check reads the rows of the snapshot as it was planned."""
        self.files(snapshot_id)

    def rows_as_inserts(self, tasks: Any, on_duplicate: str) -> list[Change]:
        for snapshot_id in {task[0] for task in tasks}:
            self.table.history.read(snapshot_id)
        return upserts(self.documents({identity: name for _, identity, name in tasks}))

    def documents(self, rows: Rows) -> Rows:
        return documents(rows, *(self.nested[name].table.history.read(at) for name, at in self.vector.items()))


def documents(rows: Rows, child: Rows | None = None) -> Rows:
    """Return the text of the document of each row: its own value, and those of its rows in the child table."""
    if child is None:
        return rows
    return {i: f"{name}: {sorted(value[1] for value in child.values() if value[0] == i)}" for i, name in rows.items()}


def at_vector(source: Any, _: int | None, vector: Mapping[str, int | None], whole: bool = True) -> Any:
    return replace(source, vector=vector)


def open_source(history: History, child: History | None = None) -> Source:
    """Load the tables, one after the other."""
    table: Any = Table(history)
    scheduler = current().scheduler
    read_at = datetime.fromtimestamp(scheduler.now, UTC).isoformat()
    scheduler.world.invariants.note_read(read_at)
    known = history.metadata, history.head
    source = SimulatedSource(table, *known, ["id", "name"], ["id"], _SPARK_SCHEMA, "", "main", [], read_at=read_at)
    if child is None:
        return source
    current().scheduler.hand_over()
    nested = open_source(child)
    return replace(source, nested={CHILD: nested}, vector={CHILD: nested.head})


@dataclass(frozen=True)
class Actions:
    """A frame of bulk lines, as much of it as the bulk writer uses; executors write its partitions."""

    lines: list[str]
    sparkSession: None = None  # noqa: N815 (the name of PySpark)

    def mapInArrow(self, write: Callable[[Iterable[Any]], Iterator[Any]], _: str) -> Written:
        return Written(self.lines, write)


@dataclass(frozen=True)
class Written:
    """The results of all partitions, each written by a task of its own, which may outlive the driver."""

    lines: list[str]
    write: Callable[[Iterable[Any]], Iterator[Any]]

    def persist(self, *_: Any) -> Written:
        return self

    where = select = drop = limit = unpersist = persist

    def collect(self) -> list[dict[str, str]]:
        task, scheduler = current().task, current().scheduler
        lines = scheduler.random.sample(self.lines, len(self.lines))
        half = (len(lines) + 1) // 2
        parts = [lines[:half], lines[half:]] if scheduler.random.random() < 0.5 else [lines]
        results: dict[int, list[dict[str, str]]] = {}
        failures: list[Exception] = []

        def work(number: int, part: list[str]) -> None:
            try:
                batch = pa.RecordBatch.from_pydict({"action": pa.array(part, pa.string())})
                results[number] = list(self.write([batch]))[-1].to_pylist()
            except Exception as error:
                failures.append(error)

        left = {number: part for number, part in enumerate(parts) if part}
        while left and not failures:  # Spark repeats the tasks of a lost executor
            executor = Process(f"executor of {task.process.name}", task.process.host, offset=task.process.offset)
            tasks = [scheduler.spawn(executor, partial(work, *each)) for each in left.items()]
            scheduler.hand_over(lambda tasks=tasks: all(each.done for each in tasks))
            left = {number: part for number, part in left.items() if number not in results}
        if failures:
            raise failures[0]
        return [row for number in sorted(results) for row in results[number]]


def upserts(found: Rows) -> list[Change]:
    return [(identity, name, name[0]) for identity, name in found.items()]


def to_actions(changes: Iterable[Change], _: Any, epoch: int, *__: Any) -> Actions:
    """Turn changes into bulk lines, in place of `documents.bulk_lines.to_actions`."""
    upsert, delete = bulk_lines.upsert_version(epoch), bulk_lines.delete_version(epoch)
    lines = []
    for identity, name, place in changes:
        head = {"_id": identity, "version": delete if name is None else upsert, "version_type": "external"}
        if current().scheduler.world.places:
            head["routing"] = place
        if name is None:
            lines.append(json.dumps({"delete": head}) + "\n")
        else:
            document = {"id": int(identity), "name": name}
            lines.append(f"{json.dumps({'index': head})}\n{json.dumps(document)}\n")
    return Actions(lines)
