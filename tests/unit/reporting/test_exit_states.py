"""Every error has a state, every state a code."""

import inspect

import pytest

from icecdc_core import errors
from icecdc_core.reporting.exit_states import EXIT_STATES, state_of

ERRORS = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, errors.IcecdcError) and kind is not errors.IcecdcError
]


class DescribeStates:
    @pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
    def it_knows_every_error(self, kind):
        assert state_of(kind("made by the test")) != "failed"

    @pytest.mark.parametrize(
        ("error", "state"),
        [
            (None, "ok"),
            (errors.OpenSearchUnreachableError("x"), "retry"),
            (errors.HiddenHistoryError("x"), "reexport"),
            (errors.TableLockedError("x"), "locked"),
            (errors.IcecdcError("x"), "failed"),
            (ValueError("x"), "failed"),
        ],
    )
    def it_says_how_a_run_ended(self, error, state):
        assert state_of(error) == state

    def it_gives_every_state_a_code_of_its_own(self):
        codes = {state: each.code for state, each in EXIT_STATES.items()}
        assert (len({*codes.values()}), codes["ok"], codes["failed"]) == (11, 0, 1)
