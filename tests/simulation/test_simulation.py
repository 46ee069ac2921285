"""The real jobs in a simulation, see docs/proof.md.

By default a sample. ``ICECDC_SCHEDULES`` and ``ICECDC_SEED`` choose others; a single schedule is printed step by step.
"""

import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest

from tests.simulation.mutants import MUTANTS
from tests.simulation.simulated_jobs import simulated
from tests.simulation.world import World

SCHEDULES = int(os.environ.get("ICECDC_SCHEDULES", "0"))
SEED = int(os.environ.get("ICECDC_SEED", "1"))
SAMPLE = 200
PART = 250
"""Schedules that a process plays before it reports."""


def play(first: int, count: int, mutant: str = "") -> tuple[list[tuple[int, str, str]], Counter[str]]:
    """Play schedules, with a mutant until one is wrong; return what is wrong with which, and how their runs ended."""
    wrong: list[tuple[int, str, str]] = []
    outcomes: Counter[str] = Counter()
    changed = next((each for each in MUTANTS if each.name == mutant), None)
    with simulated(), changed.applied() if changed else nullcontext():
        for seed in range(first, first + count):
            world = World(seed)
            try:
                world.run()
            except Exception as error:
                wrong.append((seed, getattr(error, "invariant", type(error).__name__), str(error)))
            outcomes.update(world.outcomes)
            if wrong and changed:
                break
    return wrong, outcomes


def trace(seed: int) -> list[str]:
    lines: list[str] = []
    world = World(seed, lines.append)
    with simulated():
        try:
            world.run()
        except AssertionError as error:
            lines.append(str(error))
    return lines


@pytest.fixture(scope="module")
def in_parts():
    """Play many schedules in several processes, a part at a time; yields the result of each part in order."""
    pool = ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn"))

    def play_parts(work: Callable[[int, int], Any], first: int, count: int) -> Iterator[Any]:
        if count <= SAMPLE:
            yield work(first, count)
            return
        parts = range(first, first + count, PART)
        yield from pool.map(work, parts, [min(PART, first + count - part) for part in parts])

    yield play_parts
    pool.shutdown(cancel_futures=True)


class DescribeTheSimulation:
    def it_finds_nothing_wrong_in_any_schedule(self, in_parts):
        count, begin = SCHEDULES or 100, time.perf_counter()
        wrong: list[tuple[int, str, str]] = []
        outcomes: Counter[str] = Counter()
        if count == 1:
            print("\n".join(trace(SEED)))
        for found, ended in in_parts(play, SEED, count):
            wrong += found
            outcomes += ended
            print(*found, sep="\n", end="\n" if found else "", flush=True)
        seconds = time.perf_counter() - begin
        print(f"{count:,} schedules in {seconds:.0f} s on {os.cpu_count()} processors. Their runs:")
        print(*(f"  {number:,} {outcome}" for outcome, number in outcomes.most_common()), sep="\n", flush=True)
        assert wrong == []

    def it_does_the_same_again_with_the_same_seed(self):
        assert trace(SEED) == trace(SEED)


def it_finds_the_code_of_each_mutant():
    for mutant in MUTANTS:
        with mutant.applied():
            pass


# All of them, or those that few schedules show.
THOSE = [each for each in MUTANTS if SCHEDULES > SAMPLE or each.schedules <= SAMPLE]


@pytest.mark.long
@pytest.mark.parametrize("mutant", THOSE, ids=lambda mutant: mutant.name)
def it_notices_wrong_code(mutant, in_parts):
    parts = in_parts(partial(play, mutant=mutant.name), 1, mutant.schedules)
    seed, invariant, _ = next((found[0] for found, _ in parts if found), (0, "none", ""))
    print(f"{mutant.name}: {invariant} in schedule {seed}", flush=True)
    assert invariant in mutant.invariants
