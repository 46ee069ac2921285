"""Every logical type in every encoding is stored as it was sent, or is a dead letter, in any time zone."""

import base64
import json
import os
import struct
import time
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal

import pytest
from pyspark.sql import functions as F, types as T

from icecdc_core.ingest.decoding import decode_records
from icecdc_core.ingest.destinations import evolve_for_records, payload_schema
from icecdc_core.ingest.formats.logical_types import DECIMAL
from icecdc_core.ingest.formats.schemas import RegisteredSchema
from icecdc_core.ingest.rows import parse_rows
from icecdc_core.session.jvm import iceberg_class
from icecdc_core.table.catalogs import load_table
from tests.kafka_records import records, settings
from tests.schema_registry import NULL, SOME, framed, text, zigzag

MAX, MIN = 2**63 - 1, -(2**63)
DBZ, CONNECT = "io.debezium.time.", "org.apache.kafka.connect.data."
LETTER = "dead letter"


def unscaled(number, size=None):
    size = size or (number.bit_length() + 8) // 8
    return base64.b64encode(number.to_bytes(size, "big", signed=True)).decode()


def decimal(value, scale, expected):
    return ("bytes", DECIMAL, {"scale": str(scale), "connect.decimal.precision": "38"}, value, expected)


# The type, the logical type, its parameters, the value in JSON, and the value as text.
CASES = [
    *[("int32", f"{owner}Date", {}, days, text) for owner in (DBZ, CONNECT)
      for days, text in [(0, "1970-01-01"), (19000, "2022-01-08"), (-719162, "0001-01-01"), (2**31 - 1, LETTER)]],
    ("int64", f"{DBZ}Timestamp", {}, 1_700_000_000_123, "2023-11-14 22:13:20.123"),
    ("int64", f"{DBZ}Timestamp", {}, MAX, LETTER),
    ("int64", f"{DBZ}MicroTimestamp", {}, -1, "1969-12-31 23:59:59.999999"),
    ("int64", f"{DBZ}MicroTimestamp", {}, 1710054000000000, "2024-03-10 07:00:00"),
    ("int64", f"{DBZ}MicroTimestamp", {}, MIN, LETTER),
    ("int64", f"{DBZ}NanoTimestamp", {}, 1_700_000_000_123_456_789, "2023-11-14 22:13:20.123456"),
    ("int64", f"{DBZ}NanoTimestamp", {}, -1, "1969-12-31 23:59:59.999999"),
    ("int64", f"{DBZ}NanoTimestamp", {}, MIN, "1677-09-21 00:12:43.145224"),
    ("int64", f"{CONNECT}Timestamp", {}, 1_700_000_000_123, "2023-11-14T22:13:20.123000Z"),
    ("int64", f"{CONNECT}Timestamp", {}, MIN, LETTER),
    ("string", f"{DBZ}ZonedTimestamp", {}, "2024-01-01T01:00:00.5+01:00", "2024-01-01T00:00:00.500000Z"),
    ("string", f"{DBZ}ZonedTimestamp", {}, "2024-01-01T00:00:00", "2024-01-01T00:00:00.000000Z"),
    ("string", f"{DBZ}ZonedTimestamp", {}, "noon", LETTER),
    ("int32", f"{DBZ}Time", {}, 3_600_001, "01:00:00.001"),
    ("int32", f"{CONNECT}Time", {}, 86_399_999, "23:59:59.999"),
    ("int64", f"{DBZ}MicroTime", {}, 0, "00:00:00"),
    ("int64", f"{DBZ}MicroTime", {}, -1, LETTER),
    ("int64", f"{DBZ}MicroTime", {}, 90_000_000_000, LETTER),
    ("int64", f"{DBZ}NanoTime", {}, 3_600_000_001_000, "01:00:00.000001"),
    ("int64", f"{DBZ}NanoTime", {}, MAX, LETTER),
    decimal(1.5, 2, "1.50"), decimal(-7.0, 2, "-7.00"), decimal(100, 2, "100.00"), decimal(0, 10, "0.0000000000"),
    decimal(1e-10, 10, "0.0000000001"), decimal(unscaled(150), 2, "1.50"), decimal(unscaled(-700), 2, "-7.00"),
    decimal("1.50", 2, LETTER), decimal("1234", 2, "-26588.24"), decimal("!", 2, LETTER), decimal("", 2, LETTER),
    # White space in Base64 says nothing, so it is skipped (RFC 2045).
    decimal(" AJ\nY=", 2, "1.50"),
    decimal("A", 2, LETTER), decimal(True, 2, LETTER), decimal({"a": 1}, 2, LETTER), decimal(1e999, 2, LETTER),
    decimal(12345678901234567890123456789012345678, 0, "12345678901234567890123456789012345678"),
    decimal(123456789012345678901234567890123456789, 0, LETTER), decimal(unscaled(2**127 - 1, 16), 0, LETTER),
    decimal(unscaled(10**38 - 1), 0, "9" * 38), decimal(unscaled(1 - 10**38), 0, "-" + "9" * 38),
    decimal(unscaled(1, 17), 0, LETTER), decimal(1e30, 2, LETTER),
    ("float32", "", {}, 1e39, LETTER), ("float64", "", {}, 1e39, "1.0E39"), ("float32", "", {}, 1.5, "1.5"),
    ("float64", "", {}, "Infinity", "Infinity"), ("float32", "", {}, "-Infinity", "-Infinity"),
    ("float64", "", {}, "NaN", "NaN"),
    ("bytes", "", {}, "AAE=", "AAE="), ("bytes", "", {}, "!", LETTER), ("bytes", "", {}, "AAEC\nAQ==", "AAECAQ=="),
]  # fmt: skip
VARIABLE = [({"scale": 1, "value": unscaled(105)}, "105E-1"), ({"scale": 1, "value": "1.50"}, LETTER),
            ({"scale": 0, "value": unscaled(2**127 - 1, 16)}, LETTER),
            ({"scale": -(2**31), "value": unscaled(1)}, LETTER)]  # fmt: skip
