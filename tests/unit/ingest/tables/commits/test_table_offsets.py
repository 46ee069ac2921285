"""Which offsets a table records, by the history of its snapshots."""

from __future__ import annotations

import pytest

from icecdc_core.ingest.commit_log import TableOffsets, current_snapshot_id, find_table_offsets, is_ancestor
from tests.unit.ingest.tables.commits.snapshot_history import Snapshot, Table, at


class DescribeTableOffsets:
    @pytest.mark.parametrize(
        ("snapshots", "expected"),
        [
            ([], TableOffsets()),
            ([Snapshot(1, None)], TableOffsets()),
            ([Snapshot(1, None, 5)], TableOffsets(at(5), 1, 1)),
            # Newer commits of others, and of another job.
            ([Snapshot(1, None, 5), Snapshot(2, 1), Snapshot(3, 2, 9, job="k")], TableOffsets(at(5), 1, 1)),
            # A snapshot that was rolled back is no ancestor.
            ([Snapshot(1, None, 5), Snapshot(2, 1, 9), Snapshot(3, 1)], TableOffsets(at(5), 1, 1)),
            # The parent has expired.
            ([Snapshot(3, 2)], TableOffsets()),
        ],
    )
    def it_finds_the_newest_of_the_job_among_the_ancestors(self, snapshots, expected):
        assert find_table_offsets(Table(*snapshots), "j") == expected

    def it_ends_the_search_where_an_earlier_one_began(self):
        earlier = {2: TableOffsets(at(7), 2, 2)}
        table = Table(Snapshot(1, None, 5), Snapshot(2, 1, 6), Snapshot(3, 2))
        assert find_table_offsets(table, "j", earlier) == earlier[2]

    def it_finds_ancestors(self):
        table = Table(Snapshot(1, None), Snapshot(2, 1), Snapshot(3, 1), Snapshot(4, 3))
        actual = [is_ancestor(table, number) for number in (1, 2, 3, 4)]
        assert (actual, is_ancestor(table, 1, back_to=3)) == ([True, False, True, True], False)
        assert (current_snapshot_id(table), current_snapshot_id(Table())) == (4, None)
