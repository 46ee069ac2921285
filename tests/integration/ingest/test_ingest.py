"""Kafka to Iceberg against a real broker: every record once, in the right table, or among the dead letters."""

import json
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from functools import partial

import pytest

from icecdc_core.errors import (
    KafkaAuthError,
    KafkaError,
    KafkaUnreachableError,
    SchemaRegistryError,
    TopicNotFoundError,
    TopicReplacedError,
)
from icecdc_core.ingest import commit_log, ingest
from icecdc_core.ingest.commit_log import BATCH, JOB, OFFSETS, VALID_THROUGH
from icecdc_core.ingest.formats import schemas
from icecdc_core.ingest.job import IngestRun
from icecdc_core.ingest.kafka import Topics
from icecdc_core.ingest.table import Writer
from tests.checks.ingested import at_once, dead_letters, rows
from tests.given.kafka_records import people
from tests.servers.schema_registry import framed, registry_of, zigzag

CREATE = "CREATE TABLE {t} (id BIGINT NOT NULL, name STRING) USING iceberg"


def expected(start, end):
    return [(number, f"n{number}") for number in range(start, end)]


class DescribeIngest:
    def it_writes_every_committed_record_once_and_its_offsets_into_the_snapshot(self, spark, sql, make_ingest, topic):
        config = make_ingest(max_records_per_batch=40)
        sql("CREATE TABLE {t} (id BIGINT, name STRING, x DOUBLE) USING iceberg")
        topic.send(*people(0, 70))
        before = datetime.now(UTC)
        first = ingest(spark, config)
        summaries = [row.summary for row in sql("SELECT * FROM {t}.snapshots ORDER BY committed_at").collect()]
        assert [(each[JOB], each[BATCH]) for each in summaries] == [(config.job, "0"), (config.job, "1")]
        assert json.loads(summaries[1][OFFSETS])[topic.name] == {str(p): end for p, end in topic.ends().items()}
        # Only the second batch reached the end of the topic.
        assert [each.get(VALID_THROUGH) for each in summaries] == [None, first.valid_through]
        logged = spark.table(config.quoted_commit_log).where(f"job = '{config.job}' AND kind = 'batch'")
        times = [row.valid_through for row in logged.orderBy("batch").collect()]
        assert datetime.fromisoformat(first.valid_through) > before
        assert [moment is not None for moment in times] == [False, True]

        topic.send_in_transaction(*people(70, 75), commit=True)
        topic.send_in_transaction(*people(100, 105), commit=False)
        topic.send_in_transaction(*people(75, 80), commit=True)
        values = [{"id": 1, "x": 1}, {"id": "one"}, b'{"id": 2, "x": 1e999}', {"x": "Infinity"}]
        begin = topic.ends()[0]
        topic.send(*values, partition=0, key="k", headers=[("h", b"v")])
        second, third = ingest(spark, config), ingest(spark, config)
        found = [(row.id, row.name, row.x) for row in spark.table(config.table).collect()]
        assert sorted(row[:2] for row in found if row[2] is None) == expected(0, 80)
        assert sorted((row[0] or 0, row[2]) for row in found if row[2] is not None) == [(0, float("inf")), (1, 1.0)]
        assert (first.batches, second.batches, third.batches) == (2, 1, 0)
        assert [report.rows_written for report in (first, second, third)] == [70, 12, 0]
        reasons = ["field id: 'one' is not of type bigint", "field x is too big for double"]
        kept = sorted(
            (row.offset - begin, row.reason, bytes(row.value), row.key, row.headers[0].key)
            for row in dead_letters(spark, config)
        )
        assert kept == [(1, reasons[0], b'{"id": "one"}', b"k", "h"), (2, reasons[1], values[2], b"k", "h")]
        assert second.dead_letters == 2

    def it_reads_new_partitions_and_what_came_after_a_start_at_the_end(self, spark, sql, make_ingest, topic):
        config = make_ingest(starting_offsets="latest")
        sql(CREATE)
        ingest(spark, config)
        topic.send(*people(0, 10))
        topic.add_partitions(4)
        topic.send(*people(10, 20), partition=3)
        ingest(spark, config)
        assert rows(spark, config.table) == expected(0, 20)


