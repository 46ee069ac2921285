"""Values that test_random_values.py does not draw: odd ones of Connect, records that are not quite JSON, defaults."""

import base64
import json
from datetime import datetime

import pytest
from pyspark.sql import functions as F, types as T

from icecdc_core.ingest.decoding import decode_records
from icecdc_core.ingest.destinations import payload_schema
from icecdc_core.ingest.formats.logical_types import DECIMAL
from icecdc_core.ingest.formats.schemas import RegisteredSchema
from icecdc_core.ingest.rows import parse_rows
from icecdc_core.session.jvm import iceberg_class
from icecdc_core.table.catalogs import load_table
from tests.given.kafka_records import records, settings
from tests.servers.schema_registry import NULL, framed, zigzag

LETTER = "dead letter"
DECIMAL_MAX = int("9" * 38)


def base64_of(number, size=17):
    return base64.b64encode(number.to_bytes(size, "big", signed=True)).decode()


# The column, a value that JSON may have for it, and the value as text: what test_random_values.py does not draw.
ODD_VALUES = [
    *[("decimal", value, LETTER) for value in ("1.50", "!", "", "A", True, {"a": 1}, 10**38, -1e30, base64_of(1))],
    # White space in Base64 says nothing, so it is skipped (RFC 2045).
    ("decimal", " AJ\nY=", "1.50"), ("decimal", "1234", "-26588.24"), ("decimal", 1e-1, "0.10"),
    ("decimal", base64_of(DECIMAL_MAX, 16), "9" * 36 + ".99"), ("decimal", base64_of(DECIMAL_MAX + 1, 16), LETTER),
    ("zoned", "noon", LETTER), ("float", 1e39, LETTER), ("bytes", "!", LETTER), ("bytes", "AAEC\nAQ==", "AAECAQ=="),
    ("variable", {"scale": 1, "value": "1.50"}, LETTER), ("variable", {"scale": -(2**31), "value": "AQ=="}, LETTER),
]  # fmt: skip
ODD_FIELDS = {
    "decimal": {"type": "bytes", "name": DECIMAL, "parameters": {"scale": "2"}},
    "zoned": {"type": "string", "name": "io.debezium.time.ZonedTimestamp"},
    "float": {"type": "float32"},
    "bytes": {"type": "bytes"},
    "variable": {
        "type": "struct",
        "name": "io.debezium.data.VariableScaleDecimal",
        "fields": [{"field": "scale", "type": "int32"}, {"field": "value", "type": "bytes"}],
    },
}


def it_stores_odd_values_of_connect_as_sent_or_makes_them_dead_letters(spark):
    fields = [{**kind, "field": name, "optional": True} for name, kind in ODD_FIELDS.items()]
    row = {"type": "struct", "fields": fields, "optional": True}
    envelope = [{**row, "field": "before"}, {**row, "field": "after"}, {"field": "op", "type": "string"}]
    schema = {"type": "struct", "fields": envelope}
    payloads = [{"op": "c", "after": {name: value}} for name, value, _ in ODD_VALUES]
    source = [(None, {"schema": schema, "payload": payload}) for payload in payloads]
    chosen = settings(format="debezium_json")
    columns = T.StructType.fromDDL("decimal decimal(38,2), zoned timestamp, float float, bytes binary, variable string")
    rows, _ = parse_rows(decode_records(records(spark, source), chosen), columns, chosen)
    texts = F.coalesce(F.base64("row.bytes"), *(F.col("row")[name].cast("string") for name in columns.names))
    found = rows.orderBy("offset").select("is_valid", texts.alias("text")).collect()
    actual = [row.text if row.is_valid else LETTER for row in found]
    assert [each for each in zip(ODD_VALUES, actual, strict=True) if each[0][2] != each[1]] == []


# Columns, a record, and the row as JSON; a dead letter without one.
TEXTS = [
    ('{"id":1,"v":"a"},"v":"b"', None), ('{"id":5},"_icecdc_record":{"id":6}', None), ('{"id":1}]} x', None),
    ('{"id":5}],[{"id":6}', None), ('{"id":5},{"id":6}', None), ('{"id":5}],"x":[{}', None),
    ('{"v":"\\ud83d"}', None), ('{"v":"\\uDE00\\ud83d"}', None), ('{"\\ud83d":1}', None),
    ('{"v":"\\ud83d\\ude00"}', '{"v":"😀"}'), ('{"v":"\\\\ud83d"}', '{"v":"\\\\ud83d"}'),
    ('{"v":"\\\\\\ud83d"}', None),
    ('{"f":1e999,"v":"Infinity"}', None), ('{"f":1e999,"v":"INFO"}', None), ('{"g":1e39,"v":"INF"}', None),
    ('{"f":"Infinity","v":"1e999"}', '{"v":"1e999","f":"Infinity"}'), ('{"f":"-Infinity","g":"1e9"}', None),
    ('{"f":"Infinity","big":1e999}', None), ('{"l":[1e999],"v":"Infinity"}', None),
    ('{"l":["Infinity"]}', '{"l":["Infinity"]}'),
    ('{"m":{"1":"a","-2":"b"}}', '{"m":{"1":"a","-2":"b"}}'), ('{"m":{"x":"a"}}', None), ('{"m":{"1.5":"a"}}', None),
    ('{"m":{"01":"a"}}', None), ('{"m":{}}', '{"m":{}}'), ('{"m":[[1,"a"]]}', None), ('{"m":null}', "{}"),
    ('{"d":{"1.0":1,"1.00":2}}', None), ('{"d":{"1e999":1}}', None), ('{"d":{"1.5":1}}', '{"d":{"1.5":1}}'),
    ('{"t":{"2024-01-01":1}}', '{"t":{"19723":1}}'), ('{"t":{"2024-02-30":1}}', None),
    ('{"s":{"a":1}}', None), ('{"id":9}', '{"id":9}'),
]  # fmt: skip
COLUMNS = ("id int, v string, f double, g float, l array<double>, m map<int,string>, d map<double,int>, "
           "t map<date,int>, s map<struct<a:int>,int>")  # fmt: skip