CONNECT_VARIABLE = {
    "type": "struct",
    "name": "io.debezium.data.VariableScaleDecimal",
    "fields": [{"field": "scale", "type": "int32"}, {"field": "value", "type": "bytes"}],
}


AVRO_TYPES = {"int32": "int", "int64": "long", "float32": "float", "float64": "double"}


def avro_bytes(kind, value):
    """The value in Avro; None if Avro cannot hold it: JSON's decimals may be numbers, and its texts no Base64."""
    try:
        if kind in ("int32", "int64"):
            return zigzag(value)
        if kind in ("float32", "float64"):
            return struct.pack("<f" if kind == "float32" else "<d", float(value))
        return text(value) if kind == "string" else text(base64.b64decode(value, validate=True))
    except (ValueError, TypeError, AttributeError, struct.error, OverflowError):
        return None


@contextmanager
def in_zone(spark, zone, driver):
    """The zone of the session; and that of this process and of its JVM, which Spark may take instead."""
    java, before = spark._jvm.java.util.TimeZone, spark.conf.get("spark.sql.session.timeZone")
    default, environment = java.getDefault(), os.environ.get("TZ")
    try:
        spark.conf.set("spark.sql.session.timeZone", zone)
        java.setDefault(java.getTimeZone(driver))
        os.environ["TZ"] = driver
        time.tzset()
        yield
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
        java.setDefault(default)
        os.environ.pop("TZ") if environment is None else os.environ.update(TZ=environment)
        time.tzset()


def as_text(name, kind):
    column = F.col("row")[name]
    if isinstance(kind, T.TimestampType):
        micros = F.unix_micros(column)
        local = F.timestamp_add("MICROSECOND", micros, F.lit("1970-01-01").cast("timestamp_ntz"))
        return F.concat(F.date_format(local, "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"), F.lit("Z"))
    return F.base64(column) if isinstance(kind, T.BinaryType) else column.cast("string")


def by_field(cases):
    """The fields, one for each type, and the field of each case."""
    kinds = {json.dumps(case[:3]): case[:3] for case in cases}
    names = {key: f"x{place}" for place, key in enumerate(kinds)}
    return {names[key]: kind for key, kind in kinds.items()}, [names[json.dumps(case[:3])] for case in cases]


def wrong_ones(spark, source, chosen, known, cases):
    """The cases that are neither stored as sent nor dead letters, with what was found; no zone is UTC."""
    with in_zone(spark, "America/New_York", "Asia/Kolkata"):
        frame = decode_records(records(spark, source), chosen, known)
        decoded = spark.createDataFrame(rows := frame.collect(), frame.schema)
        schema = T.StructType.fromJson(json.loads(next(row.payload_type for row in rows if row.payload_type)))
        texts = F.coalesce(*(as_text(field.name, field.dataType) for field in schema))
        fitted, _ = parse_rows(decoded, schema, chosen)
        fitted = fitted.orderBy("offset").select("is_valid", texts.alias("text"))
        found = [row.text if row.is_valid else LETTER for row in fitted.collect()]
    return [(case, text) for case, text in zip(cases, found, strict=True) if text != case[-1]]


