"""Every order of steps of ingests and replays of dead letters into one table, each killed at any step.

By default two runs, with ICECDC_MODEL=whole three. Afterwards one more ingest and one more replay must leave every
record exactly once: as a row, or as a dead letter.
"""

import os
from collections import deque
from typing import NamedTuple

import pytest

# What becomes of a record: too narrow a column, a check that holds its batch, or nothing that anybody mends.
WORLDS = [("narrow", "good"), ("narrow", "never"), ("held", "narrow")]
WHOLE = os.environ.get("ICECDC_MODEL", "") == "whole"
DOUBTFUL = -1000
MUTANTS = {
    "dead letters after the snapshot": "lost",
    "a batch is published whatever its check finds": "held rows",
    "no compare-and-swap": "twice",
    "dead letters that are judged again stay": "twice",
    "a replay takes what no table has read past": "twice",
    "what fails again keeps its claim": "lost",
    "a replay removes nothing that was written": "twice",
    "a replay with an older log overlooks claims": "twice",
    "a replay does not begin with a commit": "twice",
    "a replay begins with a property alone": "twice",
}


class Run(NamedTuple):
    """What a run knows; it is lost when the run is killed."""

    number: int
    is_replay: bool
    step: str = "plan"
    start: int = 0  # of the batch; of a replay, the offset below which its table has judged all records
    end: int = 0
    judged: int = 0
    is_again: bool = False
    version: int = 0  # of the dead letters
    head: int = 0
    allowed: int = 0
    known: int = 0
    took: int = 0
    records: tuple[int, ...] = ()
    accepted: tuple[int, ...] = ()
    rejected: tuple[int, ...] = ()


class World(NamedTuple):
    kinds: tuple[str, ...]
    rows: tuple[int, ...]
    letters: tuple[int | None, ...]  # of each record: none, or who claims it (0: nobody, -n: run n rejected it again)
    mended: frozenset[str] = frozenset()
    head: int = 0
    offset: int = 0
    allowed: int = 0  # the replay whose claim the table takes
    took: int = 0  # the last claim that it took
    version: int = 0
    judged: int = 0
    logged: int = 0
    behind: int | None = None
    runs: tuple[Run, ...] = ()
    started: int = 0


def judge(world, records):
    rejected = [
        r for r in records if world.kinds[r] == "never" or (world.kinds[r] == "narrow" and "narrow" not in world.mended)
    ]
    return tuple(r for r in records if r not in rejected), tuple(rejected)


def with_letters(world, **changes):
    letters = tuple(changes["letters"].get(r, old) for r, old in enumerate(world.letters))
    return world._replace(letters=letters, version=world.version + (letters != world.letters))


def advance(world, run, mutant):
    """Do the run's next step; returns the world and the run, or no run if it has ended."""
    go = lambda step, **known: run._replace(step=step, **known)  # noqa: E731
    if run.step == "plan":
        start = world.logged if world.behind is None else world.behind
        if run.is_replay:
            start = len(world.kinds) if mutant == "a replay takes what no table has read past" else start
            return world, go("look", start=start)
        return world, go("stage", start=start, end=len(world.kinds), judged=max(world.logged, world.judged))
    if run.step == "look":
        return world, go(
            "begin" if mutant != "a replay does not begin with a commit" else "claim", version=world.version
        )
    if run.step == "begin":
        return world._replace(allowed=run.number), go("fence")
    if run.step == "fence":
        moved = mutant != "a replay begins with a property alone"
        return world._replace(head=world.head + moved), go("claim", took=world.took)
    if run.step == "claim":
        if run.version != world.version:
            return world, go("look")
        found = {r: owner for r, owner in enumerate(world.letters) if owner not in (None, DOUBTFUL)}
        is_open = lambda r: r < run.start or (found[r] > 0 and mutant != "a replay with an older log overlooks claims")  # noqa: E731
        mine = {r: run.number for r in found if is_open(r)}
        if mutant != "a replay removes nothing that was written":
            mine |= {r: None for r in mine if run.took and world.letters[r] == run.took}
        claimed = with_letters(world, letters=mine)
        return claimed, go("stage", records=tuple(r for r, owner in mine.items() if owner))
    if run.step == "stage":
        if not run.is_replay and world.offset >= run.end:
            return world, go("log", known=run.end)
        records = run.records if run.is_replay else range(world.offset, run.end)
        accepted, rejected = judge(world, records)
        staged = go(
            "check", head=world.head, known=world.offset, allowed=world.allowed, accepted=accepted, rejected=rejected
        )
        return world, staged
    if run.step == "check":
        fails = any(world.kinds[r] == "held" for r in run.accepted) and "held" not in world.mended
        if fails and mutant != "a batch is published whatever its check finds":
            return world, None if run.is_replay else go("log", known=max(run.start, run.known))
        is_first = not run.is_again and (run.is_replay or run.start >= run.judged)
        return world, go("reject" if is_first else "forget")
    if run.step == "forget":
        again = {r: run.number for r, owner in enumerate(world.letters) if owner == -run.number}
        if not run.is_replay:
            again = {r: DOUBTFUL for r in run.accepted if world.letters[r] is not None}
        return with_letters(world, letters={} if mutant == "dead letters that are judged again stay" else again), go(
            "reject"
        )
    if run.step == "reject":
        if run.is_replay:
            mine = {r: -run.number for r in run.rejected if world.letters[r] == run.number}
            return with_letters(world, letters={} if mutant == "what fails again keeps its claim" else mine), go(
                "publish"
            )
        if mutant == "dead letters after the snapshot" and world.offset < run.end:
            return world, go("publish")
        new = {r: 0 for r in run.rejected if world.letters[r] is None}
        ends = go("log", known=run.end) if mutant == "dead letters after the snapshot" else go("publish")
        return with_letters(world, letters=new)._replace(
            judged=max(world.judged, run.end) if new else world.judged
        ), ends
    if run.step == "publish":
        if world.head != run.head and mutant != "no compare-and-swap":
            return world, go("stage", is_again=True)
        # The properties are those that were read with the head.
        if run.is_replay and run.allowed != run.number and mutant != "a replay does not begin with a commit":
            return world, None
        rows = tuple(count + (r in run.accepted) for r, count in enumerate(world.rows))
        world = world._replace(rows=rows, head=world.head + 1)
        if run.is_replay:
            return world._replace(took=run.number), go("remove")
        world = world._replace(offset=max(world.offset, run.end))
        return world, go("reject" if mutant == "dead letters after the snapshot" else "log", known=run.end)
    if run.step == "remove":
        return with_letters(
            world, letters={r: None for r, owner in enumerate(world.letters) if owner == run.number}
        ), None
    behind = run.known if run.known < run.end else None
    return world._replace(logged=max(world.logged, run.end), behind=behind), None


