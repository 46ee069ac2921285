"""The offsets of a table, checked against the commit log, and what `on_table_reset` makes of a reset."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from icecdc_core.errors import TableResetError
from icecdc_core.ingest.commit_log import TableEntry, TableOffsets
from icecdc_core.ingest.offsets_reader import OffsetsReader, RefillError
from tests.unit.ingest.tables.commits.snapshot_history import Snapshot, Table, at, logged


class DescribeOffsetsReader:
    def reader(self, policy, entry):
        config = SimpleNamespace(job="j", on_table_reset=policy)
        return OffsetsReader(config, {"n": entry} if entry else {}, at(2))

    @pytest.mark.parametrize("entry", [None, logged(5)])
    def it_returns_what_the_table_records(self, entry):
        actual = self.reader("fail", entry).read_or_reset("n", Table(Snapshot(3, 2, 9)), at(7))
        assert actual == TableOffsets(at(9), 3, 3)

    def it_returns_the_offsets_of_the_log_if_they_are_higher(self):
        actual = self.reader("fail", logged(20)).read_or_reset("n", Table(Snapshot(3, 2, 9)), at(7))
        assert actual == TableOffsets(at(20), 3, 3)

    def it_refuses_a_table_that_was_reset(self):
        for table, match in ((Table(Snapshot(2, 1, 5)), "rolled back"), (Table(uuid="new"), "made again")):
            with pytest.raises(TableResetError, match=match):
                self.reader("fail", logged(9)).read_or_reset("n", table, at(7))

    def it_continues_with_new_records(self):
        reader = self.reader("continue", logged(9))
        table = Table(Snapshot(2, 1, 5))
        assert (
            reader.read_or_reset("n", table, at(12))
            == reader.read_or_reset("n", table, at(12))
            == TableOffsets(at(12), 2, 2)
        )
        assert reader.last_entries["n"] == TableEntry("n", "u", offsets='{"t":{"0":12}}')

    @pytest.mark.parametrize(("table", "expected"), [(Table(Snapshot(2, 1, 5)), at(5)), (Table(uuid="new"), at(2))])
    def it_refills_from_what_the_table_and_the_topic_have(self, table, expected):
        with pytest.raises(RefillError) as caught:
            self.reader("refill", logged(9)).read_or_reset("n", table, at(7))
        assert caught.value.offsets == expected

    def it_remembers_what_a_batch_wrote(self):
        reader = self.reader("fail", None)
        written = TableOffsets(at(9), 4, 4)
        reader.remember(logged(9, snapshot=4), written)
        # The search ends at snapshot 4, whose summary is not read again.
        assert reader.read_or_reset("n", Table(Snapshot(4, 3)), at(0)) == written
