"""Where a run starts and what its tables have: by offsets, the commit log, the tables and the topics."""

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from icecdc_core.errors import (
    CatalogError,
    ConfigError,
    LostOffsetsError,
    TableNotFoundError,
    TopicReplacedError,
)
from icecdc_core.ingest import IngestConfig, offsets, start_offsets
from icecdc_core.ingest.commit_log import BEHIND, WRITTEN, LoggedJob, TableEntry, find_recorded, table_state
from icecdc_core.ingest.offsets import from_json, to_json
from icecdc_core.ingest.start_offsets import RefillError, find_start
from icecdc_core.ingest.table import Writer
from tests.unit.ingest.snapshot_history import Snapshot, Table, at, logged

EARLIEST, LATEST = {"t": {0: 2, 1: 0}}, {"t": {0: 9, 1: 4}}
AT_A_MOMENT = {"t": {0: 7, 1: 3}}


def start(logged_job=None, recorded=(), topic_id="id", routed=offsets.of_all_topics, **overrides):
    """The start by a topic of two partitions, of which the first has lost two records."""
    topics = SimpleNamespace(
        names=lambda: ["t"],
        ids=lambda names: dict.fromkeys(names, topic_id),
        earliest=lambda names: {name: dict(EARLIEST[name]) for name in names},
        latest=lambda names: {name: dict(LATEST[name]) for name in names},
        at=lambda names, moment: {datetime(2026, 1, 1, tzinfo=UTC): AT_A_MOMENT}[moment],
    )
    config = SimpleNamespace(**{"starting_offsets": "earliest", "on_lost_offsets": "fail", **overrides})
    return find_start(topics, config, logged_job or LoggedJob(), dict(zip("abc", recorded, strict=False)), routed)


def log(offsets, **behind):
    tables = {name: TableEntry(name, state=BEHIND, offsets=from_json(text)) for name, text in behind.items()}
    return LoggedJob(True, 3, offsets, {"t": "id"}, tables)


def it_starts_a_new_job_at_the_starting_offsets():
    for starting_offsets, expected in (
("earliest", EARLIEST), ("latest", LATEST), ("2026-01-01T00:00:00Z", AT_A_MOMENT),
     ('{"t":{"1":3}}', {"t": {0: 2, 1: 3}})
    ):  # fmt: skip
        assert start(starting_offsets=starting_offsets).start == expected


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (log({"t": {0: 5, 1: 4}}), {"t": {0: 5, 1: 4}}),
        # A partition that was added is read from its beginning.
        (log({"t": {0: 5}}), {"t": {0: 5, 1: 0}}),
        # A table that is behind reads its records again.
        (log({"t": {0: 8, 1: 4}}, a='{"t":{"0":6,"1":3}}', b='{"t":{"0":7,"1":1}}'), {"t": {0: 6, 1: 1}}),
        # It reads a partition or a topic that was added since from its beginning.
        (log({"t": {0: 8, 1: 4}}, a='{"t":{"0":6}}', b='{"t":{"0":7,"1":1}}'), {"t": {0: 6, 1: 0}}),
        (log({"t": {0: 8, 1: 4}}, a='{"other":{"0":6}}'), {"t": {0: 2, 1: 0}}),
        # A topic that is no longer read.
        (log({"t": {0: 5, 1: 4}, "old": {0: 99}}), {"t": {0: 5, 1: 4}}),
    ],
)
def it_starts_at_the_offsets_of_the_log_whatever_the_starting_offsets(known, expected):
    assert start(known, starting_offsets="latest").start == expected


def it_starts_at_the_lowest_offsets_of_the_tables_if_the_log_was_removed():
    actual = start(recorded=[{"t": {0: 8, 1: 1}}, {"t": {0: 5, 1: 3}}, {}], starting_offsets="latest")
    assert actual.start == {"t": {0: 2, 1: 0}}
    assert start(recorded=[{"t": {0: 8, 1: 1}}, {"t": {0: 5, 1: 3}}]).start == {"t": {0: 5, 1: 1}}
    assert [start(log(offsets)).is_at_end for offsets in (LATEST, {"t": {0: 9, 1: 3}})] == [True, False]


