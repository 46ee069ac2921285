"""Whether a table was reset, by the history of its snapshots and the commit log."""

from __future__ import annotations

import pytest

from icecdc_core.ingest.commit_log import find_table_offsets
from icecdc_core.ingest.offsets_reader import table_state
from tests.unit.ingest.tables.commits.snapshot_history import Snapshot, Table, logged


class DescribeTableStates:
    @pytest.mark.parametrize(
        ("snapshots", "entry", "expected"),
        [
            ([Snapshot(3, 2, 9)], logged(9), "current"),
            ([Snapshot(3, 2, 9)], logged(5), "current"),
            ([], logged(5, snapshot=None), "log is ahead"),
            # Batches without a record for the table.
            ([Snapshot(3, 2, 9)], logged(20), "log is ahead"),
            ([Snapshot(3, 2, 9), Snapshot(4, 3)], logged(20), "log is ahead"),
            ([Snapshot(3, 2, 9)], logged(9, uuid="other"), "replaced"),
            # Back to a snapshot with older offsets, or without any.
            ([Snapshot(2, 1, 5)], logged(9), "rolled back"),
            ([Snapshot(3, 2, 9), Snapshot(2, 1, 5)], logged(9), "rolled back"),
            ([Snapshot(1, None), Snapshot(4, 1)], logged(9), "rolled back"),
            # Expired: an ancestor is the child of the logged snapshot, or younger than that.
            ([Snapshot(4, 3)], logged(9), "log is ahead"),
            ([Snapshot(6, 5)], logged(9), "log is ahead"),
            # Rolled back, then expired: an ancestor is older, or the child of an older one.
            ([Snapshot(2, 1), Snapshot(4, 2)], logged(9), "rolled back"),
            ([Snapshot(4, 2)], logged(9), "rolled back"),
            ([], logged(9), "rolled back"),
        ],
    )
    def it_compares_a_table_with_the_log(self, snapshots, entry, expected):
        table = Table(*snapshots)
        assert table_state(table, find_table_offsets(table, "j"), entry) == expected

    @pytest.mark.parametrize(
        ("snapshots", "milliseconds", "expected"),
        [
            ([Snapshot(4, 3, version=1)], 3000, "log is ahead"),
            ([Snapshot(2, 1, version=1), Snapshot(4, 2, version=1)], 3000, "rolled back"),
            ([Snapshot(1, None, version=1), Snapshot(4, 1, version=1)], 3000, "rolled back"),
            # The log of an earlier release has no times.
            ([Snapshot(2, 1, version=1), Snapshot(4, 2, version=1)], None, "log is ahead"),
            # Nothing older is left, which only sequence numbers distinguish from expiry.
            ([Snapshot(4, 2, version=1)], 3000, "log is ahead"),
        ],
    )
    def it_compares_times_in_format_version_1(self, snapshots, milliseconds, expected):
        table, entry = Table(*snapshots), logged(9, version=1, milliseconds=milliseconds)
        assert table_state(table, find_table_offsets(table, "j"), entry) == expected
