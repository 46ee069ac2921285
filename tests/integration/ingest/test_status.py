"""An ingest seen from outside: what its tables have, and what they lack."""

import json
import time
from contextlib import closing
from datetime import UTC, datetime

import pytest

from icecdc_core.__main__ import main
from icecdc_core.ingest import commit_log, ingest
from icecdc_core.ingest.batch import Batches
from icecdc_core.ingest.commit_log import BEHIND, WRITTEN
from icecdc_core.ingest.dead_letters import count_by_reason
from icecdc_core.ingest.kafka import Topics
from icecdc_core.ingest.status import IngestStatus, ingest_status
from tests.checks.doc_blocks import all_blocks
from tests.checks.metric_samples import samples


@pytest.fixture
def config(spark, make_ingest, name):
    """An ingest into the table that a field names; its own tables do not exist yet."""
    own = {"commit_log_table": f"lake.{name}.log", "dead_letter_table": f"lake.{name}.letters"}
    return make_ingest(route_by="field", route_field="to", **own)


@pytest.fixture
def create(spark, name):
    def create(*tables):
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS lake.{name}")
        for table in tables:
            spark.sql(f"CREATE TABLE lake.{name}.{table} (id BIGINT) USING iceberg")

    return create


def it_says_up_to_when_each_table_has_every_record(spark, config, create, topic, name):
    [query] = (each.text for each in all_blocks() if each.page == "docs/kafka.md" and "ends_read_at" in each.text)
    query = query.replace("lake.shop.icecdc_ingest_log", f"lake.{name}.log").replace("'orders'", f"'{name}'")

    def run(to, **parameters):
        """Ingest records for these tables; returns the times of a, b and c, and whether they are of this run."""
        topic.send(*({"id": number, "to": table} for number, table in enumerate(to)))
        begin = datetime.now(UTC)
        report = ingest(spark, config.replace(**parameters))
        shown = {row.name: row.valid_through.astimezone(UTC) for row in spark.sql(query).collect() if row.valid_through}
        assert shown == commit_log.valid_through(spark, config.quoted_commit_log, name)
        times = [shown.get(f"`lake`.`{name}`.`{table}`") for table in "abc"]
        news = [time is not None and time > begin for time in times]
        reported = {each["valid_through"] for each in report.tables.values()}
        assert reported <= {"", *(time.isoformat() for time, is_new in zip(times, news, strict=True) if is_new)}
        return times, news

    create(*"abc")
    before, news = run("abc")
    assert news == [True, True, True]
    spark.sql(f"DROP TABLE lake.{name}.b")
    # The table c moves on without a record; b does not, whatever others get.
    for to in ("ab", "a", "ca"):
        times, news = run(to)
        assert (news, times[1]) == ([True, False, True], before[1])
    create("b")
    assert run("a", on_table_reset="refill")[1] == [True, True, True]
    # A log of an earlier release does not say it.
    spark.sql(f"ALTER TABLE {config.quoted_commit_log} DROP COLUMNS (ends_read_at, behind)")
    assert commit_log.valid_through(spark, config.quoted_commit_log, name) == {}
    spark.sql(f"DROP TABLE lake.{name}.c")
    times, news = run("ac")
    assert (news, times[2]) == ([True, True, False], None)


def ages(lags):
    return [round(each["lag_seconds"], -2) for each in lags]