class DescribeAnIngestThatIsCutOff:
    def it_gives_tables_only_what_they_lack_of_a_batch(self, spark, make_ingest, topic, monkeypatch):
        config = make_ingest(route_by="field", route_field="kind", table_concurrency=1)
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {config.namespace}")
        for table in "ab":
            spark.sql(f"CREATE TABLE {config.namespace}.{table} (id BIGINT, kind STRING) USING iceberg")
        topic.send(*({"id": number, "kind": "ab"[number % 2]} for number in range(20)), b"no json")
        topic.send({"id": "x", "kind": "a"}, {"id": "x", "kind": "b"})
        own, log = Writer.write, commit_log.write
        cuts = [
            # At table b, then with all tables written, before the commit log.
            (Writer, "write", lambda s, spark, n, *given: exit("killed") if "`b`" in n else own(s, spark, n, *given)),
            (commit_log, "write", lambda s, n, e: log(s, n, e) if e.kind == "start" else exit("killed")),
        ]
        for owner, name, cut_off in cuts:
            with monkeypatch.context() as cut:
                cut.setattr(owner, name, cut_off)
                with pytest.raises(SystemExit):
                    ingest(spark, config)
        topic.send(*({"id": number, "kind": "ab"[number % 2]} for number in range(20, 30)))
        report = ingest(spark, config)
        actual = {t: sorted(r.id for r in spark.table(f"{config.namespace}.{t}").collect()) for t in "ab"}
        assert actual == {t: list(range(start, 30, 2)) for start, t in enumerate("ab")}
        assert (report.rows_written, len(dead_letters(spark, config))) == (10, 3)

    @pytest.mark.parametrize(
        "given", [{}, {"branch": "audit"}, {"mode": "upsert", "identifier_columns": "id"}], ids=str
    )
    def it_writes_nothing_twice_when_two_copies_run_at_once(self, spark, make_ingest, topic, given):
        config = make_ingest(auto_create=True, max_records_per_batch=60, compact_min_files=2, **given)
        topic.send(*people(0, 100), b"no json")
        reports = at_once(*(partial(ingest, spark.newSession(), config) for _ in range(2)))
        assert sum(report.rows_written for report in reports) == 100
        written = spark.sql(f"SELECT * FROM {config.table} VERSION AS OF '{config.branch}'")
        assert sorted(map(tuple, written.collect())) == expected(0, 100)
        assert len(dead_letters(spark, config)) == 1
        assert rows(spark, config.table) == ([] if config.branch == "audit" else expected(0, 100))


class DescribeTopics:
    def it_refuses_a_topic_that_was_made_again_after_it_was_away_for_long(self, spark, sql, make_ingest, topic, kafka):
        other = type(topic)(kafka, partitions=1, name=f"{topic.name}.other")
        start = {"starting_offsets": "2025-01-01T00:00:00Z"}
        config = make_ingest(topics="", topic_pattern=f"{topic.name}.*", **start)
        sql(CREATE)
        other.send(*people(100, 105), timestamp=1_700_000_000_000)
        other.send(*people(0, 5), timestamp=1_760_000_000_000)
        ingest(spark, config)
        other.delete()
        topic.send(*people(5, 8), partition=0)
        assert (ingest(spark, config).batches, rows(spark, config.table)) == (1, expected(0, 8))
        type(topic)(kafka, partitions=1, name=other.name).send(*people(8, 20))
        with pytest.raises(TopicReplacedError, match="not the one that was read"):
            ingest(spark, config)


