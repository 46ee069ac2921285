"""Why a run failed, without values of rows and secrets."""

import pytest

from icecdc_core.errors import CatalogError, ConfigError, DuplicateIdentifierError, IcecdcError, SchemaChangeError
from icecdc_core.reporting.exit_states import reason_without_values


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