def it_says_what_each_partition_and_table_lacks_and_writes_nothing(spark, config, create, topic, name, tmp_path):
    def lags(status):
        of_partitions = [(each["read"], each["end"], each["lag_records"]) for each in status.partitions]
        return of_partitions, [(each["state"], each["lag_records"]) for each in status.tables]

    an_hour_ago = int(1000 * (time.time() - 3600))
    topic.send({"id": 0, "to": "a"}, {"id": 1, "to": "b"}, partition=0, timestamp=an_hour_ago)
    first = ingest_status(spark, config)
    assert (first.state, "has not run" in first.problems[0], ages(first.partitions)) == ("unknown", True, [3600, 0])
    assert lags(first) == ([(0, 2, 2), (0, 0, 0)], [])
    assert spark.sql("SHOW NAMESPACES IN lake").where(f"namespace = '{name}'").isEmpty()

    create("a")
    ingest(spark, config.replace(metrics_folder=str(tmp_path)))  # there is no table b
    published = samples((tmp_path / f"icecdc-{name}-ingest.prom").read_text())
    assert published["icecdc_ingest_lag_records", f'partition="0",topic="{topic.name}"'] == 0
    of_b = [
        published[f"icecdc_ingest_table_lag_{unit}", f'destination="`lake`.`{name}`.`b`"']
        for unit in ("records", "seconds")
    ]
    assert (of_b[0], of_b[1] > 3599) == (2, True)
    topic.send({"id": 2, "to": "a"}, partition=1, timestamp=an_hour_ago + 3_000_000)
    topic.send_in_transaction({"id": 3, "to": "a"}, commit=False)
    behind, (at, end) = ingest_status(spark, config), topic.ends().values()
    assert lags(behind) == ([(2, at, at - 2), (0, end, end)], [(WRITTEN, at + end - 2), (BEHIND, at + end)])
    # The aborted record is no record, and its partition may have no other.
    assert (behind.state, ages(behind.partitions), ages(behind.tables)) == ("behind", [0, 600], [600, 3600])
    a, b = behind.tables
    assert (a["rows"], a["offsets"], "does not exist" in b["error"]) == (1, {topic.name: {0: 2, 1: 0}}, True)
    assert [bool(each["valid_through"]) for each in (a, b)] == [True, False]

    create("b")
    ingest(spark, config)
    entries = spark.table(config.quoted_commit_log).count()
    done = ingest_status(spark, config)
    assert (done.state, ages(done.partitions + done.tables)) == ("ok", [0] * 4)
    assert spark.table(config.quoted_commit_log).count() == entries
    topic.send({"id": 4, "to": "a"}, {"id": 5, "to": "a"}, partition=1)
    topic.remove_before(1, end + 1)
    spark.sql(f"DROP TABLE lake.{name}.a")
    lost = ingest_status(spark, config)
    assert (lost.state, lost.partitions[1]["lag_records"], "removed 1 records" in lost.problems[0]) == ("lost", 1, True)
    has_time = [bool(each["valid_through"]) for each in lost.tables]
    assert ("`a` was dropped" in lost.problems[1], has_time) == (True, [False, True])


def it_is_behind_if_a_table_lacks_records_of_a_topic_that_is_no_longer_read():
    lacks = {"destination": "t", "lag_records": 0, "lag_seconds": 0.0}
    states = [IngestStatus("j", tables=[{**lacks, "state": state}]).state for state in (WRITTEN, BEHIND)]
    assert states == ["ok", "behind"]


def it_claims_no_time_while_a_partition_or_a_topic_that_was_just_added_has_unread_records(
    spark, make_ingest, topic, kafka
):
    config, ends = make_ingest(topics="", topic_pattern=f"{topic.name}.*"), {topic.name: {0: 0, 1: 0}}
    with closing(Topics(spark, config)) as topics:
        batches = Batches(config, "run", topics, None, None, 0, {}, {}, {})
        assert batches._valid_through(ends)
        topic.add_partitions(3)
        topic.send({"id": 1}, partition=2)
        assert batches._valid_through(ends) is None
        ends[topic.name][2] = 1
        assert batches._valid_through(ends)
        type(topic)(kafka, name=f"{topic.name}.more").send({"id": 2})
        assert batches._valid_through(ends) is None


def it_is_printed_for_each_ingest_of_a_file(config, name, tmp_path, capsys):
    given = {each: getattr(config, each) for each in sorted(config.model_fields_set)}
    given["catalog_properties"] = dict(config.catalog_properties)
    (tmp_path / "ingests.yml").write_text(json.dumps({"ingests": {name: given}}))
    assert main(["status", "--ingest", "--file", str(tmp_path / "ingests.yml")]) == 12
    assert f"{name} has not run" in capsys.readouterr().out


def it_counts_dead_letters_by_reason_whatever_values_they_quote(spark, config, create, static, name):
    create("a")
    assert count_by_reason(spark, config) == []
    wrong = [{"id": f"it's {number}'", "to": "a"} for number in range(5)]
    static(config).send(*wrong, *({"id": 1, "to": f"x has: {number}\n`"} for number in range(3)), b"no json", {"id": 1})
    assert [tuple(each.values()) for each in count_by_reason(spark, config)] == [
        (f"`lake`.`{name}`.`a`", "field id: ... is not of type bigint", 5),
        ("", "no table: the field to has ...", 3),
        ("", "no table: the field to is missing", 2),
    ]