class DescribeSchemasBesideOthers:
    def it_writes_what_it_can_whatever_other_schemas_are_and_while_the_registry_is_gone(
        self, spark, make_ingest, topic, kafka, monkeypatch
    ):
        long = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}]}
        endless = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}
        reference = {"name": "x", "subject": "gone", "version": 1}
        answers = {1: {"schema": json.dumps(long)}, 2: {"schema": json.dumps(endless)}}
        answers[3] = {"schema": json.dumps(long), "references": [reference]}
        bad = type(topic)(kafka, partitions=1, name=f"{topic.name}_bad")

        def good(number):
            return bytes(framed(1, zigzag(number)))

        topic.send(good(0), good(1), key="k")
        # Readable, recursive, one without its reference, one unknown, one that no registry can have, no Avro.
        bad.send(good(2), *(bytes(framed(number, b"\0")) for number in (2, 3, 4, (1 << 32) - 1)), b"{}", key="k")
        writes, written = [], Writer.write
        with ExitStack() as until_it_is_gone:
            url = until_it_is_gone.enter_context(registry_of(answers)).url

            def write(*given):
                writes.append(written(*given))
                if len(writes) == 2:
                    until_it_is_gone.close()
                    topic.send(good(3), key="k")
                return writes[-1]

            monkeypatch.setattr(Writer, "write", write)
            config = make_ingest(
                route_by="topic",
                topics=[topic.name, bad.name],
                format="avro",
                schema_registry_url=url,
                auto_create=True,
                table_concurrency=1,
                trigger="continuous",
                trigger_interval_seconds=0.5,
                max_seconds=3600,
            )
            report = IngestRun(spark, config, clock=lambda: 4000.0 if len(writes) > 2 else 0.0).run()
            tables = [f"{config.namespace}.{one.name}" for one in (topic, bad)]
            assert [sorted(row.id for row in spark.table(table).collect()) for table in tables] == [[0, 1, 3], [2]]
            assert (report.state, report.dead_letters) == ("ok", 5)
            expected_reasons = [
                "schema 2 cannot be understood",
                "version 1 of subject gone, to which schema 3 refers",
                "no schema 4",
                "no schema 4294967295",
                "does not start with a zero byte",
            ]
            reasons = [row.reason for row in dead_letters(spark, config)]
            assert all(words in reason for words, reason in zip(expected_reasons, reasons, strict=True)), reasons
            # Nobody can say what an unknown schema is while the registry is gone: the records wait.
            monkeypatch.setattr(schemas, "_RETRY_SECONDS", (0.0, 0.0))
            monkeypatch.setattr(Writer, "write", written)
            topic.send(bytes(framed(5, zigzag(4))), key="k")
            with pytest.raises(SchemaRegistryError, match=r"cannot be read.*nothing of the batch was written"):
                ingest(spark, config.replace(trigger="available_now", max_seconds=0))
            answers[5] = answers[1]
        with registry_of(answers) as running:
            again = config.replace(trigger="available_now", max_seconds=0, schema_registry_url=running.url)
            report = ingest(spark, again)
        assert (report.state, report.rows_written) == ("ok", 1)


def it_names_brokers_that_do_not_answer_or_refuse_credentials_and_a_wrong_client_property(spark, make_ingest):
    quick = {"request.timeout.ms": "500", "default.api.timeout.ms": "500"}
    for servers in ("127.0.0.1:9", "no-such-host.invalid:9092"):
        with pytest.raises(KafkaUnreachableError, match="No broker answers") as unreachable:
            Topics(spark, make_ingest(bootstrap_servers=servers, kafka_options=quick)).names()
        assert unreachable.value.value == servers
    options = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required username=u password=p;",
    }
    # This broker has no SASL, so it refuses the handshake.
    with pytest.raises(KafkaAuthError, match="refuse the credentials"):
        Topics(spark, make_ingest(kafka_options=options)).names()
    with pytest.raises(KafkaError, match=r"Kafka failed: .*security.protocol") as caught:
        Topics(spark, make_ingest(kafka_options={"security.protocol": "none such"}))
    assert type(caught.value) is KafkaError


def it_finds_topics_by_name_and_by_pattern_and_names_those_that_do_not_exist(spark, make_ingest, topic):
    topic.send({"id": 1}, partition=0)
    pattern = {"topics": "", "topic_pattern": f"{topic.name}|none"}
    for found, missing in (({}, {"topics": "nowhere"}), (pattern, {**pattern, "topic_pattern": "now.ere"})):
        with closing(Topics(spark, make_ingest(**found))) as topics:
            names = topics.names()
            ends = topics.earliest(names), topics.latest(names)
        assert (names, ends) == ([topic.name], ({topic.name: {0: 0, 1: 0}}, {topic.name: {0: 1, 1: 0}}))
        with closing(Topics(spark, make_ingest(**missing))) as topics, pytest.raises(TopicNotFoundError) as caught:
            topics.names()
        assert caught.value.subject == list(missing)[-1]
