"""Why a run failed, without values of rows and secrets."""

from __future__ import annotations

import pytest

from icecdc_core.errors import CatalogError, ConfigError, DuplicateIdentifierError, IcecdcError, SchemaChangeError
from icecdc_core.reporting.exit_states import reason_without_values


class DescribeTheReason:
    def it_repeats_no_value_of_a_row(self):
        error = DuplicateIdentifierError("2 rows share {'email': 'jane'}", value=["jane"], remedy="remove one")
        assert reason_without_values(error) == (
            "DuplicateIdentifierError: rows or documents cannot be indexed; the log has the details. Remedy: remove one"
        )

    def it_repeats_no_unexpected_error(self):
        assert reason_without_values(KeyError("jane")) == (
            "KeyError: an unexpected error; the log has the details. Remedy: see the log and please report it"
        )

    def it_repeats_no_value_that_a_row_filter_fails_with(self):
        error = ConfigError("row_filter fails for a row: [CAST_INVALID_INPUT] The value 'jane'", subject="row_filter")
        assert "jane" not in reason_without_values(error)

    @pytest.mark.parametrize("base", [IcecdcError, CatalogError])
    def it_repeats_no_message_of_a_class_that_is_not_listed(self, base):
        new = type("NewError", (base,), {})
        assert "jane" not in reason_without_values(new("the row {'email': 'jane'}"))

    def it_repeats_no_message_of_an_unknown_error_of_an_executor(self):
        assert "jane" not in reason_without_values(IcecdcError("the row {'email': 'jane'}"))

    def it_repeats_no_expression_of_a_changed_selection(self):
        changed = SchemaChangeError("The index was built with another select: select=[\"name <> 'jane'\"]")
        assert "jane" not in reason_without_values(changed)
        assert "'age'" in reason_without_values(SchemaChangeError("The schema of 'l.n.t' changed: column 'age'"))

    def it_masks_secrets(self):
        assert "hunter2" not in reason_without_values(CatalogError("jdbc:x?password=hunter2 refused"))
