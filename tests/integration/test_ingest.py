"""Kafka to Iceberg against a real broker: every record once, in the right table, or among the dead letters."""

from __future__ import annotations

import json

import pytest

from icecdc_core.errors import (
    LostOffsetsError,
    TableNotFoundError,
    TableReplacedError,
    TableRolledBackError,
    TopicNotFoundError,
    TopicReplacedError,
)
from icecdc_core.ingest import ingest
from icecdc_core.ingest.marks import BATCH, JOB, OFFSETS, VALID_THROUGH

CREATE = "CREATE TABLE {t} (id BIGINT, name STRING) USING iceberg"


def people(start, end):
    return [{"id": number, "name": f"n{number}"} for number in range(start, end)]


def rows(spark, config):
    return sorted((row.id, row.name) for row in spark.table(config.table).collect())


def expected(start, end):
    return [(number, f"n{number}") for number in range(start, end)]


def letters(spark, config):
    return spark.table(config.quoted_dead_letters).where(f"job = '{config.job}'").collect()


class DescribeIngest:
    def it_takes_every_record_once(self, spark, sql, make_ingest, topic):
        config = make_ingest(max_records_per_batch=40)
        sql(CREATE)
        topic.send(*people(0, 100))
        first = ingest(spark, config)
        topic.send(*people(100, 110))
        second, third = ingest(spark, config), ingest(spark, config)
        assert rows(spark, config) == expected(0, 110)
        assert (first.batches, second.batches, third.batches) == (3, 1, 0)
        assert [report.rows_written for report in (first, second, third)] == [100, 10, 0]

    def it_writes_batch_and_offsets_into_the_snapshot(self, spark, sql, make_ingest, topic):
        config = make_ingest()
        sql(CREATE)
        topic.send(*people(0, 10))
        report = ingest(spark, config)
        (summary,) = [row.summary for row in sql("SELECT * FROM {t}.snapshots").collect()]
        assert (summary[JOB], summary[BATCH]) == (config.job, "0")
        assert json.loads(summary[OFFSETS])[topic.name] == {str(p): end for p, end in topic.ends().items()}
        assert summary[VALID_THROUGH] == report.valid_through

    def it_drops_what_a_table_has_when_the_commit_log_is_lost(self, spark, sql, make_ingest, topic):
        config = make_ingest(starting_offsets="latest")
        sql(CREATE)
        ingest(spark, config)
        topic.send(*people(0, 20))
        ingest(spark, config)
        spark.sql(f"DROP TABLE {config.quoted_commit_log}")
        topic.send(*people(20, 30))
        ingest(spark, config)
        assert rows(spark, config) == expected(0, 30)

    def it_keeps_what_does_not_fit_as_dead_letters(self, spark, sql, make_ingest, topic):
        config = make_ingest()
        sql(CREATE)
        topic.send({"id": 1, "name": "one"}, b"no json", {"id": "two"}, partition=0, key="k", headers=[("h", b"v")])
        report = ingest(spark, config)
        kept = sorted(
            (letter.offset, letter.value, letter.key, letter.headers[0].key) for letter in letters(spark, config)
        )
        assert (rows(spark, config), report.dead_letters) == ([(1, "one")], 2)
        assert kept == [(1, b"no json", b"k", "h"), (2, b'{"id": "two"}', b"k", "h")]