def it_reads_no_topic_again_for_a_table_to_which_it_is_not_routed():
    def routed(table, given):  # t to table a, and nothing to table b
        return given if table == "a" else {}

    reached = {"t": {0: 8, 1: 4}}
    assert start(log(reached, b='{"other":{"0":6}}'), routed=routed).start == reached
    # A topic that was added since, and one of which no table is there, are read from their beginning.
    for known, recorded in ((log(reached, a='{"other":{"0":6}}'), ()), (None, [{}, reached]), (None, [])):
        assert start(known, recorded, routed=routed).start == EARLIEST
    assert start(recorded=[reached, {}], routed=routed).start == reached
    left_behind = log({**reached, "old": {0: 9}}, b='{"other":{"0":6}}')
    actual = start(left_behind, routed=routed, on_lost_offsets="continue")
    assert (actual.start, actual.lost) == (reached, [])


def it_refuses_or_reports_lost_records_but_only_for_the_tables_that_need_them():
    known = log({"t": {0: 0, 1: 4}})
    with pytest.raises(LostOffsetsError, match="removed 2 records before they were read"):
        start(known)
    actual, lost = start(known, on_lost_offsets="continue"), [{"topic": "t", "partition": 0, "from": 0, "to": 2}]
    assert (actual.start, actual.lost) == ({"t": {0: 2, 1: 4}}, lost)
    known = log({"t": {0: 8, 1: 4}}, a='{"t":{"0":1,"1":3}}', b='{"t":{"0":7,"1":1}}')
    actual = start(known)
    assert (actual.start, list(actual.cut_off)) == ({"t": {0: 7, 1: 1}}, ["a"])
    assert "begins at offset 2, but table a was left behind at offset 1" in str(actual.cut_off["a"])
    assert "on_lost_offsets=continue once" in str(actual.cut_off["a"])
    actual = start(known, on_lost_offsets="continue")
    assert (actual.start, actual.cut_off) == ({"t": {0: 2, 1: 1}}, {})


@pytest.mark.parametrize(
    ("left_behind", "states", "lost"),
    [
        ([{"t": {0: 8, 1: 4}, "old": {0: 7}}, {"t": {0: 6, 1: 4}, "old": {0: 5}}], [WRITTEN, BEHIND], [(5, 9)]),
        ([{"t": {0: 8, 1: 4}, "old": {}}], [WRITTEN], [(0, 9)]),
        ([{"t": {0: 6, 1: 4}, "old": {0: 9}}, {"t": {0: 6, 1: 4}}], [], []),
        ([{"old": {0: 7}}], [BEHIND], [(7, 9)]),  # t was added, and is read from its beginning
    ],
)
def it_goes_on_without_what_a_table_lacks_of_a_topic_that_is_left_out(left_behind, states, lost):
    tables = dict(zip("ab", map(to_json, left_behind), strict=False))
    known = log({"t": {0: 8, 1: 4}, "old": {0: 9}}, **tables)
    actual = start(known, on_lost_offsets="continue")
    assert [entry.state for entry in actual.given_up.values()] == states
    assert [entry.offsets for entry in actual.given_up.values()] == [
        {**each, "old": {0: 9}} for each in left_behind[: len(states)]
    ]
    assert actual.lost == [{"topic": "old", "partition": 0, "from": first, "to": to} for first, to in lost]
    assert (actual.start.keys(), start(known).given_up, start(known).lost) == ({"t"}, {}, [])


def it_refuses_a_topic_that_was_replaced():
    for policy in ("fail", "continue"):
        with pytest.raises(TopicReplacedError, match=r"not the one that was read.*with starting_offsets after them"):
            start(log({"t": {0: 5, 1: 4}}), topic_id="another id", on_lost_offsets=policy)
        with pytest.raises(TopicReplacedError, match="ends at offset 9, before offset 10"):
            start(log({"t": {0: 10, 1: 4}}), on_lost_offsets=policy)


