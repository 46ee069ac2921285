"""The real jobs in a simulation, see docs/proof.md.

By default a sample. ``ICECDC_SCHEDULES`` and ``ICECDC_SEED`` choose others; a single schedule is printed step by step.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

import pytest

from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.simulated_jobs import simulated
from tests.simulation.world import World

SCHEDULES = int(os.environ.get("ICECDC_SCHEDULES", "0"))
SEED = int(os.environ.get("ICECDC_SEED", "1"))
SAMPLE = 400
PART = 250
"""Schedules that a process plays before it reports."""


def play(first: int, count: int) -> tuple[list[str], Counter[str]]:
    """Play schedules; return what is wrong with them, and how their runs ended."""
    wrong, outcomes = [], Counter[str]()
    with simulated():
        for seed in range(first, first + count):
            world = World(seed)
            try:
                world.run()
            except Exception as error:
                wrong.append(f"SEED={seed}: {type(error).__name__}: {error}")
            outcomes.update(world.outcomes)
    return wrong, outcomes


def trace(seed: int) -> list[str]:
    """Play one schedule and return its steps."""
    lines: list[str] = []
    world = World(seed, lines.append)
    with simulated():
        try:
            world.run()
        except AssertionError as error:
            lines.append(str(error))
    return lines


def first_violation(mutant: Mutant) -> tuple[int, str]:
    """Play schedules until one shows that a mutant is wrong; return its number and the invariant, or 0."""
    with simulated(), mutant.applied():
        for seed in range(1, mutant.schedules + 1):
            try:
                World(seed).run()
            except AssertionError as error:
                return seed, getattr(error, "invariant", str(error))
    return 0, "none"


def those(mutants: list[Mutant]) -> list[pytest.ParameterSet]:
    """All of them, or those that few schedules show."""
    return [pytest.param(each, id=each.name) for each in mutants if SCHEDULES or each.schedules <= 200]


class DescribeTheSimulation:
    def it_finds_nothing_wrong_in_any_schedule(self):
        first, count, begin = SEED, SCHEDULES or SAMPLE, time.perf_counter()
        if count == 1:
            print("\n".join(trace(first)))
        if count <= SAMPLE:
            wrong, outcomes = play(first, count)
        else:
            wrong, outcomes = [], Counter()
            with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
                parts = [(part, min(PART, first + count - part)) for part in range(first, first + count, PART)]
                for found, ended in pool.map(play, *zip(*parts, strict=True)):
                    wrong += found
                    outcomes += ended
                    for line in found:
                        print(line, flush=True)
        seconds = time.perf_counter() - begin
        print(
            f"{count:,} schedules in {seconds:.0f} s, {count / seconds:.0f} a second",
            *outcomes.most_common(),
            sep="\n  ",
        )
        assert wrong == []

    def it_does_the_same_again_with_the_same_seed(self):
        assert trace(SEED) == trace(SEED)

    def it_lets_runs_meet_every_kind_of_trouble(self):
        wanted = {
            *("is killed at", "stalls until", "clocks jump", "the request is lost", "the answer is lost", "late: "),
            *(
                "(again)",
                "-> 429",
                "-> 503",
                "(some get 400)",
                "(some get 429)",
                "roll_back",
                "expire",
                "somebody deletes",
            ),
            *("starts over", "lost the lock", "has moved the alias", "Another run has the lock", "Another run wrote"),
        }
        seed = 0
        while wanted and seed < 1500:
            seed += 1
            steps = "\n".join(trace(seed))
            wanted = {text for text in wanted if text not in steps}
        assert wanted == set()


class DescribeMutants:
    @pytest.mark.parametrize("mutant", those(MUTANTS))
    def it_notices_wrong_code(self, mutant):
        seed, invariant = first_violation(mutant)
        print(f"{mutant.name}: {invariant} in schedule {seed}", flush=True)
        assert invariant in mutant.invariants
