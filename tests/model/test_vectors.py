"""The rule for documents of several tables holds, and each part of it is needed."""

from itertools import combinations, pairwise, product
from random import Random

import pytest

from tests.model.vectors import COLUMNS, SPEC, Rules, assemble, random_stops

FILMS = [("film", (1, 1, None, "x")), ("film", (1, 2, None, "x")), ("film", (2, 1, 1, "x"))]
UNIVERSES = {
    "lookups": [*FILMS, ("language", (1, "x")), ("language", (1, "y")), ("language", (2, "x"))],
    "levels": [FILMS[0], FILMS[2], *(("scene", (1, film, "x")) for film in (1, 2)), ("prop", (1, "x")),
        ("prop", (1, "y"))],
    "between": [FILMS[0], FILMS[2], *(("film_actor", (film, 1)) for film in (1, 2)), ("actor", (1, "x")),
        ("actor", (1, "y"))],
}  # fmt: skip
"""Rows that a table may have or not: every state that they make is tried with every other one."""

MUTATIONS = (
    "DELETE images are left out",
    "INSERT images are left out",
    "only what documents show is compared",
    "one alias of a table is enough",
    "the cuts are left out",
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


def missed(rules, stops):
    """The roots whose documents differ between two stops, and that the rules do not find."""
    documents = [{row[0]: assemble(SPEC, row, state) for row in state["film"]} for state in stops]
    roots = {root for each in documents for root in each}
    return {root for root in roots if any(each.get(root) != documents[-1].get(root) for each in documents)} - (
        rules.affected(stops)
    )


class DescribeAffectedRoots:
    @pytest.mark.parametrize("universe", UNIVERSES.values(), ids=UNIVERSES)
    def it_has_every_root_whose_document_differs(self, universe):
        states = list(states_of(universe))
        for older, newer in product(states, states):
            assert missed(Rules(), [older, newer]) == set()
            assert Rules().affected([older, newer]) == joined_where_they_are(older, newer)

    def it_finds_at_the_last_stop_what_each_stretch_finds_at_its_own(self):
        for seed in range(300):
            stops = random_stops(Random(seed))
            assert missed(Rules(), stops) == set()
            assert Rules().affected(stops) == set().union(*(joined_where_they_are(*each) for each in pairwise(stops)))

    @pytest.mark.parametrize("mutation", MUTATIONS)
    def it_misses_one_if_a_part_of_the_rule_is_missing(self, mutation):
        assert any(missed(Rules(mutation), random_stops(Random(seed))) for seed in range(300))
