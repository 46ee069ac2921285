"""Batches of static records, for what an ingest does with records, whatever brings them."""

import json
from functools import partial

import pytest
from pyspark.sql import functions as F

from icecdc_core.ingest import commit_log
from icecdc_core.ingest.batch import Batches, SharedParse
from icecdc_core.ingest.config import quoted_table
from icecdc_core.ingest.dead_letters import DeadLetters
from icecdc_core.ingest.destinations import create_namespace
from icecdc_core.ingest.expressions import used_expressions
from icecdc_core.ingest.table import Writer
from icecdc_core.session.job_session import job_session
from tests.given import kafka_records


class StaticTopic:
    """Writes batches of static records into the tables, as a run does with those of a topic of one partition."""

    def __init__(self, spark, config, tables=()):
        create_namespace(spark, config.quoted_namespace)
        commit_log.create(spark, config.quoted_commit_log)
        self.spark, self.sent = spark, 0
        self.writer = Writer(config, DeadLetters(config, "run"), {}, {"topic": {0: 0}})
        shared = SharedParse(config, [quoted_table(table) for table in tables])
        self.batches = Batches(config, "run", self, self.writer, shared, 0, {}, {}, {}, used_expressions(spark, config))

    def ids(self, names):
        return {}

    def latest(self, names):
        return {"topic": {0: self.sent}}

    def send(self, *values, key=None, error=None):
        """Write a batch of these records, which have one key or a list of keys; returns its entry in the log."""
        texts = [json.dumps(value) if isinstance(value, list) else value for value in values]
        keys = key if isinstance(key, list) else [key] * len(texts)
        records = kafka_records.records(self.spark, zip(keys, texts, strict=True))
        records = records.withColumn("offset", F.col("offset") + self.sent)
        records = records.withColumn("headers", F.expr("CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>)"))
        start, self.sent = self.sent, self.sent + len(values)
        entry = self.batches.process(records, {"topic": {0: start}}, {"topic": {0: self.sent}})
        assert [type(each) for each in self.batches.behind.values()] == ([error] if error else [])
        return entry


@pytest.fixture(scope="session")
def own_tables(spark):
    """The commit log and the table of dead letters: one each for all tests, as making them takes long."""
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.ingests")
    return {"commit_log_table": "lake.ingests.icecdc_log", "dead_letter_table": "lake.ingests.icecdc_dead_letters"}


@pytest.fixture
def make_ingest(make_ingest, own_tables):
    return lambda **given: make_ingest(**{**own_tables, **given})


@pytest.fixture
def static(spark):
    """Make a `StaticTopic`, with a session like that of a run."""
    with job_session(spark) as session:
        yield partial(StaticTopic, session)