class DescribeLogicalTypes:
    def it_stores_each_value_of_json_as_sent_or_makes_it_a_dead_letter(self, spark):
        kinds, names = by_field(CASES)
        fields = [
            {"type": kind, "name": name, "parameters": given, "field": field, "optional": True}
            for field, (kind, name, given) in kinds.items()
        ]
        fields.append({**CONNECT_VARIABLE, "field": "variable", "optional": True})
        row = {"type": "struct", "fields": fields, "optional": True}
        envelope = [{**row, "field": "before"}, {**row, "field": "after"}, {"field": "op", "type": "string"}]
        values = [*zip(names, (value for *_, value, _ in CASES), strict=True), *(("variable", v) for v, _ in VARIABLE)]
        texts = [
            json.dumps(
                {"schema": {"type": "struct", "fields": envelope}, "payload": {"op": "c", "after": {name: v}}},
                separators=(",", ":"),
            )
            for name, v in values
        ]
        source = [(None, text.replace(":Infinity", ":1e999")) for text in texts]
        assert wrong_ones(spark, source, settings(format="debezium_json"), {}, [*CASES, *VARIABLE]) == []

    def it_stores_each_value_of_avro_as_sent_or_makes_it_a_dead_letter(self, spark):
        cases = [case for case in CASES if avro_bytes(case[0], case[3]) is not None]
        kinds, names = by_field(cases)
        variable = [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}]
        types = {
            field: {"type": AVRO_TYPES.get(kind, kind), "connect.name": name, "connect.parameters": given}
            for field, (kind, name, given) in kinds.items()
        } | {"variable": {"type": "record", "name": "V", "fields": variable, "connect.name": CONNECT_VARIABLE["name"]}}
        fields = [{"name": field, "type": ["null", kind]} for field, kind in types.items()]
        row = {"type": "record", "name": "Value", "fields": fields}
        rows = [{"name": "before", "type": ["null", row]}, {"name": "after", "type": ["null", "Value"]}]
        schema = {"type": "record", "name": "Envelope", "fields": [*rows, {"name": "op", "type": "string"}]}
        many = [case for case in VARIABLE if case[0]["value"] != "1.50"]
        data = [(name, avro_bytes(case[0], case[3])) for name, case in zip(names, cases, strict=True)]
        data += [("variable", zigzag(v["scale"]) + avro_bytes("bytes", v["value"])) for v, _ in many]

        def event(name, value):
            places = [SOME + value if field == name else NULL for field in types]
            return framed(1, NULL + SOME + b"".join(places) + text("c"))

        known = {1: RegisteredSchema("AVRO", json.dumps(schema))}
        chosen = settings(format="debezium_avro", schema_registry_url="http://127.0.0.1:9")
        source = [(None, event(*each)) for each in data]
        assert wrong_ones(spark, source, chosen, known, [*cases, *many]) == []

    def it_takes_values_of_avro_as_their_writer_means_them(self, spark):
        price = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
        fields = [{"name": "price", "type": price}, {"name": "share", "type": "float"}]
        known = {1: RegisteredSchema("AVRO", json.dumps({"type": "record", "name": "R", "fields": fields}))}
        chosen = settings(format="avro", schema_registry_url="http://127.0.0.1:9", metadata_columns=[])
        tenth = struct.pack("<f", 0.1)
        right, too_large = (text(price.to_bytes(9, "big")) + tenth for price in (150, 2**64 + 150))
        source = [(None, framed(1, data)) for data in (right, too_large, right + b"\0")]
        decoded = decode_records(records(spark, source), chosen, known)
        rows, _ = parse_rows(decoded, T.StructType.fromDDL("price decimal(9,2), share double"), chosen)
        found = [tuple(row.row) if row.is_valid else LETTER for row in rows.orderBy("offset").collect()]
        assert found == [(Decimal("1.50"), *struct.unpack("<f", tenth)), LETTER, LETTER]


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

    def it_keeps_the_identifier_fields_of_the_table_required(self, spark, sql, name):
        sql("CREATE TABLE {t} (id INT NOT NULL, x INT NOT NULL) USING iceberg")
        sql("ALTER TABLE {t} SET IDENTIFIER FIELDS id")
        kind = T.StructType.fromDDL("id int, x int").json()
        columns = "payload string, payload_type string, problem string, op string"
        source = spark.createDataFrame([('{"id":1}', kind, None, None)], columns)
        table, chosen = f"lake.ns.{name}", settings(format="avro", evolve_schema=True, metadata_columns=[])
        evolve_for_records(spark, table, load_table(spark, table), source, chosen)
        assert [field.nullable for field in spark.table(f"lake.ns.{name}").schema] == [False, True]
