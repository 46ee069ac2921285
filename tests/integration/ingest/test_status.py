"""An ingest seen from outside: what its tables have, and what they lack."""

import time
from contextlib import closing
from datetime import UTC, datetime

from icecdc_core.ingest import commit_log, ingest
from icecdc_core.ingest.batch import Batches
from icecdc_core.ingest.commit_log import BEHIND, WRITTEN
from icecdc_core.ingest.dead_letters import count_by_reason
from icecdc_core.ingest.kafka import Topics
from icecdc_core.ingest.status import ingest_status
from tests.checks.doc_blocks import all_blocks
from tests.checks.metric_samples import samples


def valid_through(spark, config):
    """The time of each table, by the query that docs/kafka.md shows and by the code."""
    [query] = (each.text for each in all_blocks() if each.page == "docs/kafka.md" and each.language == "sql")
    query = query.replace("lake.shop.icecdc_ingest_log", config.quoted_commit_log)
    query = query.replace("'orders'", f"'{config.job}'")
    shown = {row.name: row.valid_through for row in spark.sql(query).collect()}
    found = commit_log.valid_through(spark, config.quoted_commit_log, config.job)
    assert {name: time.astimezone(UTC) for name, time in shown.items() if time} == found
    return [found.get(f"`lake`.`{config.job}`.`{table}`") for table in "abc"]


def it_says_up_to_when_each_table_has_every_record(spark, make_ingest, topic, name):
    spark.sql(f"CREATE NAMESPACE lake.{name}")
    for table in "abc":
        spark.sql(f"CREATE TABLE lake.{name}.{table} (id BIGINT) USING iceberg")
    config = make_ingest(route_by="field", route_field="to", commit_log_table=f"lake.{name}.log")

    def run(*to, **parameters):
        topic.send(*({"id": number, "to": table} for number, table in enumerate(to)))
        begin = datetime.now(UTC)
        report = ingest(spark, config.replace(**parameters))
        times = valid_through(spark, config)
        reported = {each["valid_through"] for each in report.tables.values()}
        assert reported <= {"", *(time.isoformat() for time in times if time and time > begin)}
        return [time is not None and time > begin for time in times], times

    assert run("a", "b", "c")[0] == [True, True, True]
    spark.sql(f"DROP TABLE lake.{name}.b")
    before = valid_through(spark, config)
    # The table c gets no record and moves on; b does not, whatever others get.
    for to in ("ab", "a", "ca"):
        news, times = run(*to)
        assert (news, times[1]) == ([True, False, True], before[1])
    spark.sql(f"CREATE TABLE lake.{name}.b (id BIGINT) USING iceberg")
    assert run("a", on_table_reset="refill")[0] == [True, True, True]
    # A log of an earlier release says of none of its tables what it did not know.
    spark.sql(f"ALTER TABLE {config.quoted_commit_log} DROP COLUMNS (ends_read_at, behind)")
    spark.sql(f"DROP TABLE lake.{name}.c")
    assert run("a", "c")[0] == [True, True, False]
    assert valid_through(spark, config)[2] is None


def lags(status):
    """What the status says of partitions and tables, without the age of what is unread."""
    of_partitions = {each["partition"]: (each["read"], each["end"], each["lag_records"]) for each in status.partitions}
    return of_partitions, {each["table"][-2]: (each["state"], each["lag_records"]) for each in status.tables}


def ages(lags):
    return [each["lag_seconds"] and round(each["lag_seconds"], -2) for each in lags]


