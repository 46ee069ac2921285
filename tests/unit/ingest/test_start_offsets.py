"""Where a run starts, by what the commit log, the tables and the topics have."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from icecdc_core.errors import ConfigError, LostOffsetsError, TopicReplacedError
from icecdc_core.ingest.commit_log import BEHIND, LoggedJob, TableEntry
from icecdc_core.ingest.start_offsets import find_start

EARLIEST, LATEST = {"t": {0: 2, 1: 0}}, {"t": {0: 9, 1: 4}}
AT_A_MOMENT = {"t": {0: 7, 1: 3}}


class Brokers:
    """A topic of two partitions, of which the first has lost two records."""

    def __init__(self, identifier="id"):
        self.identifier = identifier

    def names(self):
        return ["t"]

    def ids(self, names):
        return dict.fromkeys(names, self.identifier)

    def earliest(self, names):
        return {name: dict(EARLIEST[name]) for name in names}

    def latest(self, names):
        return {name: dict(LATEST[name]) for name in names}

    def at(self, names, moment):
        assert moment == datetime(2026, 1, 1, tzinfo=UTC)
        return AT_A_MOMENT


def start(logged_job=None, recorded=(), brokers=None, **overrides):
    config = SimpleNamespace(**{"starting_offsets": "earliest", "on_lost_offsets": "fail", **overrides})
    return find_start(brokers or Brokers(), config, logged_job or LoggedJob(), list(recorded))


def logged(offsets, **behind):
    tables = {name: TableEntry(name, state=BEHIND, offsets=text) for name, text in behind.items()}
    return LoggedJob(True, 3, offsets, {"t": "id"}, tables)


@pytest.mark.parametrize(
    ("starting_offsets", "expected"),
    [
        ("earliest", EARLIEST),
        ("latest", LATEST),
        ("2026-01-01T00:00:00Z", AT_A_MOMENT),
        ('{"t":{"1":3}}', {"t": {0: 2, 1: 3}}),
    ],
)
def it_starts_a_new_job_at_the_starting_offsets(starting_offsets, expected):
    assert start(starting_offsets=starting_offsets).start == expected


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (logged({"t": {0: 5, 1: 4}}), {"t": {0: 5, 1: 4}}),
        # A partition that was added is read from its beginning.
        (logged({"t": {0: 5}}), {"t": {0: 5, 1: 0}}),
        # A table that is behind reads its records again.
        (logged({"t": {0: 8, 1: 4}}, a='{"t":{"0":6,"1":3}}', b='{"t":{"0":7,"1":1}}'), {"t": {0: 6, 1: 1}}),
        # It reads a partition or a topic that was added since from its beginning.
        (logged({"t": {0: 8, 1: 4}}, a='{"t":{"0":6}}', b='{"t":{"0":7,"1":1}}'), {"t": {0: 6, 1: 0}}),
        (logged({"t": {0: 8, 1: 4}}, a='{"other":{"0":6}}'), {"t": {0: 2, 1: 0}}),
        # A topic that is no longer read.
        (logged({"t": {0: 5, 1: 4}, "old": {0: 99}}), {"t": {0: 5, 1: 4}}),
    ],
)
def it_starts_at_the_offsets_of_the_log_whatever_the_starting_offsets(known, expected):
    assert start(known, starting_offsets="latest").start == expected


def it_starts_at_the_lowest_offsets_of_the_tables_if_the_log_was_removed():
    actual = start(recorded=[{"t": {0: 8, 1: 1}}, {"t": {0: 5, 1: 3}}, {}], starting_offsets="latest")
    assert actual.start == {"t": {0: 2, 1: 0}}
    assert start(recorded=[{"t": {0: 8, 1: 1}}, {"t": {0: 5, 1: 3}}]).start == {"t": {0: 5, 1: 1}}


def it_is_at_the_end_if_nothing_is_left_of_all_partitions():
    assert [start(logged(offsets)).is_at_end for offsets in (LATEST, {"t": {0: 9, 1: 3}})] == [True, False]


def it_refuses_or_reports_lost_records():
    known = logged({"t": {0: 0, 1: 4}})
    with pytest.raises(LostOffsetsError, match="removed 2 records before they were read"):
        start(known)
    actual = start(known, on_lost_offsets="continue")
    assert actual.start == {"t": {0: 2, 1: 4}}
    assert actual.lost == [{"topic": "t", "partition": 0, "from": 0, "to": 2}]


def it_refuses_lost_records_only_for_the_tables_that_need_them():
    known = logged({"t": {0: 8, 1: 4}}, a='{"t":{"0":1,"1":3}}', b='{"t":{"0":7,"1":1}}')
    actual = start(known)
    assert (actual.start, list(actual.cut_off)) == ({"t": {0: 7, 1: 1}}, ["a"])
    assert "begins at offset 2, but table a was left behind at offset 1" in str(actual.cut_off["a"])
    assert "on_lost_offsets=continue once" in str(actual.cut_off["a"])
    actual = start(known, on_lost_offsets="continue")
    assert (actual.start, actual.cut_off) == ({"t": {0: 2, 1: 1}}, {})


@pytest.mark.parametrize("policy", ["fail", "continue"])
def it_refuses_a_topic_that_was_replaced(policy):
    with pytest.raises(TopicReplacedError, match="not the one that was read"):
        start(logged({"t": {0: 5, 1: 4}}), brokers=Brokers("another id"), on_lost_offsets=policy)
    with pytest.raises(TopicReplacedError, match="ends at offset 9, before offset 10"):
        start(logged({"t": {0: 10, 1: 4}}), on_lost_offsets=policy)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ('{"other":{"0":3}}', "topic other, which this job does not read"),
        ('{"t":{"0":3,"7":0}}', "partition 7 of topic t, which this job does not read"),
        ('{"t":{"0":10}}', "ends before offset 10"),
    ],
)
def it_refuses_starting_offsets_that_are_not_there(given, match):
    with pytest.raises(ConfigError, match=match) as caught:
        start(starting_offsets=given)
    assert caught.value.subject == "starting_offsets"


def it_keeps_the_ids_of_topics_that_are_not_there():
    known = LoggedJob(True, 3, LATEST, {"gone": "g"})
    assert start(known).topic_ids == {"gone": "g", "t": "id"}
