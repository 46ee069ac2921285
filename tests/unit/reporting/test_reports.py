"""Reports as data, as tables and as cards; the summary of many indexes; how a run ended, and why, without values."""

import inspect
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from icecdc_core import errors
from icecdc_core.errors import (
    CatalogError,
    ConfigError,
    DuplicateIdentifierError,
    HistoryGapError,
    IcecdcError,
    LostOffsetsError,
    SchemaChangeError,
)
from icecdc_core.opensearch.counts import COUNTERS
from icecdc_core.reporting.card import failure_card, moment
from icecdc_core.reporting.exit_states import EXIT_STATES, failure_report, reason_without_values, state_of
from icecdc_core.reporting.reports import (
    WORST_FIRST,
    ManyReport,
    RunReport,
    check_report_path,
    report_html,
    write_page,
    write_report,
)
from icecdc_core.reporting.tables import NotebookFrame

SYNC = RunReport("sync", "lake.ns.t", "t", 3051729675574597004, 8924558786060583479, strategy="diff", snapshots=6)
SYNC = replace(SYNC, upserts=2551, deletes=8255, carryovers_removed=700_000, rows_rewritten=1_413_002, run_id="r1")
SYNC = replace(SYNC, lag_snapshots=6, lag_seconds=34.0, stage_seconds={"plan": 0.4, "write": 4.1}, seconds=12.34)
FACTS = {"job": "sync", "table": "lake.ns.t", "index": "t", "run_id": "r1", "lag_snapshots": 3, "lag_seconds": 7200.0}


class DescribeReports:
    def it_adds_up_every_counter(self):
        ones = {name: at for at, name in enumerate(COUNTERS, 1)}
        both = replace(SYNC, **ones).then(replace(SYNC, **ones))
        assert {name: getattr(both, name) for name in COUNTERS} == {name: 2 * at for name, at in ones.items()}


class DescribeWriteReport:
    def it_writes_one_json_object_and_makes_the_folder_or_says_which_parameter_is_wrong(self, tmp_path: Path):
        path = tmp_path / "new" / "report.json"
        write_report(SYNC, str(path))
        assert json.loads(path.read_text()) == SYNC.to_dict()
        with pytest.raises(ConfigError, match="report_path"):
            write_report(SYNC, str(path / "report.json"))

    def it_is_left_alone_until_there_is_one(self, tmp_path: Path):
        old, new = tmp_path / "old.json", tmp_path / "folder" / "new.json"
        old.write_text("the last one")
        link = tmp_path / "link.json"
        link.symlink_to("nowhere.json")
        for path in (old, new, link):
            check_report_path(str(path))
        assert (link.is_symlink(), link.exists()) == (True, False)
        assert (old.read_text(), new.exists(), new.parent.is_dir()) == ("the last one", False, True)


def state_report(state):
    return {"state": state, "error": "SomeError", "message": "It broke\nin two. Remedy: correct it", "seconds": 0.5}


def it_has_the_report_of_each_index_and_the_worst_state_of_all():
    assert sorted(WORST_FIRST) == sorted(EXIT_STATES)
    for *states, worst in (["ok"], ["locked"] * 2, ["retry", "config", "config"], ["data", "failed", "failed"]):
        found = {f"t{n}": state_report(state) for n, state in enumerate(states)}
        assert ManyReport({"good": SYNC, **found}).state == worst
    shown = json.loads(ManyReport({"t": SYNC, "u": state_report("retry")}, 2.5).to_json())
    assert (shown["state"], shown["seconds"], shown["indexes"]["t"]["upserts"]) == ("retry", 2.5, 2551)
    assert (list(shown["indexes"]), shown["indexes"]["u"]["error"]) == (["t", "u"], "SomeError")
    # Those that took longest first, and in a few words what failed.
    gap = HistoryGapError("Snapshot 5 is gone", subject="snapshot", value=5, remedy="export again")
    text = ManyReport({"t": SYNC, "u": state_report("retry"), "v": failed(gap, seconds=4321.0)}).text()
    rows = [re.split("  +", row) for row in text.splitlines()[1:4]]
    assert rows == [
        ["v", "reexport", "Snapshot 5 is gone", "4,321.0", "HistoryGapError"],
        ["t", "ok", "2,551 documents written, 8,255 deleted", "12.3"],
        ["u", "retry", "It broke", "0.5", "SomeError"],
    ]


def failed(error, **facts):
    return failure_report(error, {**FACTS, **facts})


class DescribeAFailure:
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

    shown = [moment(text) for text in ("2026-11-26T06:03:05.9+01:00", "yesterday", "")]
    assert shown == ["2026-11-26 05:03:05 UTC", "yesterday", ""]


def it_shows_every_value_and_escapes_it():
    rows = {"id": [8924558786060583479, 7], "text": ["<delete>" + "x" * 200, None], "seconds": [float("nan"), 1.5]}
    html = NotebookFrame(rows)._repr_html_()
    expected = ("8924558786060583479", "&lt;delete&gt;" + "x" * 200, ">1.5<")
    assert ([each for each in expected if each not in html], "None" in html or "nan" in html.lower()) == ([], False)


def it_knows_the_state_of_every_error_and_gives_each_state_a_code_of_its_own():
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, IcecdcError)]
    assert [kind for kind in kinds if state_of(kind("made by the test")) == "failed"] == [IcecdcError]
    for error, state in (
        *((None, "ok"), (errors.OpenSearchUnreachableError("x"), "retry"), (ValueError("x"), "failed")),
        *((errors.HiddenHistoryError("x"), "reexport"), (errors.TableLockedError("x"), "locked")),
    ):
        assert state_of(error) == state
    codes = {state: each.code for state, each in EXIT_STATES.items()}
    assert (len({*codes.values()}), codes["ok"], codes["failed"]) == (14, 0, 1)


def it_gives_the_class_of_a_failure_what_it_means_and_the_remedy_and_no_value_and_no_secret():
    error = DuplicateIdentifierError("2 rows share {'email': 'jane'}", value=["jane"], remedy="remove one")
    expected = "DuplicateIdentifierError: rows or documents cannot be indexed; the log has the details"
    assert reason_without_values(error) == f"{expected}. Remedy: remove one"
    expected = "KeyError: an unexpected error; the log has the details. Remedy: see the log and please report it"
    assert reason_without_values(KeyError("jane")) == expected
    for kind in (ConfigError, CatalogError, SchemaChangeError, IcecdcError):
        error = kind("row_filter fails for the value 'jane': select=[\"name <> 'jane'\"]", subject="row_filter")
        assert "jane" not in reason_without_values(error)
    error = CatalogError("refused", remedy="look at jdbc:x?password=hunter2")
    assert "hunter2" not in reason_without_values(error)