def it_says_what_each_partition_and_table_lacks_and_writes_nothing(spark, make_ingest, topic, name, tmp_path):
    config = make_ingest(route_by="field", route_field="to", commit_log_table=f"lake.{name}.log")
    an_hour_ago = int(1000 * (time.time() - 3600))
    topic.send({"id": 0, "to": "a"}, {"id": 1, "to": "b"}, partition=0, timestamp=an_hour_ago)
    first = ingest_status(spark, config)
    assert (first.state, first.problem_state, "has not run" in first.problems[0]) == ("unknown", "unknown", True)
    assert (lags(first), ages(first.partitions)) == (({0: (0, 2, 2), 1: (0, 0, 0)}, {}), [3600, 0])
    assert spark.sql("SHOW NAMESPACES IN lake").where(f"namespace = '{name}'").isEmpty()

    spark.sql(f"CREATE NAMESPACE lake.{name}")
    spark.sql(f"CREATE TABLE lake.{name}.a (id BIGINT) USING iceberg")
    ingest(spark, config.replace(metrics_folder=str(tmp_path)))  # there is no table b
    published = samples((tmp_path / f"icecdc-{name}-ingest.prom").read_text())
    assert published["icecdc_ingest_lag_records", f'partition="0",topic="{topic.name}"'] == 0
    of_b = f'destination="`lake`.`{name}`.`b`"'
    assert published["icecdc_ingest_table_lag_records", of_b] == 2
    assert published["icecdc_ingest_table_lag_seconds", of_b] > 3599
    topic.send({"id": 2, "to": "a"}, partition=1, timestamp=an_hour_ago + 3_000_000)
    topic.send_in_transaction({"id": 3, "to": "a"}, commit=False)
    behind = ingest_status(spark, config)
    ends = topic.ends()
    expected = {0: (2, ends[0], ends[0] - 2), 1: (0, ends[1], ends[1])}
    unread = sum(ends.values())
    assert lags(behind) == (expected, {"a": (WRITTEN, unread - 2), "b": (BEHIND, unread)})
    # The aborted record is no record, and its partition has no other.
    assert (behind.state, ages(behind.partitions), ages(behind.tables)) == ("behind", [0, 600], [600, 3600])
    [a, b] = behind.tables
    assert (a["rows"], a["offsets"], b["valid_through"]) == (1, {topic.name: {0: 2, 1: 0}}, "")
    assert "does not exist" in b["error"]
    assert a["valid_through"] > "2026"

    spark.sql(f"CREATE TABLE lake.{name}.b (id BIGINT) USING iceberg")
    ingest(spark, config)
    before = spark.table(config.quoted_commit_log).count()
    done = ingest_status(spark, config)
    assert (done.state, ages(done.partitions + done.tables)) == ("ok", [0] * 4)
    assert spark.table(config.quoted_commit_log).count() == before
    topic.remove_before(1, ends[1])
    topic.send({"id": 4, "to": "a"}, {"id": 5, "to": "a"}, partition=1)
    topic.remove_before(1, ends[1] + 1)
    spark.sql(f"DROP TABLE lake.{name}.a")
    lost = ingest_status(spark, config)
    assert (lost.state, lost.partitions[1]["lag_records"], "removed 1 records" in lost.problems[0]) == ("lost", 1, True)
    assert ("`a` was dropped" in lost.problems[1], [bool(each["valid_through"]) for each in lost.tables]) == (
        True,
        [False, True],
    )


def it_claims_no_time_while_a_partition_or_a_topic_that_was_just_added_has_unread_records(
    spark, make_ingest, topic, kafka
):
    config = make_ingest(topics="", topic_pattern=f"{topic.name}.*")
    with closing(Topics(spark, config)) as topics:
        batches = Batches(config, "run", topics, None, None, 0, {}, {}, {})
        ends = {topic.name: {0: 0, 1: 0}}
        assert batches._valid_through(ends)
        topic.add_partitions(3)
        topic.send({"id": 1}, partition=2)
        assert batches._valid_through(ends) is None
        ends[topic.name][2] = 1
        assert batches._valid_through(ends)
        type(topic)(kafka, name=f"{topic.name}.more").send({"id": 2})
        assert batches._valid_through(ends) is None


def it_counts_dead_letters_by_reason_whatever_values_they_quote(spark, make_ingest, static, name):
    spark.sql(f"CREATE NAMESPACE lake.{name}")
    spark.sql(f"CREATE TABLE lake.{name}.a (id BIGINT) USING iceberg")
    config = make_ingest(route_by="field", route_field="to", dead_letter_table=f"lake.{name}.letters")
    assert count_by_reason(spark, config) == []
    wrong = [{"id": f"it's {number}'", "to": "a"} for number in range(5)]
    static(config).send(*wrong, *({"id": 1, "to": f"x has: {number}\n`"} for number in range(3)), b"no json", {"id": 1})
    expected = [
        (5, f"`lake`.`{name}`.`a`", "field id: ... is not of type bigint"),
        (3, "", "no table: the field to has ..."),
        (2, "", "no table: the field to is missing"),
    ]
    for most, listed in ((100, expected), (1, [expected[0], (5, "", "others")])):
        found = count_by_reason(spark, config, most)
        assert [(each["count"], each["table"], each["reason"]) for each in found] == listed
