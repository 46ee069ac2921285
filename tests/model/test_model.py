"""TLC checks the commit protocol, see docs/proof.md.

By default a sample; ``ICECDC_MODEL=whole`` for all of it.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace

import pytest

from tests.model.checks import ADMITTED, MUTANTS, PROOFS
from tests.model.tlc import HERE, Check, default_constants, run_tlc

WHOLE = os.environ.get("ICECDC_MODEL", "") == "whole"
SAMPLE = {
    "syncs",
    "a first export",
    "a DELETE and an INSERT of one document",
    "an old request after index.gc_deletes restores a document",
    "a batch forgets its cuts",
    "commit without lease check",
    "position before write",
    "the table is opened before the position is read",
}
# In the sample the table and the runs do less.
SMALLER = {"Commits": 1, "Batches": 2, "Exports": 1}


def smaller(check: Check) -> Check:
    fewer = {name: min(most, int(check.constants.get(name, 0))) for name, most in SMALLER.items()}
    return replace(check, constants={**check.constants, **fewer})


def those(checks: list[Check]) -> list[pytest.ParameterSet]:
    chosen = [check for check in checks if WHOLE or check.name in SAMPLE]
    if not WHOLE:
        chosen = [check if check.violated else smaller(check) for check in chosen]
    return [pytest.param(check, id=check.name) for check in chosen]


def outcome(check: Check) -> str:
    found = run_tlc(check)
    print(
        f"{check.name}: {found.violated or 'holds'}; {found.distinct:,} states ({found.generated:,} computed), "
        f"depth {found.depth}, {found.seconds:.0f} s of processor time",
        flush=True,
    )
    return found.violated


class DescribeTheProtocol:
    @pytest.mark.parametrize("check", those(PROOFS))
    def it_holds_in_every_state_that_can_be_reached(self, check):
        assert outcome(check) == ""

    @pytest.mark.parametrize("check", those(ADMITTED))
    def it_does_what_the_guarantees_admit(self, check):
        assert outcome(check) == check.violated

    @pytest.mark.parametrize("check", those(MUTANTS))
    def it_needs_each_of_its_rules(self, check):
        assert outcome(check) == check.violated


def covers(proof: Check, mutant: Check) -> bool:
    """Whether each behaviour of the mutant's bounds, without its mutation, is one that the proof has looked at."""
    constants = [{**default_constants(), **{k: str(v) for k, v in c.constants.items()}} for c in (proof, mutant)]
    return set(mutant.invariants) <= set(proof.invariants) and all(
        (int(more) >= int(given) if given.isdecimal() else set(given.split()) <= set(more.split()))
        for name, given in constants[1].items()
        for more in [constants[0][name]]
        if name != "Mutations"
    )


class DescribeTheChecks:
    @pytest.mark.parametrize("mutant", [pytest.param(each, id=each.name) for each in MUTANTS])
    def it_proves_the_protocol_with_the_bounds_of_each_mutant(self, mutant):
        assert [proof.name for proof in PROOFS if covers(proof, mutant)] != []

    def it_tries_every_mutation_of_the_specification(self):
        text = (HERE / "Protocol.tla").read_text(encoding="utf-8")
        assert set(re.findall(r'Mutated\("([^"]+)"\)', text)) == {check.name for check in MUTANTS}

    def it_has_the_bounds_that_the_documentation_names(self):
        bounds = {name: default_constants()[name] for name in ("Runs", "Commits", "Ids")}
        assert bounds == {"Runs": "{r1, r2}", "Commits": "3", "Ids": "{a, b}"}
