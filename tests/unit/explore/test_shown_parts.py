"""What the parts show when there is something to show, and when there is not."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from icecdc_core.errors import DuplicateIdentifierError
from icecdc_core.explore import report
from icecdc_core.explore.config import ExploreConfig
from icecdc_core.explore.differences import Differences
from icecdc_core.explore.documents import DocumentView, Event, History, IndexedDocument
from icecdc_core.explore.queries import QueryResult
from icecdc_core.explore.report import NextSync
from icecdc_core.explore.rows import RowChange
from icecdc_core.explore.time_line import TimeLine
from icecdc_core.reporting.reports import RunReport

BEFORE, AFTER = {"id": 1, "name": "old", "rest": "same"}, {"id": 1, "name": "new", "rest": "same"}
UPDATE = RowChange("1", BEFORE, AFTER)
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def run_report(**fields):
    return RunReport(**{"kind": "sync", "table": "lake.ns.t", "index": "t", "strategy": "diff", **fields})


class DescribeDifferences:
    def it_shows_both_values_of_a_changed_field_and_the_changed_fields_first(self):
        html = Differences(11, 12, updates=1, sample=(UPDATE,), notes=("A note.",))._repr_html_()
        assert "From snapshot 11 to snapshot 12. A note." in html
        assert "<s>old</s> → new" in html
        assert html.index(">name<") < html.index(">id<")

    @pytest.mark.parametrize(
        ("differences", "expected"),
        [
            (Differences(notes=("The table has no snapshot yet.",)), "The table has no snapshot yet."),
            (Differences(11, 11), "No changes."),
            (Differences(11, 12, carryovers_removed=5), "No changes. 5 rewritten rows are the same."),
        ],
    )
    def it_says_so_if_nothing_changed(self, differences, expected):
        html = differences._repr_html_()
        assert expected in html
        assert "<table>" not in html

    def it_has_an_updated_document_as_the_example(self):
        inserted, deleted = RowChange("2", None, AFTER), RowChange("3", BEFORE, None)
        assert Differences(sample=(inserted, UPDATE, deleted)).example_id == "1"
        assert Differences(sample=(deleted,)).example_id == "3"
        assert Differences().example_id == ""

    def it_has_no_example_without_an_id(self):
        nameless = RowChange("", BEFORE, AFTER)
        assert Differences(sample=(nameless, RowChange("2", None, AFTER))).example_id == "2"
        assert Differences(sample=(nameless, UPDATE)).example_id == "1"


class DescribeTheNextSync:
    @pytest.mark.parametrize(
        ("shown", "expected"),
        [
            (NextSync(run_report(strategy="none")), "Nothing: the index is up to date."),
            (NextSync(run_report(strategy="export", upserts=1234)), "The next sync would export the table: 1,234 doc"),
            (
                NextSync(run_report(snapshots=3, upserts=5, deletes=2, carryovers_removed=9)),
                "The next sync would apply 3 snapshots: 5 upserts and 2 deletes. 9 rewritten rows are the same",
            ),
            (
                NextSync(None, "It is gone. Remedy: export", "history_gap"),
                "The next sync would fail: It is gone. Remedy",
            ),
        ],
    )
    def it_is_a_sentence(self, shown, expected):
        assert shown.line.startswith(expected)
        assert expected in shown._repr_html_()

    def it_has_no_value_of_a_row_in_the_report(self, monkeypatch):
        def fails(*_):
            raise DuplicateIdentifierError("2 rows share jane", remedy="remove one")

        monkeypatch.setattr(report, "sync_changes", fails)
        config = ExploreConfig(table="lake.ns.t", opensearch_url="http://search:9200")
        found = report.dry_run_next_sync(SimpleNamespace(spark=None, config=config))
        assert "jane" in found.line
        assert (found.to_dict()["state"], "jane" in found.to_dict()["problem"]) == ("data", False)


class DescribeADocument:
    def it_marks_the_fields_in_which_both_sides_differ(self):
        indexed = IndexedDocument(BEFORE, 7, "Its version in the index is 7.")
        history = History(
            (Event(12, NOON, "overwrite", UPDATE), Event(11, NOON, "append", RowChange("1", None, BEFORE))), 2, 3
        )
        html = DocumentView("1", indexed, (AFTER,), False, "They differ.", history)._repr_html_()
        assert html.count("rgba(42, 157, 143") == 3  # the row's name, and both cells of the insert
        assert "History: 2 snapshots, 3 of their changed files read" in html
        assert "id: 1, name: old, rest: same" in html
        assert "not known" not in html

    def it_says_that_its_history_is_not_complete(self):
        html = DocumentView("1", history=History(snapshots=25, is_complete=False))._repr_html_()
        assert "No snapshot changed it (25 snapshots, 0 of their changed files read)." in html
        assert "What happened before them is not known" in html

    def it_says_why_it_has_no_history(self):
        html = DocumentView("1", history=History(problem="More than 10,000 rows changed."))._repr_html_()
        assert "More than 10,000 rows changed." in html
        assert "No snapshot changed it" not in html

    def it_has_no_values_in_the_report(self):
        found = DocumentView("1", IndexedDocument(BEFORE, 7), (AFTER,), False)
        expected = {"version": 7, "in_table": True, "agrees": False, "changes": 0, "files_read": 0}
        assert found.to_dict() == {"document_id": "1", **expected}


class DescribeAQueryResult:
    def it_shows_hits_the_count_and_the_time(self):
        result = QueryResult({"match_all": {}}, 1234, 5, 0.02, (("1", 1.0, BEFORE),), (("name", '{"term": {}}'),))
        expected = ["1,234 hits in 5 ms", "the first 1", "match_all", "Queries to try", "{&quot;term&quot;: {}}"]
        assert [part for part in expected if part not in result._repr_html_()] == []
        assert list(result.table()["_id"]) == ["1"]

    def it_says_why_there_is_no_answer(self):
        assert QueryResult({}, problem="There is no index yet.")._repr_html_() == "<p>There is no index yet.</p>"


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (TimeLine((), 3, ("The index is up to date.",)), "3 snapshots. The index is up to date."),
        (Differences(11, 12, 1, 2, 3, 4), "1 inserts, 2 updates, 3 deletes, 4 carryovers removed."),
        (DocumentView("1", verdict="They differ."), "1: They differ."),
        (QueryResult({}, 5, 3), "5 hits in 3 ms"),
        (NextSync(run_report(strategy="none")), "Nothing: the index is up to date."),
    ],
)
def it_is_one_line_where_there_is_no_html(part, expected):
    assert repr(part) == expected