def next_worlds(world, mutant, runs):
    # A column that becomes wider while two copies judge a batch is admitted.
    is_judging = any(not each.is_replay for each in world.runs)
    for kind in ({"held"} if is_judging else {"narrow", "held"}) & {*world.kinds} - world.mended:
        yield world._replace(mended=world.mended | {kind})
    if world.started < runs and len(world.runs) < 2:
        for is_replay in (False, True):
            run = Run(world.started + 1, is_replay)
            yield world._replace(runs=(*world.runs, run), started=world.started + 1)
    for run in world.runs:
        others = tuple(each for each in world.runs if each is not run)
        yield world._replace(runs=others)  # killed
        after, known = advance(world, run, mutant)
        yield after._replace(runs=tuple(sorted((*others, known))) if known else others)


def what_is_wrong(world, mutant):
    if max(world.rows) > 1:
        return "twice"
    if "held" not in world.mended and any(world.rows[r] for r, kind in enumerate(world.kinds) if kind == "held"):
        return "held rows"
    if world.runs:
        return ""
    world = world._replace(mended=frozenset(("narrow", "held")))
    for number, is_replay in ((98, False), (99, True)):
        run = Run(number, is_replay)
        while run:
            world, run = advance(world, run, mutant)
    for rows, letter, kind in zip(world.rows, world.letters, world.kinds, strict=True):
        if rows > 1 or (rows and letter not in (None, DOUBTFUL)):
            return "twice"
        if (letter is None and not rows) or (letter is not None and letter != DOUBTFUL and kind != "never"):
            return "lost"
    return ""


def explore(kinds, mutant="", runs=2):
    """Return the first thing that is wrong in any world, and how many worlds there are."""
    first = World(kinds, (0,) * len(kinds), (None,) * len(kinds))
    seen, waiting = {first}, deque([first])
    while waiting:
        world = waiting.popleft()  # the shortest way first: in depth, the order of a set decides how long it takes
        if wrong := what_is_wrong(world, mutant):
            return wrong, len(seen)
        new = {*next_worlds(world, mutant, runs)} - seen
        seen |= new
        waiting += new
    return "", len(seen)


@pytest.mark.parametrize("kinds", WORLDS, ids=" and ".join)
def it_keeps_every_record_once_in_every_order_of_steps(kinds):
    wrong, worlds = explore(kinds, runs=3 if WHOLE else 2)
    print(f"{worlds:,} worlds")
    assert wrong == ""


@pytest.mark.parametrize("mutant", MUTANTS)
def it_finds_what_is_wrong_with_another_protocol(mutant):
    runs = 3 if "older log" in mutant or "property alone" in mutant else 2
    assert any(explore(kinds, mutant, runs)[0] == MUTANTS[mutant] for kinds in WORLDS)
