"""What the parts show when there is something to show, and when there is not."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from icecdc_core.errors import DuplicateIdentifierError
from icecdc_core.explore import report
from icecdc_core.explore.config import ExploreConfig
from icecdc_core.explore.differences import Differences, RowChange, value_text
from icecdc_core.explore.documents import DocumentView, QueryResult
from icecdc_core.explore.view import TimeLine

BEFORE, AFTER = {"id": 1, "name": "old", "rest": "same"}, {"id": 1, "name": "new", "rest": "same"}
UPDATE, INSERT = RowChange("1", BEFORE, AFTER), RowChange("2", None, AFTER)
SNAPSHOT = {"snapshot_id": 12, "committed": datetime(2026, 1, 31, 12, tzinfo=UTC), "operation": "overwrite"}


class DescribeAChange:
    @pytest.mark.parametrize(
        ("change", "kind", "text"),
        [
            (UPDATE, "update", "old → new"),
            (INSERT, "insert", "new"),
            (RowChange("3", BEFORE, None), "delete", "old"),
        ],
    )
    def it_marks_the_fields_that_differ(self, change, kind, text):
        assert (change.kind, change.text("name")) == (kind, text)

    @pytest.mark.parametrize(
        ("value", "expected"),
        [(None, "null"), ("x", "x"), ({"a": [1]}, '{"a": [1]}'), (1.5, "1.5"), ("y" * 200, "y" * 119 + "…")],
    )
    def it_has_values_on_one_line(self, value, expected):
        assert value_text(value) == expected


class DescribeDifferences:
    @pytest.mark.parametrize(
        ("differences", "expected"),
        [
            (Differences(notes=("The table has no snapshot yet.",)), "The table has no snapshot yet."),
            (Differences(11, 12, carryovers_removed=5), "No changes. 5 rewritten rows are the same."),
        ],
    )
    def it_says_so_if_nothing_changed(self, differences, expected):
        html = differences._repr_html_()
        assert (expected in html, "<table>" in html) == (True, False)


class DescribeTheReport:
    def it_has_no_value_of_a_row_when_the_dry_run_fails(self, monkeypatch):
        def fails(*_):
            raise DuplicateIdentifierError("2 rows share jane", remedy="remove one")

        monkeypatch.setattr(report, "sync_changes", fails)
        config = ExploreConfig(table="lake.ns.t", opensearch_url="http://search:9200")
        source = SimpleNamespace(head=12, nested={})
        view = SimpleNamespace(spark=None, config=config, source=source, position=None, position_snapshot_id=None)
        found = report.dry_run_next_sync(view)
        parts = TimeLine((), 0), found, Differences(), DocumentView(), QueryResult({})
        next_sync = report.explore_report(view, *parts)["next_sync"]
        assert ("jane" in str(found), next_sync["state"], "jane" in str(next_sync)) == (True, "data", False)
