"""Heads, times and rows of snapshots, from hand-made metadata; no Spark."""

import pytest

from icecdc_core.errors import HistoryGapError
from icecdc_core.table.snapshots import (
    head_snapshot_id,
    rows_added,
    rows_removed,
    sequence_number,
    snapshot_as_of,
)
from tests.table_metadata import metadata, metadata_of

LINE = ((1, None, "append"), (2, 1, "overwrite"), (3, 2, "replace"), (4, 3, "append"))


class DescribeRowsOfASnapshot:
    @pytest.mark.parametrize(
        ("summary", "expected"),
        [
            ({}, (0, 0)),
            ({"added-records": "60", "deleted-records": "61"}, (60, 61)),
            ({"added-position-deletes": "7", "removed-position-deletes": "3"}, (0, 4)),
            ({"removed-position-deletes": "3", "added-records": "9", "deleted-records": "12"}, (9, 12)),
            ({"added-equality-deletes": "2", "added-records": "2"}, (2, 2)),
        ],
    )
    def it_counts_the_deletes_of_a_replaced_delete_file_once(self, summary, expected):
        snapshot = metadata_of([(1, None, "overwrite", 1000, summary)], {"main": 1}).snapshots[0]
        assert (rows_added(snapshot), rows_removed(snapshot)) == expected


class DescribeHeads:
    def it_finds_the_head_of_a_branch(self):
        assert head_snapshot_id(metadata(*LINE, current=4, branches={"audit": 2}), "audit") == 2

    def it_names_the_branches_there_are(self):
        with pytest.raises(HistoryGapError, match="audit, main"):
            head_snapshot_id(metadata(*LINE, current=4, branches={"audit": 2}), "nope")

    def it_finds_the_snapshot_of_a_moment(self):
        assert snapshot_as_of(metadata(*LINE, current=4), 3500) == 3

    def it_finds_none_before_the_first_snapshot(self):
        assert snapshot_as_of(metadata(*LINE, current=4), 500) is None

    def it_refuses_a_moment_whose_history_has_expired(self):
        with pytest.raises(HistoryGapError, match="start_from"):
            snapshot_as_of(metadata(*LINE[1:], current=4), 1500)

    def it_knows_the_sequence_number(self):
        assert sequence_number(metadata(*LINE, current=4), 3) == 3
