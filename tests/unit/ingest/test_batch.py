"""Commit log entries of tables that an earlier run left behind."""

from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from icecdc_core.errors import TopicReplacedError
from icecdc_core.ingest.batch import Batches
from icecdc_core.ingest.commit_log import BEHIND, WRITTEN, LogEntry, TableEntry
from icecdc_core.ingest.start_offsets import RefillError
from icecdc_core.ingest.table import Writer
from icecdc_core.ingest.writes import TableRecords

LEFT_BEHIND = TableEntry(
    "t", "uuid", 7, 3, BEHIND, rows=5, deletes=1, files=2, bytes=9, offsets={"a": {0: 4}}, error="x", snapshot_ms=99
)
BATCH = LogEntry("j", 1, "run", "batch", {"a": {0: 6}}, {"a": {0: 4}})


def batches(complete, left=LEFT_BEHIND.offsets):
    entry = replace(LEFT_BEHIND, offsets=left)
    config = SimpleNamespace(table_concurrency=2)
    writer = Writer(None, None, {"t": entry}, {})
    return Batches(config, "run", None, writer, None, 0, complete, {"t": left}, {})


class DescribeTablesThatRecover:
    def it_still_names_the_snapshot_of_a_table_without_records_and_uses_its_entry_in_the_batch_if_there_is_one(self):
        written = TableEntry("t", "uuid", 8, 4, rows=2, snapshot_ms=100)
        unchanged = TableEntry("t", "uuid", 7, 3, snapshot_ms=99)
        for complete, entries, expected in (
            ({"a": {0: 6}}, [], unchanged),
            ({"a": {0: 9}}, [], replace(unchanged, state=BEHIND, error="lacks records of a")),
            ({"a": {0: 6}}, [written], written),
        ):
            assert batches(complete).recover_tables(entries, BATCH) == [replace(expected, offsets={"a": {0: 6}})]

    def it_does_not_forget_what_it_lacks_of_a_topic_that_is_no_longer_read(self):
        for left, state in (
            ({"a": {0: 4}}, WRITTEN),  # it lacked nothing of the topic
            ({"a": {0: 4}, "removed": {0: 9}}, WRITTEN),
            ({"a": {0: 4}, "removed": {0: 7}}, BEHIND),
        ):
            made = batches({"a": {0: 6}, "removed": {0: 9}}, left)
            written = TableEntry("t", "uuid", 8, 4, offsets={"a": {0: 6}})  # the table's own offsets
            made.writer.last_entries["t"] = written
            [actual] = made.recover_tables([written], BATCH)
            assert (actual.state, actual.offsets) == (state, {**left, "a": {0: 6}})
            assert list(made.recovering) == (["t"] if state == BEHIND else [])
        # Not either if the table fails again.
        entry, _ = made._write_table("t", TableRecords(None), BATCH)
        assert (entry.state, entry.offsets) == (BEHIND, {"a": {0: 6}, "removed": {0: 7}})

    def it_lacks_nothing_of_topics_that_are_not_routed_to_it(self):
        made = batches({"a": {0: 6}, "other": {0: 9}}, {"a": {0: 4}, "other": {0: 2}})
        made.writer.routed = lambda table, given: {topic: parts for topic, parts in given.items() if topic == "a"}
        batch = replace(BATCH, offsets={**BATCH.offsets, "other": {0: 9}}, started_at={"a": {0: 4}, "other": {0: 5}})
        entry, _ = made._write_table("t", TableRecords(None), batch)
        assert (entry.state, entry.offsets) == (BEHIND, {"a": {0: 4}})
        made.behind.clear()
        [actual] = made.recover_tables([], batch)
        assert (actual.state, actual.offsets) == (WRITTEN, {"a": {0: 6}})

    @pytest.mark.parametrize("kept", [{}, {0: 7}])
    def it_does_not_forget_it_either_if_the_table_is_filled_again(self, kept):
        refill = RefillError("again", subject="table")
        refill.offsets = {"a": {0: 0}, **({"removed": kept} if kept else {})}
        made = batches({"a": {0: 6}, "removed": {0: 9}})
        made.writer.write = Mock(side_effect=refill)
        entry, _ = made._write_table("t", TableRecords(SimpleNamespace(sparkSession=None)), BATCH)
        assert (entry.state, entry.offsets) == (BEHIND, {"a": {0: 0}, "removed": kept})
        [actual] = batches(made.complete, entry.offsets).recover_tables([], replace(BATCH, started_at={"a": {0: 0}}))
        assert (actual.state, actual.offsets) == (BEHIND, {"a": {0: 6}, "removed": kept})


def it_goes_on_with_other_tables_whatever_one_raises():
    made = batches({})

    def write(spark, name, records, batch):
        if name == "t":
            raise RecursionError("too deep")
        return TableEntry(name, rows=1), 0

    made.writer.write = write
    entries, _ = made.write_each(dict.fromkeys("tu", TableRecords(SimpleNamespace(sparkSession=None))), BATCH)
    assert [(entry.name, entry.state, entry.rows, entry.offsets) for entry in entries] == [
        ("t", BEHIND, 0, {"a": {0: 4}}),
        ("u", WRITTEN, 1, {}),
    ]
    assert entries[0].error.startswith("The table could not be written: RecursionError: too deep")


def it_begins_no_table_after_a_request_to_stop_and_says_so():
    made = batches({})
    made.config = SimpleNamespace(table_concurrency=1)

    def write(spark, name, records, batch):
        made.stop.requested = name == "u"
        return TableEntry(name), 1

    made.writer.write = write
    parts = dict.fromkeys("tuv", TableRecords(SimpleNamespace(sparkSession=None)))
    assert made.write_each(parts, BATCH) == ([TableEntry("t"), TableEntry("u")], 2)
    assert made.is_cut_off


def it_refuses_a_topic_that_was_made_again_while_the_stream_runs():
    made = batches({})
    made.topics, made.topic_ids = SimpleNamespace(ids=lambda names: dict.fromkeys(names, "new")), {"a": "old"}
    with pytest.raises(TopicReplacedError, match="made again"):
        made.process(SimpleNamespace(sparkSession=None), {}, {"a": {0: 6}})
