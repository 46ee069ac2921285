"""A table as lists of its files, written as texts; without Spark."""

from typing import NamedTuple

from icecdc_core.table.iceberg_table import Difference
from tests.given.table_metadata import metadata


class File(NamedTuple):
    location: str
    deletes: frozenset[str] = frozenset()
    sequence_number: int = 1
    has_row_ids: bool = False
    size: int = 1


class Table:
    name, marks_deletes = "lake.ns.t", True

    def locations(self, files):
        return [file.location for file in files]

    def delete_digests(self, files):
        return [",".join(sorted(file.deletes)) for file in files]

    def sequence_numbers(self, files):
        return [file.sequence_number for file in files]

    def file_sequence_numbers(self, files):
        return [file.sequence_number + 1 for file in files]

    def sizes(self, files):
        return [file.size for file in files]

    def row_counts(self, files):
        return [10] * len(files)

    def have_row_ids(self, files):
        return all(file.has_row_ids for file in files)

    def select(self, files, positions):
        return [files[position] for position in positions]

    def union(self, *parts):
        return [file for part in parts for file in part]


def files(text, **more):
    """``a b+x+y``: the data file a, and b with the delete files x and y."""
    parts = [part.split("+") for part in text.split()]
    return [File(location, frozenset(deletes), **more) for location, *deletes in parts]


def shown(tasks):
    return " ".join("+".join([file.location, *sorted(file.deletes)]) for file in tasks)


class History(Table):
    def __init__(self, *states, parents=None, operations=None):
        self.parents = {n: (parents or {}).get(n, n - 1 or None) for n in range(1, len(states) + 1)}
        self.states = {None: []}
        for number, text in enumerate(states, 1):
            older = {file.location: file.sequence_number for file in self.states.get(self.parents[number], [])}
            self.states[number] = [_file(part, older, number) for part in text.split()]
        lineage = [(n, self.parents[n], (operations or {}).get(n, "overwrite")) for n in self.parents]
        self.metadata = metadata(*lineage, current=len(states))

    def difference(self, older, newer):
        sides = [_sizes(self.states[each]) for each in (older, newer)]
        pairs = (sides, sides[::-1])
        return Difference(*({name: side[name] for name in side.keys() - other.keys()} for side, other in pairs), True)

    def changed(self, older, newer):
        return self.states[older], self.states[newer]

    def plan(self, snapshot_id):
        return self.states[snapshot_id]


def _file(text, older, number):
    name, *deletes = text.split("+")
    location, _, given = name.partition("@")
    return File(location, frozenset(deletes), int(given) if given else older.get(location, number))


def _sizes(state):
    """The sizes of the data files of a state and of their delete files."""
    return {name: 1 for file in state for name in (file.location, *file.deletes)}
