"""Frames in a notebook: text to the left, numbers with separators, and a sentence instead of an empty table."""

from __future__ import annotations

from datetime import UTC, datetime

import pandas as pd
import pytest

from icecdc_core.reporting.tables import NotebookFrame, cell_text

CHANGES = pd.DataFrame({"snapshot_id": [8924558786060583479], "operation": ["<delete>"], "rows_removed": [8255]})


class DescribeCellText:
    @pytest.mark.parametrize(
        ("value", "column", "expected"),
        [
            (1234567, "rows_added", "1,234,567"),
            (8924558786060583479, "snapshot_id", "8924558786060583479"),
            (1234567, "offset", "1234567"),
            (12.345, "seconds", "12.3"),
            (True, "required", "yes"),
            (False, "required", ""),
            (None, "error", ""),
            (float("nan"), "rows", ""),
            (pd.NaT, "valid_through", ""),
            (datetime(2026, 1, 31, 12, tzinfo=UTC), "committed_at", "2026-01-31 12:00:00 UTC"),
            (pd.Timestamp("2026-01-31 12:00"), "committed_at", "2026-01-31 12:00:00"),
            ("plain", "operation", "plain"),
        ],
    )
    def it_reads_well(self, value, column, expected):
        assert cell_text(value, column) == expected


class DescribeNotebookFrame:
    def it_escapes_what_it_shows(self):
        assert "<delete>" not in NotebookFrame(CHANGES)._repr_html_()

    def it_is_a_sentence_if_it_is_empty(self):
        assert NotebookFrame(CHANGES.iloc[:0])._repr_html_() == "<p>There is nothing to show.</p>"
