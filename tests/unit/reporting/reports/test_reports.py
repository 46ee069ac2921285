"""Reports as data, tables and figures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text

from icecdc_core.errors import ConfigError
from icecdc_core.opensearch.counts import COUNTERS, Counts
from icecdc_core.reporting.figures import changes_figure, rows_and_documents_figure
from icecdc_core.reporting.reports import RunReport, ValidationReport, write_report

SYNC = RunReport(
    kind="sync",
    table="lake.demo.flights",
    index="flights",
    from_snapshot_id=3051729675574597004,
    to_snapshot_id=8924558786060583479,
    strategy="file diff",
    upserts=5200,
    deletes=8255,
    carryovers_removed=890_000,
    seconds=12.34,
    snapshots=6,
    stage_seconds={"plan": 0.4, "read": 6.0, "write": 4.1},
)
DIFFERENT = ValidationReport(
    ok=False,
    source_rows=10,
    index_documents=9,
    missing=2,
    extra=1,
    stale=1,
    missing_ids=["a", "b"],
    extra_ids=["x"],
    stale_ids=["c"],
    table="lake.demo.flights",
    index="flights",
    snapshot_id=7,
    stage_seconds={"compare": 1.5},
)
CHANGES = pd.DataFrame(
    {
        "snapshot_id": [11, 12, 13],
        "committed_at": pd.to_datetime(["2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z"]),
        "operation": ["delete", "overwrite", "replace"],
        "inserted": [0, 120, 0],
        "updated": [0, 900, 0],
        "deleted": [8255, 0, 0],
        "carryovers_removed": [320_000, 336_000, 0],
    }
)


def _texts(figure: Figure) -> str:
    return "\n".join(str(text.get_text()) for text in figure.findobj(lambda part: hasattr(part, "get_text")))


def _contrast(one: str, other: str) -> float:
    """The contrast of two colours as WCAG defines it, from 1 to 21."""
    lights = []
    for colour in (one, other):
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(colour)]
        lights.append(sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True)))
    return (max(lights) + 0.05) / (min(lights) + 0.05)


class DescribeReports:
    def it_has_every_counter(self):
        ones = {name: at for at, name in enumerate(COUNTERS, 1)}
        assert replace(SYNC, **ones).counts == Counts(**ones)

    def it_gives_every_field_in_one_line_of_json(self):
        text = SYNC.to_json()
        assert (json.loads(text), "\n" in text) == (SYNC.to_dict(), False)
        assert json.loads(text)["to_snapshot_id"] == 8924558786060583479
        assert json.loads(DIFFERENT.to_json()) == DIFFERENT.to_dict()

    def it_leaves_out_of_the_table_what_is_not_known(self):
        source = RunReport(kind="export", table="lake.ns.t", index="t", to_snapshot_id=5)
        actual = [name for name in ("from snapshot", "to snapshot") if name in source.summary().index]
        assert actual == ["to snapshot"]

    @pytest.mark.parametrize(
        ("target", "kept", "worst", "expected"),
        [
            (10.0, True, 2.34, "2.3 s, target 10 s kept"),
            (10.0, False, 12.0, "12.0 s, target 10 s NOT kept"),
            (None, None, 2.34, "2.3 s"),
            (10.0, None, None, None),
        ],
    )
    def it_says_how_long_a_commit_waited(self, target, kept, worst, expected):
        source = replace(SYNC, target_lag_seconds=target, lag_kept=kept, worst_lag_seconds=worst)
        assert source.summary()["value"].get("longest lag of a commit") == expected

    def it_names_what_is_wrong_with_each_document(self):
        actual = [tuple(row) for row in DIFFERENT.differences().to_numpy()]
        assert actual == [("missing", "a"), ("missing", "b"), ("extra", "x"), ("stale", "c")]

    def it_says_that_no_document_differs(self):
        source = ValidationReport(ok=True, source_rows=328_521, index_documents=328_521)
        assert repr(source.differences()) == "None: all 328,521 documents equal their rows."


class DescribeWriteReport:
    def it_writes_one_json_object_and_makes_the_folder(self, tmp_path: Path):
        path = tmp_path / "new" / "report.json"
        write_report(SYNC, str(path))
        assert json.loads(path.read_text()) == SYNC.to_dict()

    def it_says_which_parameter_is_wrong_when_it_cannot_write(self, tmp_path: Path):
        (tmp_path / "file").touch()
        with pytest.raises(ConfigError, match="report_path"):
            write_report(SYNC, str(tmp_path / "file" / "report.json"))


class DescribeFigures:
    def it_labels_what_a_run_wrote(self):
        actual = _texts(SYNC.figure())
        assert all(text in actual for text in ("5,200", "8,255", "890,000 carryovers removed", "6.0 s"))

    def it_shows_the_verdict_and_the_difference_of_a_validation(self):
        actual = _texts(DIFFERENT.figure())
        assert ("NOT equal" in actual, "difference -1" in actual) == (True, True)

    def it_labels_each_snapshot_with_what_changed_in_it(self):
        actual = _texts(changes_figure(CHANGES))
        assert all(text in actual for text in ("-8,255", "+120  ~900", "none", "336 k"))

    def it_labels_rows_added_and_removed_where_only_summaries_were_read(self):
        summaries = CHANGES.assign(rows_added=[9, 0, 1200], rows_removed=[0, 7, 1200])
        actual = _texts(changes_figure(summaries))
        assert all(text in actual for text in ("Rows added", "Rows removed", "1,200", "none"))

    def it_gives_carryovers_a_scale_of_their_own(self):
        real, carried = changes_figure(CHANGES).axes
        assert real.get_xlim()[1] < 20_000 < carried.get_xlim()[1]

    def it_says_that_there_is_nothing_to_show(self):
        idle = replace(SYNC, strategy="none", upserts=0, deletes=0, stage_seconds={"check": 0.2})
        assert "No new snapshot" in _texts(changes_figure(CHANGES.iloc[:0]))
        assert "nothing to do" in _texts(replace(SYNC, stage_seconds={}).figure())
        assert (len(idle.figure().axes), "Up to date" in _texts(idle.figure())) == (1, True)

    def it_can_be_read_on_white_and_on_black(self):
        figures = (SYNC.figure(), DIFFERENT.figure(), changes_figure(CHANGES))
        backgrounds = {figure.get_facecolor()[3] for figure in figures}
        backgrounds |= {axes.get_facecolor()[3] for figure in figures for axes in figure.axes}
        texts = [text for figure in figures for text in figure.findobj(Text) if text.get_text()]
        assert backgrounds == {0}
        assert min(min(_contrast(text.get_color(), other) for other in ("white", "#111111")) for text in texts) >= 3

    def it_counts_in_whole_numbers(self):
        _, differences, _ = DIFFERENT.figure().axes
        assert [tick for tick in differences.get_xticks() if tick != int(tick)] == []

    def it_draws_an_empty_table_beside_an_empty_index(self):
        assert "documents in index" in _texts(rows_and_documents_figure({"rows": 0, "documents": 0}))

    def it_shows_itself_in_a_notebook_as_png(self):
        png, size = SYNC.figure()._repr_png_()
        assert png.startswith(b"\x89PNG")
        assert size["width"] < 900
