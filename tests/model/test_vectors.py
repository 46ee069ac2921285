"""The rules for documents of several tables and for their places hold, and each of them is needed."""

from __future__ import annotations

from itertools import combinations, pairwise
from random import Random

import pytest

from tests.model.vectors import COLUMNS, SPEC, Life, Rules, assemble

FILMS = [("film", (1, 1, None, "a", "x")), ("film", (1, 2, None, "a", "x")), ("film", (2, 1, 1, "a", "x"))]
UNIVERSES = {
    "lookups": [*FILMS, ("language", (1, "x")), ("language", (1, "y")), ("language", (2, "x"))],
    "levels": [
        FILMS[0],
        FILMS[2],
        *(("scene", (1, film, "x")) for film in (1, 2)),
        ("prop", (1, "x")),
        ("prop", (1, "y")),
    ],
    "between": [
        FILMS[0],
        FILMS[2],
        *(("film_actor", (film, 1)) for film in (1, 2)),
        ("actor", (1, "x")),
        ("actor", (1, "y")),
    ],
}
"""Rows that a table may have or not: every state that they make is tried with every other one."""

MUTATIONS = (
    "DELETE images are left out",
    "INSERT images are left out",
    "only what documents show is compared",
    "one alias of a table is enough",
    "a batch has no cuts",
    "a cut is the snapshot of the root alone",
    "a batch is repeated with the current snapshots",
    "the position moves for the root alone",
    "a row that is what it was is not indexed again",
    "the place is not compared",
    "a delete has no place",
    "deletes go to the place at the position",
    "deletes and upserts have one version",
    "a delete creates no index",
)


def states_of(universe):
    for size in range(len(universe) + 1):
        for chosen in combinations(universe, size):
            films = [row[0] for table, row in chosen if table == "film"]
            if len(films) == len(set(films)):
                yield {name: tuple(row for table, row in chosen if table == name) for name in COLUMNS}


def joined_where_they_are(older, newer):
    """The roots of DELETE images in the older state, and those of INSERT images in the newer one."""
    rules, found = Rules(), set()
    for table in COLUMNS:
        for rows, state in zip(rules.images(table, older, newer), (older, newer), strict=True):
            found.update(*(rules.roots(table, row, state) for row in rows))
    return found


class DescribeAffectedRoots:
    @pytest.mark.parametrize("universe", UNIVERSES.values(), ids=UNIVERSES)
    def it_has_every_root_whose_document_differs(self, universe):
        states = list(states_of(universe))
        documents = [{row[0]: assemble(SPEC, row, state) for row in state["film"]} for state in states]
        for older, before in zip(states, documents, strict=True):
            for newer, after in zip(states, documents, strict=True):
                different = {root for root in before.keys() | after.keys() if before.get(root) != after.get(root)}
                found = Rules().affected([older, newer])
                assert different <= found == joined_where_they_are(older, newer)

    @pytest.mark.parametrize("universe", UNIVERSES.values(), ids=UNIVERSES)
    def it_finds_at_the_last_stop_what_each_stretch_would_find_at_its_own(self, universe):
        states, random = list(states_of(universe)), Random(1)
        for _ in range(500):
            stops = [random.choice(states) for _ in range(4)]
            assert Rules().affected(stops) == set().union(*(joined_where_they_are(*each) for each in pairwise(stops)))


def wrong_lives(rules, lives):
    """Return the seeds of lives that end with wrong documents."""
    for seed in range(lives):
        try:
            life = Life(rules, Random(seed))
            for _ in range(8):
                life.go_on()
            life.finish()
        except AssertionError:
            yield seed


class DescribeALifeOfTables:
    def it_ends_with_the_documents_of_the_position_in_their_places(self):
        assert list(wrong_lives(Rules(), 400)) == []

    @pytest.mark.parametrize("mutation", MUTATIONS)
    def it_does_not_if_a_rule_is_missing(self, mutation):
        assert next(wrong_lives(Rules(mutation), 1000), None) is not None
