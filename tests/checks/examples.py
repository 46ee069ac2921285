"""Examples that hypothesis draws for a check which takes long: a few by default, with ICECDC_SEED choosing which."""

import os
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

SEED = int(os.environ.get("ICECDC_SEED", "20261121"))
QUIET = {"deadline": None, "database": None, "print_blob": True, "suppress_health_check": list(HealthCheck)}


def for_examples(check: Callable[..., object], number: int, /, *more: Phase, **drawn: SearchStrategy[Any]) -> None:
    """Check so many examples. Of few, the first is left out: it is the simplest there is, whatever the seed."""
    left_out = [] if number > 5 else [1]

    @seed(SEED)
    @settings(max_examples=number + len(left_out), phases=[Phase.generate, *more], **QUIET)
    @given(**drawn)
    def run(**example: Any) -> None:
        if left_out:
            left_out.pop()
        else:
            check(**example)

    run()
