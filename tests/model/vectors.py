"""Documents of several tables: the rule that finds those which changed, in plain Python, see docs/proof.md.

A batch goes from the state of all tables at one vector of snapshots to that at another. Its stops are these two, and
between them the cuts: the states of batches that failed before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from random import Random
from typing import Any

Row = tuple[Any, ...]
State = Mapping[str, tuple[Row, ...]]

COLUMNS = {
    "film": ("id", "language", "prequel", "title"),
    "language": ("id", "name"),
    "scene": ("id", "film", "text"),
    "prop": ("scene", "name"),
    "film_actor": ("film", "actor"),
    "actor": ("id", "name"),
}
SHOWN = ("title", "name", "text")
"""The columns that documents show. The others are only joined."""


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
    parts = [
        sorted(assemble(child, each, state) for each in state[child.table] if child.matches(each, node, row))
        for child in node.nested
    ]
    return shown(node.table, row), parts


@cache
def paths(table: str) -> list[tuple[Node, ...]]:
    """Return the ways from the root to every relation of a table in the tree."""

    def below(path: tuple[Node, ...]) -> Iterator[tuple[Node, ...]]:
        yield path
        for child in path[-1].nested:
            yield from below((*path, child))

    return [path for path in below((SPEC,)) if path[-1].table == table]


@dataclass(frozen=True)
class Rules:
    """The rules, or what a wrong implementation would do instead."""

    mutation: str = ""

    def images(self, table: str, older: State, newer: State) -> tuple[list[Row], list[Row]]:
        before, after = Counter(older[table]), Counter(newer[table])
        deletes, inserts = list((before - after).elements()), list((after - before).elements())
        if self.mutation == "only what documents show is compared":
            old, new = ({(row[0], shown(table, row)) for row in rows} for rows in (deletes, inserts))
            deletes = [row for row in deletes if (row[0], shown(table, row)) not in new]
            inserts = [row for row in inserts if (row[0], shown(table, row)) not in old]
        return deletes, inserts

    def roots(self, table: str, row: Row, state: State) -> set[int]:
        """Join a row upwards, from every relation of its table."""
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
        if self.mutation == "the cuts are left out":
            stops = [stops[0], stops[-1]]
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


def random_stops(random: Random) -> list[State]:
    """Return states that follow each other: rows change, come and go, and tables are rolled back."""
    history: dict[str, list[tuple[Row, ...]]] = {table: [()] for table in COLUMNS}
    stops = []
    for number in range(24):
        table = random.choice(("film", *COLUMNS))
        rows = list(random.choice(history[table]) if random.random() < 0.2 else history[table][-1])
        if rows and random.random() < 0.5:
            rows.remove(random.choice(rows))
        if random.random() < 0.8:
            made = tuple(random.choice("xy" if name in SHOWN else (1, 2, 3)) for name in COLUMNS[table])
            rows = [row for row in rows if table != "film" or row[0] != made[0]] + [made]
        history[table].append(tuple(rows))
        if number > 12 and random.random() < 0.5:
            stops.append({name: states[-1] for name, states in history.items()})
    return [*stops, {name: states[-1] for name, states in history.items()}]
