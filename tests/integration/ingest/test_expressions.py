"""SQL over whole records: what names mean in every format, what is refused, and what becomes of records."""

import hashlib
import json
import re
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from icecdc_core.errors import ConfigError
from icecdc_core.ingest import IngestConfig, ingest
from icecdc_core.ingest.decoding import TABLE, decode_records, route_records
from icecdc_core.ingest.expressions import Expressions
from icecdc_core.ingest.formats.change_events import name_key
from icecdc_core.ingest.formats.schemas import RegisteredSchema
from icecdc_core.session.job_session import job_session
from icecdc_core.session.spark import settings_unless_set
from tests.given.kafka_records import records
from tests.servers.schema_registry import NULL, SOME, framed, text, zigzag

HEADERS = "transform(array('u', 'd'), value -> struct('op' AS key, CAST(value AS BINARY) AS value))"
SETTINGS = {"spark.sql.caseSensitive": "true", "spark.sql.mapKeyDedupPolicy": "LAST_WIN"}


def configured(**given):
    target = {} if "route" in given else {"table": "lake.a.t"}
    given |= {"route_by": "expression", "namespace": "lake.a"} if "route" in given else {}
    kafka = {"job": "j", "bootstrap_servers": "127.0.0.1:9", "topics": "topic", "schema_registry_url": "http://x:9"}
    return IngestConfig(**{**kafka, **target, **given})


@pytest.fixture
def evaluate(spark):
    """Decode pairs of key and value and apply expressions; gives the rows that are left."""

    def run(pairs, schemas=None, **given):
        with job_session(spark) as session, settings_unless_set(session, SETTINGS):
            config = configured(**given)
            expressions = Expressions(session, config)
            expressions.check(session)
            source = records(session, pairs).withColumn("headers", F.expr(HEADERS))
            source = source.withColumn("timestamp", F.timestamp_millis(F.lit(1_700_000_000_000)))
            decoded, filtered = expressions.evaluate(
                decode_records(source, config, schemas, expressions.envelope_fields)
            )
            routed = route_records(decoded, config) if config.route else decoded
            found = name_key(routed, config.identifier_columns, None, None).orderBy("offset").collect()
            return found if filtered is None else (found, filtered.value())

    return run


ROW = {"id": 7, "n": {"x": 1.5, "y": [1, None]}, "s": "1", "op": "mine", "topic": "theirs"}
SOURCE = {"table": "orders", "lsn": 2**53 + 1}
EVENT = {"op": "u", "before": {"id": 6, "s": "0"}, "after": ROW, "source": SOURCE, "ts_ms": 17}
IN_SCHEMA = {
    "type": "struct",
    "fields": [
        *(
            {"field": name, "type": "struct", "optional": True, "fields": [{"field": "id", "type": "int32"}]}
            for name in ("before", "after")
        ),
        {"field": "op", "type": "string"},
        {"field": "source", "type": "struct", "fields": [{"field": "lsn", "type": "int64"}]},
    ],
}
LSN = {"type": "record", "name": "l", "fields": [{"name": "lsn", "type": "long"}]}
AVRO_ROW = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "int"}, {"name": "s", "type": "string"}]}
AVRO_EVENT = {
    "type": "record",
    "name": "e",
    "fields": [
        {"name": "before", "type": ["null", AVRO_ROW]},
        {"name": "after", "type": ["null", "r"]},
        {"name": "source", "type": LSN},
        {"name": "op", "type": "string"},
    ],
}
SCHEMAS = {number: RegisteredSchema("AVRO", json.dumps(each)) for number, each in enumerate((AVRO_ROW, AVRO_EVENT), 1)}
DMS = {"data": ROW, "metadata": {"operation": "insert", "table-name": "orders"}}
AVRO = zigzag(7) + text("1")


