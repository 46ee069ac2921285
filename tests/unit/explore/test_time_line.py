"""The time line: rows, names, and where the index stands."""

from __future__ import annotations

from icecdc_core.explore.view import time_line
from tests.unit.explore.metadata import metadata

PARENTS = {11: None, 12: 11, 13: 12, 14: 12, 15: 11}
SNAPSHOTS = [(each, parent, "append", {"added-records": "1"}) for each, parent in PARENTS.items()]
# 13 was rolled back, 15 is on another branch.
TABLE = metadata(*SNAPSHOTS, main=14, audit=15)


class DescribeTheTimeLine:
    def it_names_branches_and_what_was_rolled_back(self):
        assert {each["snapshot_id"]: each["what"] for each in time_line(TABLE, 14, 13, 10)} == {
            11: "",
            12: "",
            13: "the index, rolled back",
            14: "main",
            15: "audit",
        }

    def it_has_the_newest_snapshots_first_and_no_more_than_asked_for(self):
        assert [each["snapshot_id"] for each in time_line(TABLE, 14, None, 3)] == [15, 14, 13]
