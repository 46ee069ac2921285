"""Heads, times and rows of snapshots, and the lag: snapshot n is committed at n seconds; no Spark."""

import pytest

from icecdc_core.errors import HistoryGapError
from icecdc_core.table.snapshots import (
    head_snapshot_id,
    history_gap_error,
    lag,
    rows_added,
    rows_removed,
    sequence_number,
    snapshot_as_of,
)
from tests.table_metadata import metadata, metadata_of

LINE = ((1, None, "append"), (2, 1, "overwrite"), (3, 2, "replace"), (4, 3, "append"))


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
def it_counts_the_deletes_of_a_replaced_delete_file_once(summary, expected):
    snapshot = metadata_of([(1, None, "overwrite", 1000, summary)], {"main": 1}).snapshots[0]
    assert (rows_added(snapshot), rows_removed(snapshot)) == expected


class DescribeHeads:
    def it_finds_the_head_of_a_branch_or_names_those_there_are(self):
        table = metadata(*LINE, current=4, branches={"audit": 2})
        assert (head_snapshot_id(table, "audit"), sequence_number(table, 3)) == (2, 3)
        with pytest.raises(HistoryGapError, match="audit, main"):
            head_snapshot_id(table, "nope")

    def it_finds_the_snapshot_of_a_moment_unless_its_history_has_expired(self):
        table = metadata(*LINE, current=4)
        assert (snapshot_as_of(table, 3500), snapshot_as_of(table, 500)) == (3, None)
        with pytest.raises(HistoryGapError, match="start_from"):
            snapshot_as_of(metadata(*LINE[1:], current=4), 1500)

    def it_names_the_oldest_snapshot_though_its_time_is_none(self):
        """Its writer took microseconds for milliseconds."""
        error = history_gap_error(metadata_of([(1, None, "append", 1_700_000_000_000_000, {})], {"main": 1}), 7)
        assert "the oldest is 1 of 9999-12-31" in str(error)


APPENDS = metadata((1, None, "append"), (2, 1, "append"), (3, 2, "append"), current=3)
# 3 was rolled back to 1, then 4 came.
ROLLED_BACK = metadata((1, None, "append"), (3, 1, "append"), (4, 1, "append"), current=4)


@pytest.mark.parametrize(
    ("table", "position", "head", "behind"),
    [
        (APPENDS, 3, 3, (0, 0.0)), (APPENDS, 1, 3, (2, 8.0)), (APPENDS, None, 3, (3, 9.0)),
        (APPENDS, None, None, (0, 0.0)), (ROLLED_BACK, 3, 4, (1, 6.0)), (ROLLED_BACK, 4, 1, (0, 0.0)),
        (APPENDS, 99, 3, (3, 9.0)),
    ],
    ids=["equal", "behind", "nothing exported", "empty table", "rolled back", "ahead", "position expired"],
)  # fmt: skip
def it_counts_the_snapshots_and_the_age_of_the_oldest(table, position, head, behind):
    assert lag(table, position, head, now=10.0) == behind
