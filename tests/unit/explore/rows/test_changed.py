"""Rows before and after: what cancels, what differs, and what a table shows of it."""

from __future__ import annotations

import pytest

from icecdc_core.explore.figures import table, value_text
from icecdc_core.explore.rows import RowChange, net_pairs
from icecdc_core.reporting.figures import Cell

A, B, C = {"id": 1, "n": "a"}, {"id": 1, "n": "b"}, {"id": 1, "n": "c"}


class DescribeNetPairs:
    @pytest.mark.parametrize(
        ("changes", "expected"),
        [
            ([], []),
            ([("INSERT", A)], [(None, A)]),
            ([("DELETE", A)], [(A, None)]),
            ([("DELETE", A), ("INSERT", B)], [(A, B)]),
            ([("INSERT", B), ("DELETE", A)], [(A, B)]),
            ([("DELETE", A), ("INSERT", A)], []),
            ([("DELETE", A), ("DELETE", A), ("INSERT", A)], [(A, None)]),
            ([("DELETE", A), ("DELETE", B), ("INSERT", C), ("INSERT", A)], [(B, C)]),
        ],
    )
    def it_cancels_equal_rows_one_for_one(self, changes, expected):
        assert list(net_pairs(changes)) == expected


class DescribeAChange:
    def it_marks_the_fields_that_differ(self):
        change = RowChange("1", {"id": 1, "n": "a", "gone": 1}, {"id": 1, "n": "b", "new": None})
        assert (change.kind, change.changed_fields) == ("update", ["n", "gone"])
        assert (change.cell("n"), change.cell("id")) == (Cell("b", "update", "a"), Cell("1"))

    @pytest.mark.parametrize(
        ("change", "kind"), [(RowChange("1", None, A), "insert"), (RowChange("1", A, None), "delete")]
    )
    def it_has_one_side_of_a_row_that_came_or_went(self, change, kind):
        assert (change.kind, change.cell("n")) == (kind, Cell("a", kind))


class DescribeATable:
    def it_escapes_every_text(self):
        html = table(("<h>",), [("<b>",), (Cell("<c>", "update", "<d>"),)])
        assert "&lt;h&gt;" in html
        assert "<s>&lt;d&gt;</s> → &lt;c&gt;" in html
        assert "<b>" not in html

    @pytest.mark.parametrize(
        ("value", "expected"),
        [(None, "null"), ("x", "x"), ({"a": [1]}, '{"a": [1]}'), (1.5, "1.5"), ("y" * 200, "y" * 119 + "…")],
    )
    def it_has_values_on_one_line(self, value, expected):
        assert value_text(value) == expected
