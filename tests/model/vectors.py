"""Documents of several tables, and their places: the rules in plain Python, see docs/proof.md.

A vector says which snapshot each table has. A batch goes from one vector to another. Its stretches begin and end at the
cuts, the vectors of batches that failed before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from random import Random
from typing import Any

Row = tuple[Any, ...]
State = Mapping[str, tuple[Row, ...]]
Vector = Mapping[str, int]

COLUMNS = {
    "film": ("id", "language", "prequel", "place", "title"),
    "language": ("id", "name"),
    "scene": ("id", "film", "text"),
    "prop": ("scene", "name"),
    "film_actor": ("film", "actor"),
    "actor": ("id", "name"),
}
SHOWN = ("title", "name", "text")
"""The columns that documents show. The others are only joined, or decide the place."""


@dataclass(frozen=True)
class Node:
    """A table in the tree of a document; `on` names a column of its own and one of its parent."""

    table: str
    on: tuple[str, str] = ("", "")
    nested: tuple[Node, ...] = ()

    def matches(self, row: Row, parent: Node, other: Row) -> bool:
        return column(self.table, row, self.on[0]) == column(parent.table, other, self.on[1]) is not None


SPEC = Node(
    "film",
    nested=(
        Node("language", ("id", "language")),
        Node("film", ("id", "prequel"), (Node("language", ("id", "language")),)),
        Node("scene", ("film", "id"), (Node("prop", ("scene", "id")),)),
        Node("film_actor", ("film", "id"), (Node("actor", ("id", "actor")),)),
    ),
)
"""A lookup, the root's own table, two levels of children, and a table between two others."""


def column(table: str, row: Row, name: str) -> Any:
    return row[COLUMNS[table].index(name)]


def shown(table: str, row: Row) -> Row:
    return tuple(value for name, value in zip(COLUMNS[table], row, strict=True) if name in SHOWN)


def assemble(node: Node, row: Row, state: State) -> Any:
    """Return the document of a row."""
    parts = [
        sorted(assemble(child, each, state) for each in state[child.table] if child.matches(each, node, row))
        for child in node.nested
    ]
    return shown(node.table, row), parts


@cache
def paths(table: str) -> list[tuple[Node, ...]]:
    """Return the ways from the root to every place that a table has in the tree."""

    def below(path: tuple[Node, ...]) -> Iterator[tuple[Node, ...]]:
        yield path
        for child in path[-1].nested:
            yield from below((*path, child))

    return [path for path in below((SPEC,)) if path[-1].table == table]


def place_of(row: Row) -> str:
    return str(column("film", row, "place"))


def shard_of(place: str) -> str:
    """Two of the three places share a shard."""
    return "ab" if place in "ab" else place


@dataclass(frozen=True)
class Rules:
    """The rules, or what a wrong implementation would do instead."""

    mutation: str = ""

    def images(self, table: str, older: State, newer: State) -> tuple[list[Row], list[Row]]:
        """Return the rows of a table that are DELETE images, and those that are INSERT images."""
        before, after = Counter(older[table]), Counter(newer[table])
        deletes, inserts = list((before - after).elements()), list((after - before).elements())
        compared = {
            "only what documents show is compared": lambda row: (row[0], shown(table, row)),
            "the place is not compared": lambda row: (*row[:3], *row[4:]) if table == "film" else row,
        }.get(self.mutation)
        if compared:
            old, new = {compared(row) for row in deletes}, {compared(row) for row in inserts}
            deletes = [row for row in deletes if compared(row) not in new]
            inserts = [row for row in inserts if compared(row) not in old]
        return deletes, inserts

    def roots(self, table: str, row: Row, state: State) -> set[int]:
        """Join a row upwards, from every place of its table."""
        found = set()
        for path in paths(table)[-1:] if self.mutation == "one alias of a table is enough" else paths(table):
            rows = {row}
            for parent, node in reversed(list(pairwise(path))):
                rows = {each for each in state[parent.table] if any(node.matches(row, parent, each) for row in rows)}
            found |= {column("film", each, "id") for each in rows}
        return found

    def affected(self, stops: list[State]) -> set[int]:
        """Return the roots of every image between two stops, joined upwards at the last one.

        On the way up from a changed row, take the changed row that is next to the root. What is above it did not
        change, so every state has it, the last one too.
        """
        left_out = {"DELETE images are left out": 0, "INSERT images are left out": 1}.get(self.mutation)
        return {
            root
            for table in COLUMNS
            for older, newer in pairwise(stops)
            for kind, rows in enumerate(self.images(table, older, newer))
            for row in rows
            if kind != left_out
            for root in self.roots(table, row, stops[-1])
        }


@dataclass(frozen=True)
class Operation:
    """An operation of a bulk request; without a document it deletes."""

    place: str
    root: int
    version: int
    document: Any = None


@dataclass(frozen=True)
class Batch:
    """A begun batch."""

    epoch: int
    to: Vector
    cuts: tuple[Vector, ...] = ()