class DescribeNames:
    @pytest.mark.parametrize(
        ("format_", "value", "selected"),
        [
            ("json", ROW, {"op": "mine", "n.x": 1.5, "n.y": [1, None], "value.topic": "theirs"}),
            ("json", ROW, {"topic": "topic", "partition": 0, "offset": 0, "key": "k", "headers['op']": "d"}),
            ("json", ROW, {"timestamp": "2023-11-14T22:13:20.000000Z", "value": ROW, "none": None, "n.none": None}),
            ("json", ROW, {"s || n.x || n.y": "11.5[1,null]", "exists(array('1'), e -> e = s)": True}),
            ("avro", framed(1, AVRO), {"id": 7, "s": "1", "offset": 0}),
            ("debezium_json", EVENT, {"op": "u", "value.op": "mine", "source.lsn": 2**53 + 1, "before.s": "0"}),
            ("debezium_json", EVENT, {"source": SOURCE, "ts_ms": 17, "CAST(ts_ms AS INT) + 1": 18, "after.id": 7}),
            (
                "debezium_json",
                {"schema": IN_SCHEMA, "payload": {**EVENT, "after": {"id": 7}}},
                {"op": "u", "source.lsn": 2**53 + 1, "source.lsn || op": f"{2**53 + 1}u", "id": 7, "before.id": 6},
            ),
            (
                "debezium_avro",
                framed(2, NULL + SOME + AVRO + zigzag(2**53 + 1) + text("c")),
                {"op": "c", "source.lsn": 2**53 + 1, "id": 7, "CAST(source.lsn AS BIGINT) + 1": 2**53 + 2},
            ),
            ("dms", DMS, {"metadata['table-name']": "orders", "data.s": "1", "`metadata`.operation": "insert"}),
        ],
    )  # fmt: skip
    def it_resolves_a_name_to_kafkas_then_the_envelopes_then_the_rows(self, evaluate, format_, value, selected):
        names = {f"f{number}": expression for number, expression in enumerate(selected)}
        select = [f"{expression} AS {name}" for name, expression in names.items()]
        [row] = evaluate([("k", value)], SCHEMAS, format=format_, select=select)
        assert (row.problem, json.loads(row.payload)) == (None, dict(zip(names, selected.values(), strict=True)))


class DescribeRefusedExpressions:
    @pytest.mark.parametrize(
        ("given", "reason"),
        [
            ({"where": "id >"}, "where is no SQL expression"),
            ({"where": "id"}, "where is of type string.*CAST it to boolean"),
            ({"where": "nothing(id)"}, "where is no expression over a record"),
            ({"where": "rand() > 0.5"}, "where is not deterministic"),
            ({"where": "timestamp > current_timestamp"}, "where is not deterministic"),
            ({"where": "id IN (SELECT 1)"}, "where has a subquery"),
            ({"where": "s AND s.x = 1"}, "uses s.x both as a whole and by a field in it"),
            ({"route": "1"}, "route is of type int.*CAST it to string or array<string>"),
            ({"route": "explode(array('a', 'b'))"}, "route does not make one value of each record"),
            ({"operation": "max(op)"}, "operation does not make one value of each record"),
            ({"operation": "row_number() OVER (ORDER BY id)"}, "operation does not make one value of each record"),
            ({"select": ["*", "uuid() AS u"]}, "select is not deterministic"),
            ({"select": ["id", "upper(id)"]}, "without a name.*write expression AS name"),
            ({"select": ["id", "s AS id"]}, "makes the field id twice"),
            ({"select": ["NULL AS n"]}, "select is of type void"),
            ({"select": ["to_json(struct(*)) AS j"]}, r"\\* stands within it"),
        ],
    )
    def it_names_parameter_expression_and_remedy(self, spark, given, reason):
        with job_session(spark) as session, pytest.raises(ConfigError, match=f"(?s){reason}") as refused:
            Expressions(session, configured(**given)).check(session)
        [parameter] = given
        assert (refused.value.subject, refused.value.value in given[parameter]) == (parameter, True)
        assert "Remedy" in str(refused.value)

    def it_prints_nothing_about_the_values_that_it_tries(self, spark, capsys):
        Expressions(spark, configured(where="CAST(a AS INT) > 1")).check(spark)
        assert capsys.readouterr().err == ""

    def it_is_before_the_first_record(self, spark, make_ingest, topic):
        with pytest.raises(ConfigError, match="where is not deterministic"):
            ingest(spark, make_ingest(where="rand() > 0.5"))


