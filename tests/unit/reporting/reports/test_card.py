"""The card of a report: the state that it shows, what came out, and what to run next."""

import re
from dataclasses import replace

import pytest

from icecdc_core.errors import HistoryGapError, LostOffsetsError, SchemaChangeError
from icecdc_core.ingest.report import IngestReport
from icecdc_core.reporting.card import failure_card, moment
from icecdc_core.reporting.exit_states import failure_report
from icecdc_core.reporting.reports import ManyReport, RunReport, ValidationReport, report_html, write_page
from icecdc_core.reporting.tables import NotebookFrame

SYNC = RunReport("sync", "lake.ns.t", "t", strategy="diff", snapshots=6, upserts=2551, deletes=8255, run_id="r1")
SYNC = replace(SYNC, carryovers_removed=700_000, rows_rewritten=1_413_002, lag_snapshots=6, lag_seconds=34.0)
IDLE = RunReport("sync", "lake.ns.t", "t", strategy="none")
EQUAL = ValidationReport(ok=True, source_rows=9, index_documents=9, table="lake.ns.t", index="t")
FACTS = {"job": "sync", "table": "lake.ns.t", "index": "t", "run_id": "r1", "lag_snapshots": 3, "lag_seconds": 7200.0}


def failed(error, **facts):
    return failure_report(error, {**FACTS, **facts})


class DescribeTheState:
    @pytest.mark.parametrize(
        ("report", "word", "job"),
        [
            (SYNC, "in sync", "validate"),
            (replace(SYNC, kind="export"), "in sync", "sync"),
            (replace(SYNC, dry_run=True), "behind", "sync"),
            (replace(SYNC, rejected=3), "behind", "replay"),
            (IDLE, "nothing to do", "validate"),
            (replace(IDLE, dry_run=True), "nothing to do", "validate"),
            (EQUAL, "in sync", "sync"),
            (replace(EQUAL, ok=False, stale=1), "differs", "repair"),
            (replace(EQUAL, ok=False, missing=1, snapshot_id=7, position_snapshot_id=6), "behind", "sync"),
            (replace(EQUAL, ok=False, stale=1, nested_snapshots={"l": 2}, position_nested_snapshots={"l": 1}), "behind",
                "sync"),
            (RunReport("replay", "lake.ns.t", "t", strategy="replay", upserts=2), "done", "validate"),
            (RunReport("replay", "lake.ns.t", "t", strategy="replay", rejected=2), "behind", "validate"),
            (IngestReport("j", records=5), "in sync", "ingest"),
            (IngestReport("j"), "nothing to do", "ingest"),
            (IngestReport("j", records=5, behind=["lake.ns.t"]), "behind", "ingest"),
            (ManyReport({"t": SYNC}), "done", ""),
            (ManyReport({"t": SYNC, "u": failed(HistoryGapError("x"))}), "failed", ""),
        ],
    )  # fmt: skip
    def it_is_a_word_and_what_to_run_next(self, report, word, job):
        card = report.card()
        assert (card.word, card.command.removeprefix("icecdc ").partition(" ")[0]) == (word, job)


class DescribeAFailure:
    def it_says_what_since_when_whether_data_is_at_risk_and_what_to_do(self):
        report = failed(HistoryGapError("It is gone", remedy="export"), seconds=3.21)
        card, facts = failure_card(report), dict(failure_card(report).facts)
        assert (card.word, card.title) == ("failed", "sync of t")
        assert card.command == "icecdc export --table lake.ns.t --index t"
        assert card.what == "HistoryGapError: It is gone. (exit code 4)"
        assert facts["Since"].endswith(report["behind_since"][:10] + " " + report["behind_since"][11:19] + " UTC")
        assert (facts["Data at risk"][:3], facts["What to do"]) == ("No.", "export")
        assert "after 3.2 s" in facts["Failed"]

    def it_asks_for_no_export_where_a_parameter_may_be_wrong_and_does_not_call_lost_records_safe(self):
        assert failure_card(failed(SchemaChangeError("x"))).command.startswith("icecdc setup ")
        lost = failure_card(failed(LostOffsetsError("x"), job="ingest"))
        assert not dict(lost.facts)["Data at risk"].startswith("No")
        assert "FAILED" in report_html(failure_report(ValueError("x"), {}))  # it needs no table


def it_makes_a_page_with_all_values_that_escapes_texts_and_fetches_nothing(tmp_path):
    t, u = replace(SYNC, index="<b>", notes=["<script>"]), failed(HistoryGapError("<i>"))
    page = write_page(ManyReport({"t": t, "u": u}), str(tmp_path / "page.html")).read_text()
    assert "&quot;carryovers_removed&quot;: 700000" in page
    assert [text for text in ("<b>,", "<script>", "<i>") if text in page] == []
    assert re.findall(r"(?:src|href)=|url\(|@import", page) == []
    assert page.count("Data at risk") == 1

    shown = [moment(text) for text in ("2026-11-26T05:03:05+00:00", "yesterday", "")]
    assert shown == ["2026-11-26 05:03:05 UTC", "yesterday", ""]


def it_shows_every_value_and_escapes_it():
    rows = {"id": [8924558786060583479, 7], "text": ["<delete>" + "x" * 200, None], "seconds": [float("nan"), 1.5]}
    html = NotebookFrame(rows)._repr_html_()
    expected = ("8924558786060583479", "&lt;delete&gt;" + "x" * 200, ">1.5<")
    assert ([each for each in expected if each not in html], "None" in html or "nan" in html.lower()) == ([], False)