@dataclass
class Life:
    """A life of some tables and an index: changes, batches that fail, and operations that are executed late."""

    rules: Rules
    random: Random
    snapshots: dict[str, list[tuple[Row, ...]]] = field(default_factory=dict)
    index: dict[tuple[str, int], tuple[int, str, Any]] = field(default_factory=dict)
    late: list[Operation] = field(default_factory=list)
    begun: Batch | None = None
    epoch: int = 0

    def __post_init__(self) -> None:
        self.snapshots = {table: [()] for table in COLUMNS}
        self.heads = self.position = dict.fromkeys(COLUMNS, 0)
        for _ in range(12):
            self.change(rollback=0.0)
        self.finish()

    def at(self, vector: Vector) -> State:
        return {table: self.snapshots[table][number] for table, number in vector.items()}

    def change(self, rollback: float = 0.2) -> None:
        """Commit a row or two to one table, or roll it back."""
        table = self.random.choice(("film", *COLUMNS))
        if self.random.random() < rollback:
            number = self.random.randrange(len(self.snapshots[table]))
        else:
            rows = list(self.snapshots[table][self.heads[table]])
            if rows and self.random.random() < 0.5:
                rows.remove(self.random.choice(rows))
            made = tuple(self._value(name) for name in COLUMNS[table])
            if self.random.random() < 0.8:
                rows = [row for row in rows if table != "film" or row[0] != made[0]] + [made]
            number = len(self.snapshots[table])
            self.snapshots[table].append(tuple(rows))
        self.heads = {**self.heads, table: number}

    def _value(self, name: str) -> Any:
        if name in SHOWN:
            return self.random.choice("xy")
        return self.random.choice("abc" if name == "place" else (1, 2) if name == "id" else (1, 2, None))

    def begin(self) -> Batch:
        """Begin a batch: the failed one again, or a longer one that has its end as a cut."""
        if self.begun and self.random.random() < 0.5:
            if self.rules.mutation != "a batch is repeated with the current snapshots":
                return self.begun
            return replace(self.begun, to=self.heads)
        self.epoch += 1
        cuts = (*self.begun.cuts, self.begun.to) if self.begun else ()
        if self.rules.mutation == "a batch has no cuts":
            cuts = ()
        if self.rules.mutation == "a cut is the snapshot of the root alone":
            cuts = tuple({**self.heads, "film": cut["film"]} for cut in cuts)
        self.begun = Batch(self.epoch, self.heads, cuts)
        return self.begun

    def operations(self, batch: Batch) -> list[Operation]:
        rules, stops = self.rules, [self.at(each) for each in (self.position, *batch.cuts, batch.to)]
        ends = [stops[0], stops[-1]]
        rows = {row[0]: row for row in stops[-1]["film"]}
        affected = rules.affected(ends if rules.mutation == "a row that is what it was is not indexed again" else stops)
        version = 2 * batch.epoch + (rules.mutation == "deletes and upserts have one version")
        deletes = {
            Operation(place_of(row), row[0], version)
            for older, newer in pairwise(ends if rules.mutation == "deletes go to the place at the position" else stops)
            for row in rules.images("film", older, newer)[0]
        }
        if rules.mutation == "a delete has no place":
            deletes = {replace(each, place="a") for each in deletes}
        return [
            *deletes,
            *(
                Operation(place_of(rows[root]), root, 2 * batch.epoch + 1, assemble(SPEC, rows[root], stops[-1]))
                for root in sorted(affected & rows.keys())
            ),
        ]

    def execute(self, operation: Operation) -> None:
        """OpenSearch keeps one document for an identifier in each shard, and compares versions."""
        key = shard_of(operation.place), operation.root
        no_index = not any(shard == key[0] for shard, _ in self.index)
        if operation.document is None and no_index and self.rules.mutation == "a delete creates no index":
            return
        if key not in self.index or self.index[key][0] < operation.version:
            self.index[key] = operation.version, operation.place, operation.document

    def run(self, fails: bool) -> None:
        """Write a batch, and commit it if it does not fail."""
        batch = self.begin()
        operations = self.operations(batch)
        self.late += operations
        for operation in self.random.sample(operations, self.random.randint(0, len(operations))):
            self.execute(operation)
        if fails:
            return
        for operation in operations:
            self.execute(operation)
        moves_alone = self.rules.mutation == "the position moves for the root alone"
        self.position = {**self.position, "film": batch.to["film"]} if moves_alone else batch.to
        self.begun = None

    def finish(self) -> None:
        """Execute something of long ago, commit, and check what readers find."""
        for operation in self.random.sample(self.late, min(len(self.late), 3)):
            self.execute(operation)
        self.run(fails=False)
        for operation in self.random.sample(self.late, min(len(self.late), 3)):
            self.execute(operation)
        state = self.at(self.position)
        wanted = {(row[0], place_of(row)): assemble(SPEC, row, state) for row in state["film"]}
        found = [(root, place, document) for (_, root), (_, place, document) in self.index.items() if document]
        assert sorted(found) == sorted((*key, document) for key, document in wanted.items())

    def go_on(self) -> None:
        """Live for a while."""
        for _ in range(self.random.choice((1, 2, 3))):
            self.change()
        if self.random.random() < 0.5:
            self.run(fails=True)
        else:
            self.finish()