class DescribeWhere:
    @pytest.mark.parametrize("plans", ["interpreted", "compiled_plans"])
    @pytest.mark.parametrize("given", [{}, {"select": ["CAST(a AS INT) AS n", "CAST(a AS INT) + 1 AS m"]}])
    def it_keeps_what_cannot_be_decoded_or_fails_as_dead_letters(self, evaluate, request, plans, given):
        if plans != "interpreted":
            request.getfixturevalue(plans)
        values = ['{"a": 1}', '{"a": 2}', "{", '{"a": "x"}', '{"b": 1}', '{"a": {"b": 1}}', None]
        found, filtered = evaluate([("{}", value) for value in values], where="CAST(a AS INT) > 1", **given)
        reasons = {row.offset: row.problem and row.problem[:20] for row in found}
        fails = "where: CAST(a AS INT"
        assert reasons == {1: None, 2: "not one JSON object:", 3: fails, 5: fails}
        assert filtered == 3

    def it_drops_by_a_header_without_a_look_at_the_record(self, evaluate):
        assert evaluate([(None, "{"), (None, '{"a": 1}')], where="headers['op'] <> 'd'") == ([], 2)

    def it_looks_at_the_whole_record(self, evaluate):
        found, filtered = evaluate([(None, "{"), (None, '{"a": 1}'), (None, '{"a": 2}')], where="value LIKE '%2%'")
        assert [(row.offset, bool(row.problem)) for row in found] == [(0, True), (2, False)]
        assert filtered == 1


class DescribeRoute:
    def it_sends_a_record_to_every_table_that_is_named_or_to_none(self, evaluate):
        values = [["a", "b", None, "a"], ["a", "x y"], ["icecdc_x"], [], None]
        pairs = [(None, {"to": value}) for value in values]
        found = evaluate(pairs, route="from_json(to, 'array<string>')")
        expected = [(0, "a"), (0, "b"), (1, "no table: route has a, x y"), (2, "no table: route has icecdc_x")]
        missing = "no table: route is missing"
        assert [(row.offset, (row[TABLE] or "")[-2:-1] or row.problem) for row in found] == [
            *expected,
            (3, missing),
            (4, missing),
        ]


class DescribeSelect:
    def it_selects_from_the_old_row_of_an_update_and_completes_the_key_of_a_tombstone(self, evaluate):
        update = {"op": "u", "before": {"a": 1}, "after": {"a": 2}, "source": {"lsn": 5}}
        pairs = [("k", update), ('{"a": 3}', None), ("4", None)]
        select = ["a AS id", "source.lsn AS lsn"]
        found = evaluate(pairs, format="debezium_json", mode="upsert", identifier_columns="id", select=select)
        assert [json.loads(row.payload) for row in found] == [{"id": 2, "lsn": 5}, {"a": 3, "id": 3}, {"id": "4"}]
        assert json.loads(found[0].before) == {"id": 1, "lsn": 5}

    def it_leaves_out_fields_and_refuses_a_number_that_it_would_round(self, evaluate):
        digits = "1" * 40
        pairs = [(None, value) for value in ('{"a": 1, "b": 2}', f'{{"a": {digits}}}', '{"b": 2}')]
        found = evaluate(pairs, select=["* EXCEPT (b)"])
        rounded = "a number in it has more digits than a double"
        assert [row.problem or json.loads(row.payload) for row in found] == [{"a": 1}, rounded, {}]
        kept = evaluate(pairs, select=["*", "offset AS at"])
        assert [row.payload for row in kept][1:] == [f'{{"a": {digits},"at":1}}', '{"b": 2,"at":2}']

    def it_gives_new_columns_the_types_of_its_expressions(self, spark, sql, make_ingest, static):
        config = make_ingest(auto_create=True, select=["CAST(a AS BIGINT) AS id", "CAST(b AS DATE) AS day", "topic"])
        static(config).send({"a": "1", "b": "2024-02-29"})
        assert sql("SELECT * FROM {t}").dtypes == [("id", "bigint"), ("day", "date"), ("topic", "string")]


