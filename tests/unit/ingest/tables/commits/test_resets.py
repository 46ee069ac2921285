"""Which offsets a table records, and whether it was reset, by the history of its snapshots.

A history is written as snapshots from old to new. Offsets are those of one partition.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from icecdc_core.errors import TableResetError
from icecdc_core.ingest.tables.commits.commit_log import TableEntry
from icecdc_core.ingest.tables.commits.offsets import (
    BATCH,
    JOB,
    OFFSETS,
    TableOffsets,
    current_snapshot_id,
    find_table_offsets,
    is_ancestor,
)
from icecdc_core.ingest.tables.commits.publish import StagedSnapshot, next_publish_step
from icecdc_core.ingest.tables.commits.resets import OffsetsReader, RefillError, table_state


class Snapshot:
    """A snapshot with the getters of Iceberg's; its number is its id, its sequence number and its time."""

    def __init__(self, number, parent, offset=None, job="j", version=2):
        self.number, self.parent, self.version = number, parent, version
        recorded = {JOB: job, BATCH: str(number), OFFSETS: f'{{"t":{{"0":{offset}}}}}'}
        self.properties = {} if offset is None else recorded

    def snapshotId(self):
        return self.number

    def sequenceNumber(self):
        return self.number if self.version > 1 else 0

    def timestampMillis(self):
        return 1000 * self.number

    def parentId(self):
        return self.parent

    def summary(self):
        return self.properties


class Table:
    """A table whose current snapshot is the last one given; the others may be its ancestors or not."""

    def __init__(self, *snapshots, uuid="u"):
        self.snapshots, self.id = {each.number: each for each in snapshots}, uuid
        self.current = snapshots[-1] if snapshots else None

    def currentSnapshot(self):
        return self.current

    def snapshot(self, number):
        return self.snapshots.get(number)

    def uuid(self):
        return self.id


def at(offset):
    return {"t": {0: offset}}


def logged(offset, snapshot=3, uuid="u", version=2, milliseconds=3000):
    number = snapshot if version > 1 and snapshot is not None else 0 if snapshot is not None else None
    text = f'{{"t":{{"0":{offset}}}}}'
    return TableEntry("n", uuid, snapshot, number, offsets=text, snapshot_ms=milliseconds)


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
        known = {2: TableOffsets(at(7), 2, 2)}
        table = Table(Snapshot(1, None, 5), Snapshot(2, 1, 6), Snapshot(3, 2))
        assert find_table_offsets(table, "j", known) == known[2]

    def it_finds_ancestors(self):
        table = Table(Snapshot(1, None), Snapshot(2, 1), Snapshot(3, 1), Snapshot(4, 3))
        actual = [is_ancestor(table, number) for number in (1, 2, 3, 4)]
        assert (actual, is_ancestor(table, 1, back_to=3)) == ([True, False, True, True], False)
        assert (current_snapshot_id(table), current_snapshot_id(Table())) == (4, None)


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


class DescribeOffsetsReader:
    def reader(self, policy, entry):
        config = SimpleNamespace(job="j", on_table_reset=policy)
        return OffsetsReader(config, {"n": entry} if entry else {}, at(2))

    @pytest.mark.parametrize("entry", [None, logged(5)])
    def it_returns_what_the_table_records(self, entry):
        actual = self.reader("fail", entry).read("n", Table(Snapshot(3, 2, 9)), at(7))
        assert actual == TableOffsets(at(9), 3, 3)

    def it_returns_the_offsets_of_the_log_if_they_are_higher(self):
        actual = self.reader("fail", logged(20)).read("n", Table(Snapshot(3, 2, 9)), at(7))
        assert actual == TableOffsets(at(20), 3, 3)

    def it_refuses_a_table_that_was_reset(self):
        for table, match in ((Table(Snapshot(2, 1, 5)), "rolled back"), (Table(uuid="new"), "made again")):
            with pytest.raises(TableResetError, match=match):
                self.reader("fail", logged(9)).read("n", table, at(7))

    def it_continues_with_new_records(self):
        reader = self.reader("continue", logged(9))
        table = Table(Snapshot(2, 1, 5))
        assert reader.read("n", table, at(12)) == reader.read("n", table, at(12)) == TableOffsets(at(12), 2, 2)
        assert reader.known["n"] == TableEntry("n", "u", offsets='{"t":{"0":12}}')

    @pytest.mark.parametrize(("table", "expected"), [(Table(Snapshot(2, 1, 5)), at(5)), (Table(uuid="new"), at(2))])
    def it_refills_from_what_the_table_and_the_topic_have(self, table, expected):
        with pytest.raises(RefillError) as caught:
            self.reader("refill", logged(9)).read("n", table, at(7))
        assert caught.value.offsets == expected

    def it_remembers_what_a_batch_wrote(self):
        reader = self.reader("fail", None)
        written = TableOffsets(at(9), 4, 4)
        reader.remember(logged(9, snapshot=4), written)
        # The search ends at snapshot 4, whose summary is not read again.
        assert reader.read("n", Table(Snapshot(4, 3)), at(0)) == written


class DescribePublishDecisions:
    @pytest.mark.parametrize(
        ("head", "parent", "is_append", "can_restage", "expected"),
        [
            (1, 1, True, True, "publish"),
            (None, None, True, True, "publish"),
            (1, 1, False, False, "publish"),
            (2, 1, True, True, "restage"),
            (2, None, True, True, "restage"),
            # A merge depends on the rows of the table, also if it only inserts.
            (2, 1, True, False, "write again"),
            (2, 1, False, True, "write again"),
        ],
    )
    def it_publishes_restages_or_writes_again(self, head, parent, is_append, can_restage, expected):
        staged = StagedSnapshot(9, 9, 9000, parent, {}, is_append, 1, 1, 1)
        assert next_publish_step(head, staged, can_restage) == expected