def it_refuses_starting_offsets_that_are_not_there():
    for given, match in (
        ('{"other":{"0":3}}', "topic other, which this job does not read"),
        ('{"t":{"0":3,"7":0}}', "partition 7 of topic t, which this job does not read"),
        ('{"t":{"0":10}}', "ends before offset 10"),
    ):
        with pytest.raises(ConfigError, match=match) as caught:
            start(starting_offsets=given)
        assert caught.value.subject == "starting_offsets"


ROUTES = {"lake.ns.a": "a.*", "lake.ns.b": "b.*"}
LOGGED = LoggedJob(True, tables={"`lake`.`ns`.`logged`": TableEntry("`lake`.`ns`.`logged`")})


def make(**given):
    return IngestConfig(job="j", bootstrap_servers="127.0.0.1:9", topics="t", **given)


def it_knows_the_tables_of_the_namespace_and_of_the_log_but_not_the_ingests_own():
    names = ("b", "a", "icecdc_ingest_log", "Icecdc_embeddings")
    tables = SimpleNamespace(collect=lambda: [{"tableName": name} for name in names])
    session = SimpleNamespace(sql=lambda text: {"SHOW TABLES IN `lake`.`ns`": tables}[text])
    actual = start_offsets.known_tables(session, make(route_by="topic", namespace="lake.ns"), LOGGED)
    assert actual == ["`lake`.`ns`.`a`", "`lake`.`ns`.`b`", "`lake`.`ns`.`logged`"]


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        ([Table(Snapshot(1, None, 5)), Table(Snapshot(2, 1, 7))], [at(5), at(7)]),
        # A table without offsets may lack all records: it counts if any other table has offsets.
        ([Table(Snapshot(1, None, 5)), Table(Snapshot(1, None))], [at(5), {}]),
        ([Table(Snapshot(1, None, 5)), None], [at(5), {}]),
        ([Table(), None], []),
        # One that cannot be read, such as that of somebody else, is not in the way.
        ([Table(Snapshot(1, None, 5)), CatalogError("forbidden")], [at(5), {}]),
        ([CatalogError("forbidden"), None], []),
    ],
)
def it_returns_the_offsets_that_the_tables_record(monkeypatch, tables, expected):
    def load(spark, name):
        table = dict(zip(["`lake`.`ns`.`a`", "`lake`.`ns`.`b`"], tables, strict=True))[name]
        if not isinstance(table, Table):
            raise table or TableNotFoundError("none", subject="table")
        return table

    monkeypatch.setattr(start_offsets, "load_table", load)
    config = make(route_by="regex", routes=ROUTES)
    assert list(start_offsets.recorded_offsets(None, config).values()) == expected
    if not expected and isinstance(tables[0], CatalogError):  # it may have been written earlier than at the end
        with pytest.raises(CatalogError):
            start_offsets.recorded_offsets(None, config.replace(starting_offsets="latest"))


@pytest.mark.parametrize("ignores", [True, False])
def it_finds_out_whether_the_catalog_ignores_case(monkeypatch, ignores):
    def load(spark, name):
        assert name == "`lake`.`ns`.`ICECDC_INGEST_LOG`"
        if not ignores:
            raise TableNotFoundError("none", subject="table")

    monkeypatch.setattr(start_offsets, "load_table", load)
    assert start_offsets.ignores_case(None, make(route_by="topic", namespace="lake.ns")) == ignores


