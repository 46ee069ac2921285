"""Reports as data and as tables."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from icecdc_core.errors import ConfigError
from icecdc_core.ingest.report import IngestReport
from icecdc_core.opensearch.counts import COUNTERS
from icecdc_core.reporting.reports import RunReport, ValidationReport, check_report_path, write_report

SYNC = RunReport("sync", "lake.demo.flights", "flights", 3051729675574597004, 8924558786060583479, seconds=12.34)
SYNC = replace(SYNC, upserts=5200, carryovers_removed=890_000, stage_seconds={"plan": 0.4, "write": 4.1})
IDS = {"missing": 2, "extra": 1, "stale": 1, "missing_ids": ["a", "b"], "extra_ids": ["x"], "stale_ids": ["c"]}
DIFFERENT = ValidationReport(False, 10, 9, **IDS, table="lake.demo.flights", index="flights", snapshot_id=7)


class DescribeReports:
    def it_adds_up_every_counter(self):
        ones = {name: at for at, name in enumerate(COUNTERS, 1)}
        both = replace(SYNC, **ones).then(replace(SYNC, **ones))
        assert {name: getattr(both, name) for name in COUNTERS} == {name: 2 * at for name, at in ones.items()}

    def it_gives_every_field_in_one_line_of_json(self):
        text = SYNC.to_json()
        assert (json.loads(text), "\n" in text) == (SYNC.to_dict(), False)
        assert json.loads(text)["to_snapshot_id"] == 8924558786060583479
        for report in (DIFFERENT, IngestReport("j", offsets={"orders": {0: 5}})):
            assert json.loads(report.to_json()) == report.to_dict()


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
