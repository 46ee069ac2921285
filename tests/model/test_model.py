"""TLC checks the commit protocol, see docs/proof.md.

By default a sample; ``ICECDC_MODEL=whole`` for all of it.
"""

import os
import re
from dataclasses import replace

import pytest

from tests.model.checks import ADMITTED, MUTANTS, PROOFS
from tests.model.tlc import HERE, run_tlc

WHOLE = os.environ.get("ICECDC_MODEL", "") == "whole"
SAMPLE = {"syncs", "position before write"}
CHECKS = [check for check in (*PROOFS, *ADMITTED, *MUTANTS) if WHOLE or check.name in SAMPLE]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def it_holds_in_every_state_unless_it_lacks_a_rule(check):
    # In the sample the table and the runs do less.
    smaller = check if WHOLE else replace(check, constants={**check.constants, "Commits": 1, "Batches": 2})
    violated, states = run_tlc(check if check.violated else smaller)
    print(f"{check.name}: {violated or 'holds'}; {states:,} states", flush=True)
    assert violated == check.violated


def it_tries_every_mutation_of_the_specification():
    text = (HERE / "Protocol.tla").read_text(encoding="utf-8")
    assert set(re.findall(r'Mutated\("([^"]+)"\)', text)) == {check.name for check in MUTANTS}