class DescribeOffsetsOfTables:
    def writer(self, policy, entry):
        config = SimpleNamespace(job="j", on_table_reset=policy)
        return Writer(config, None, {"n": entry} if entry else {}, at(2))

    @pytest.mark.parametrize(("entry", "reached"), [(None, 9), (logged(5), 9), (logged(20), 20)])
    def it_returns_what_the_table_records_or_the_log_if_that_is_higher(self, entry, reached):
        actual = self.writer("fail", entry).read_or_reset("n", Table(Snapshot(3, 2, 9)), at(7))
        assert actual == TableEntry("n", "u", 3, 3, offsets=at(reached), snapshot_ms=3000)

    def it_refills_from_what_the_table_and_the_topic_have(self):
        for table, earliest, expected in (
            (Table(Snapshot(2, 1, 5)), at(2), at(5)),
            (Table(uuid="new"), at(2), at(2)),
            (Table(Snapshot(2, 1, 5)), {"u": {0: 1}}, {"u": {0: 1}, **at(5)}),  # t is not read now
        ):
            writer = self.writer("refill", logged(9))
            writer.earliest = earliest
            with pytest.raises(RefillError) as caught:
                writer.read_or_reset("n", table, at(7))
            assert caught.value.offsets == expected


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
            ([Snapshot(3, 2, 9)], logged(9, uuid="other"), "dropped and made again"),
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
            # Times are compared in format version 1.
            ([Snapshot(4, 3, version=1)], logged(9, version=1), "log is ahead"),
            ([Snapshot(2, 1, version=1), Snapshot(4, 2, version=1)], logged(9, version=1), "rolled back"),
            ([Snapshot(1, None, version=1), Snapshot(4, 1, version=1)], logged(9, version=1), "rolled back"),
            # Nothing older is left, which only sequence numbers distinguish from expiry.
            ([Snapshot(4, 2, version=1)], logged(9, version=1), "log is ahead"),
        ],
    )
    def it_compares_a_table_with_the_log(self, snapshots, entry, expected):
        table = Table(*snapshots)
        assert table_state(table, find_recorded("n", table, "j"), entry) == expected


A = {"t": {0: 5, 1: 7}}


def it_counts_offsets_and_writes_equal_ones_alike():
    found = offsets.count({"t": {0: 2}}, A), offsets.count({"t": {0: 6}}, A), offsets.removed(A, {"t": {0: 6, 1: 7}})
    assert found == (10, 7, [("t", 0, 5, 6)])
    text = offsets.to_json({"t": {10: 1, 2: 3}, "a": {0: 0}})
    assert (text, offsets.from_json(text)) == ('{"a":{"0":0},"t":{"2":3,"10":1}}', {"t": {10: 1, 2: 3}, "a": {0: 0}})


def it_leaves_out_records_that_were_read(spark):
    for start, end in (
        ({"t": {0: 5, 1: 7}}, {"t": {0: 9, 1: 9}}),
        # A topic that is no longer read; a partition without records in the batch.
        ({"s": {0: 0}}, {"s": {0: 9}}),
        ({"t": {0: 2, 1: 7}}, {"t": {0: 2, 1: 9}}),
    ):
        assert offsets.unread(A, start, end) is None
    # In the last two a partition or a topic appeared while the stream was running.
    starts = {"t": {0: 0, 1: 0}, "s": {0: 0}}, {"t": {0: 4}, "s": {0: 0}}, {"s": {0: 0}}
    left = [offsets.unread(A, start, {"t": {0: 6, 1: 7}, "s": {0: 1}}) for start in starts]
    rows = [("t", 0, 4), ("t", 0, 5), ("t", 1, 6), ("s", 0, 0)]
    found = spark.createDataFrame(rows, "topic string, partition int, offset long").select(*left).collect()
    assert [tuple(row) for row in found] == [(False,) * 3, (True,) * 3, (False,) * 3, (True,) * 3]


def it_leaves_out_records_of_thousands_of_partitions(spark):
    partitions = dict(enumerate(range(1, 2001)))
    many = {"t": partitions, "s": partitions}
    left = offsets.unread(many, {}, {"t": dict.fromkeys(partitions, 10_000), "s": partitions})
    rows = spark.range(2010).selectExpr("'t' AS topic", "CAST(id AS INT) AS partition", "1000L AS offset")
    assert [row.partition for row in rows.where(left).orderBy("partition").collect()] == [
        *range(1000),
        *range(2000, 2010),
    ]