class DescribeRecords:
    def it_stores_exactly_what_was_sent_and_lets_others_go_on(self, spark):
        schema, chosen = T.StructType.fromDDL(COLUMNS), settings()
        decoded = decode_records(records(spark, [(None, text) for text, _ in TEXTS]), chosen)
        names = [F.col("row")[name].alias(name) for name in schema.names if name != "s"]
        rows, _ = parse_rows(decoded, schema, chosen)
        found = rows.orderBy("offset").select("is_valid", F.to_json(F.struct(*names)).alias("row")).collect()
        actual = [row.row if row.is_valid else None for row in found]
        assert [each for each in zip(TEXTS, actual, strict=True) if each[0][1] != each[1]] == []

    @pytest.mark.parametrize("format_", ["debezium_json", "dms"])
    def it_rejects_what_other_formats_would_lose(self, spark, format_):
        def change(row):
            if format_ == "dms":
                return f'{{"data":{row},"metadata":{{"operation":"insert"}}}}'
            return f'{{"op":"c","before":null,"after":{row}}}'

        texts = [change('{"f":1e999}'), change('{"v":"\\ud83d"}'), change('{"id":1}') + change('{"id":2}'),
                 change('{"d":1.234567890123456789E-7}'), change(f'{{"v":"\\"","d":{"1" * 39}}}'),
                 change('{"d":1.23456789012345678}'), change('{"f":-1.2345678901234567e-7}'),
                 change('{"v":"1.234567890123456789E-7"}'), change('{"f":"Infinity"}')]  # fmt: skip
        chosen = settings(format=format_)
        decoded = decode_records(records(spark, [(None, t) for t in texts]), chosen)
        rows, _ = parse_rows(decoded, T.StructType.fromDDL("id int, v string, f double, d decimal(38,25)"), chosen)
        assert [row.is_valid for row in rows.orderBy("offset").collect()] == [False] * 5 + [True] * 4


class DescribeTables:
    def it_gives_absent_fields_their_write_default(self, spark, sql, name):
        sql("CREATE TABLE {t} (id INT, s STRUCT<a: INT>) USING iceberg TBLPROPERTIES ('format-version' = '3')")
        table = load_table(spark, f"lake.ns.{name}")
        types, literal = iceberg_class(spark, "types.Types"), iceberg_class(spark, "expressions.Literal")
        update = table.updateSchema()
        text, whole = types.StringType.get(), types.IntegerType.get()
        update.addColumn("v", text, None, literal.of("it's"))
        update.addColumn("n", whole, None, literal.of(7))
        at = types.TimestampType.withoutZone()
        update.addColumn("at", at, None, literal.of("2024-01-01T00:00:00").to(at))
        update.commit()
        chosen = settings(metadata_columns=[])
        schema = payload_schema(spark, load_table(spark, f"lake.ns.{name}"), chosen)
        texts = '{"id":1}', '{"id":2,"v":null,"n":null,"at":null}', '{"id":3,"v":"x","n":8,"at":"2025-01-01T00:00:00"}'
        source = [(None, text) for text in texts]
        decoded = decode_records(records(spark, source), chosen)
        times = [datetime(year, 1, 1) for year in (2024, 2025)]
        expected = [(1, None, "it's", 7, times[0]), (2, *[None] * 4), (3, None, "x", 8, times[1])]
        assert [
            tuple(row.row) for row in parse_rows(decoded, schema, chosen)[0].orderBy("offset").collect()
        ] == expected
        fields = [{"name": "id", "type": "int"}, {"name": "v", "type": ["null", "string"]}]
        known = {1: RegisteredSchema("AVRO", json.dumps({"type": "record", "name": "R", "fields": fields}))}
        chosen = settings(format="avro", schema_registry_url="http://127.0.0.1:9", metadata_columns=[])
        decoded = decode_records(records(spark, [(None, framed(1, zigzag(4) + NULL))]), chosen, known)
        assert tuple(parse_rows(decoded, schema, chosen)[0].first().row) == (4, None, None, 7, times[0])