RECORD = {"id": 7, "name": "Ann", "price": "1.5", "at": 1, "country": "DE", "address": {"city": "Bonn"}}
SMTS = {
    "Cast": {"price": 1.5},
    "ExtractField": {"city": "Bonn"},
    "Filter": None,
    "Flatten": {"address_city": "Bonn"},
    "HoistField": {"line": RECORD},
    "InsertField": {"origin": "topic", "sent_at": "2023-11-14T22:13:20.000000Z"},
    "MaskField": {"name": hashlib.sha256(b"Ann").hexdigest()},
    "ReplaceField": {"full_name": "Ann"},
    "TimestampConverter": {"at": "1970-01-01T00:00:00.001000Z"},
    "RegexRouter": ["Topic"],
    "TimestampRouter": ["topic_20231114"],
    "ContentBasedRouter": ["german"],
    "ByLogicalTableRouter": ["orders"],
    "HeaderToValue": {"said": "d"},
    "ExtractNewRecordState": {"origin": "orders_shard1"},
}


def it_does_what_transformations_of_connect_do_as_the_page_says(evaluate):
    page = (Path(__file__).parents[3] / "docs/kafka.md").read_text(encoding="utf-8")
    found = re.findall(r"^\| `(\w+)` \| .*?`(where|route|select)=(.*?)`", page, re.MULTILINE)
    assert [name for name, _, _ in found] == [*SMTS]
    event = {"op": "c", "after": RECORD, "source": {"table": "orders_shard1"}}
    for name, parameter, text_ in found:
        rows = evaluate([("k", event)], format="debezium_json", **{parameter: text_})
        rows = rows if isinstance(rows, list) else rows[0]
        assert [row.problem for row in rows] == [None]
        if parameter == "route":
            assert [row[TABLE].split("`")[-2] for row in rows] == SMTS[name]
        elif parameter == "select":
            [row] = (json.loads(row.payload) for row in rows)
            left_out = re.findall(r"\w+", "".join(re.findall(r"EXCEPT \((.*?)\)", text_)))
            kept = {key: value for key, value in RECORD.items() if key not in left_out} if "*" in text_ else {}
            assert row == {**kept, **SMTS[name]}


def it_splits_a_debezium_topic_of_three_tables_whose_rows_the_position_in_the_source_orders(spark, make_ingest, topic):
    def event(op, table, number, lsn, **row):
        row = {"id": number, **row}
        return {"op": op, "before": row, "after": row, "source": {"table": table, "lsn": lsn, "schema": "shop"}}

    config = make_ingest(
        format="debezium_json",
        where="source.table <> 'heartbeats'",
        route_by="expression",
        route="array(source.table, CASE WHEN source.table = 'orders' THEN 'sales' END)",
        select=["*", "source.lsn AS lsn"],
        mode="upsert",
        identifier_columns="id",
        ordering_column="lsn",
        auto_create=True,
    )
    orders = [event("c", "orders", 1, 12, a=1.5), event("u", "orders", 1, 10, a=0.5), event("c", "orders", 2, 13)]
    others = [event("d", "orders", 2, 14), event("c", "films", 1, 1), event("r", "a/b", 1, 1), {"op": "m"}]
    topic.send(*orders, *others, *(event("c", "heartbeats", 1, 1) for _ in range(3)), partition=0)
    report = ingest(spark, config)
    tables = {name: spark.table(f"{config.namespace}.{name}") for name in ("orders", "sales", "films")}
    actual = {name: [row.asDict() for row in table.collect()] for name, table in tables.items()}
    order = {"id": 1, "a": 1.5, "lsn": 12}
    assert actual == {"orders": [order], "sales": [order], "films": [{"id": 1, "lsn": 1}]}
    assert (report.state, report.filtered, report.dead_letters) == ("ok", 3, 1)
    assert "3 dropped" in report.card().what
    assert ingest(spark, config).batches == 0


def it_reads_the_operation_from_a_header(spark, sql, make_ingest, topic):
    given = {"mode": "upsert", "identifier_columns": "id", "auto_create": True}
    config = make_ingest(operation="coalesce(headers['op'], 'upsert')", **given)
    topic.send({"id": 1}, {"id": 2}, partition=0)
    topic.send({"id": 1}, partition=0, headers=[("op", b"DELETE")])
    topic.send({"id": 2}, partition=0, headers=[("op", b"none")])
    report = ingest(spark, config)
    assert ([row.id for row in sql("SELECT id FROM {t}").collect()], report.dead_letters) == ([2], 1)
    [letter] = spark.table(config.quoted_dead_letters).where(f"job = '{config.job}'").collect()
    assert letter.reason == "the operation (operation) is 'none', which is not an operation"
