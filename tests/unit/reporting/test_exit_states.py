"""Every error has a state, every state a code; reasons have no values of rows and no secrets."""

import inspect

import pytest

from icecdc_core import errors
from icecdc_core.errors import CatalogError, ConfigError, DuplicateIdentifierError, IcecdcError, SchemaChangeError
from icecdc_core.reporting.exit_states import EXIT_STATES, reason_without_values, state_of


def it_knows_the_state_of_every_error_and_gives_each_state_a_code_of_its_own():
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, IcecdcError)]
    assert [kind for kind in kinds if state_of(kind("made by the test")) == "failed"] == [IcecdcError]
    for error, state in (
        *((None, "ok"), (errors.OpenSearchUnreachableError("x"), "retry"), (ValueError("x"), "failed")),
        *((errors.HiddenHistoryError("x"), "reexport"), (errors.TableLockedError("x"), "locked")),
    ):
        assert state_of(error) == state
    codes = {state: each.code for state, each in EXIT_STATES.items()}
    assert (len({*codes.values()}), codes["ok"], codes["failed"]) == (11, 0, 1)


class DescribeTheReason:
    def it_has_the_class_what_it_means_and_the_remedy(self):
        error = DuplicateIdentifierError("2 rows share {'email': 'jane'}", value=["jane"], remedy="remove one")
        expected = "DuplicateIdentifierError: rows or documents cannot be indexed; the log has the details"
        assert reason_without_values(error) == f"{expected}. Remedy: remove one"
        expected = "KeyError: an unexpected error; the log has the details. Remedy: see the log and please report it"
        assert reason_without_values(KeyError("jane")) == expected

    @pytest.mark.parametrize("kind", [ConfigError, CatalogError, SchemaChangeError, IcecdcError])
    def it_repeats_no_value(self, kind):
        error = kind("row_filter fails for the value 'jane': select=[\"name <> 'jane'\"]", subject="row_filter")
        assert "jane" not in reason_without_values(error)

    def it_masks_secrets(self):
        error = CatalogError("refused", remedy="look at jdbc:x?password=hunter2")
        assert "hunter2" not in reason_without_values(error)
