"""A table as lists of its files, written as texts; without Spark."""

from collections import Counter
from typing import NamedTuple

from icecdc_core.table.iceberg_table import CommitFiles
from tests.table_metadata import metadata


class File(NamedTuple):
    location: str
    deletes: frozenset[str] = frozenset()
    sequence_number: int = 1
    has_row_ids: bool = False
    size: int = 1


class Table:
    name = "lake.ns.t"

    def __init__(self, marks_deletes=True):
        self.marks_deletes = marks_deletes

    def locations(self, files):
        return [file.location for file in files]

    def delete_digests(self, files):
        return [",".join(sorted(file.deletes)) for file in files]

    def sequence_numbers(self, files):
        return [file.sequence_number for file in files]

    def sizes(self, files):
        return [file.size for file in files]

    def row_counts(self, files):
        return [10] * len(files)

    def have_row_ids(self, files):
        return self.know_row_ids(files)

    def know_row_ids(self, files):
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
    has_row_lineage = False

    def __init__(self, *states, parents=None, operations=None):
        super().__init__()
        self.parents = {n: (parents or {}).get(n, n - 1 or None) for n in range(1, len(states) + 1)}
        self.states = {None: []}
        self.planned, self.read_snapshots = [], set()
        for number, text in enumerate(states, 1):
            older = {file.location: file.sequence_number for file in self.states.get(self.parents[number], [])}
            self.states[number] = [_file(part, older, number) for part in text.split()]
        lineage = [(n, self.parents[n], (operations or {}).get(n, "overwrite")) for n in self.parents]
        self.metadata = metadata(*lineage, current=len(states))

    def commit_files(self, snapshot_id):
        before, after = self.states[self.parents[snapshot_id]], self.states[snapshot_id]
        added, removed = _beyond(after, before), _beyond(before, after)
        old, new = _deletes(before), _deletes(after)
        more, fewer = new.keys() - old.keys(), old.keys() - new.keys()
        return CommitFiles(
            {file.location: 1 for file in added},
            {file.location: 1 for file in removed},
            dict.fromkeys(more, 1),
            dict.fromkeys(fewer, 1),
            frozenset(new[name] for name in more if name[0] != "*")
            | {old[name] for name in fewer if name[0] not in "*?"},
            any(name[0] == "*" for name in more),
            any(name[0] in "*?" for name in fewer),
            added,
            removed,
        )

    def plan(self, snapshot_id, locations=None, deletes=False):
        self.planned.append((snapshot_id, None if locations is None else " ".join(sorted(locations))))
        return [
            file
            for file in self.states[snapshot_id]
            if locations is None or file.location in locations or (deletes and file.deletes)
        ]

    def targeted_deletes(self, snapshot_id, locations, places=()):
        deletes = _deletes(self.states[snapshot_id])
        if not locations and not places:
            return {}, set()
        if any(name[0] == "*" for name in deletes):
            return None
        found = {name: target for name, target in deletes.items() if target in locations or name in places}
        return found, set(found.values())

    def data_files_at(self, lists, locations):
        return [file for each in lists for file in each if file.location in locations]

    def tasks_of(self, data_files, deletes):
        return [
            file._replace(deletes=frozenset(name for name, target in deletes.items() if target == file.location))
            for file in data_files
        ]


def _file(text, older, number):
    name, *deletes = text.split("+")
    location, _, given = name.partition("@")
    return File(location, frozenset(deletes), int(given) if given else older.get(location, number))


def _beyond(some, others):
    """The data files of a state that another one does not have, or not so often; without their deletes."""
    left = Counter(file.location for file in others)
    found = []
    for file in some:
        left[file.location] -= 1
        if left[file.location] < 0:
            found.append(file._replace(deletes=frozenset()))
    return found


def _deletes(state):
    """The delete files of a state, with a data file that each applies to."""
    return {name: file.location for file in state for name in file.deletes}
