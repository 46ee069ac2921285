"""Records in, rows or reasons out: every format."""

import base64
import json
import sys
from datetime import date, datetime
from decimal import Decimal
from functools import reduce

import pytest
from pyspark.sql import DataFrame, functions as F, types as T

from icecdc_core.errors import DependencyError
from icecdc_core.ingest import IngestConfig
from icecdc_core.ingest.decoding import TABLE, decode_records, route_records, routed_topics
from icecdc_core.ingest.destinations import plan_evolution
from icecdc_core.ingest.formats.change_events import name_key
from icecdc_core.ingest.formats.schemas import RegisteredSchema
from icecdc_core.ingest.inference import ColumnNames, infer_schema, look_at
from icecdc_core.session.spark import settings_unless_set
from tests.given.kafka_records import parsed, records, settings
from tests.given.protobuf_messages import message_classes
from tests.servers.schema_registry import NULL, SOME, framed, registry_of, running_registry, text, zigzag

DECIMAL = "org.apache.kafka.connect.data.Decimal"
NOWHERE = "http://127.0.0.1:9"


def known(*schemas, kind="AVRO"):
    """Schemas that need no registry; the first one has the ID 1."""
    texts = schemas if kind == "PROTOBUF" else map(json.dumps, schemas)
    return {number: RegisteredSchema(kind, each) for number, each in enumerate(texts, 1)}


@pytest.fixture(params=["served", pytest.param("Apicurio", marks=pytest.mark.long)])
def registry(request, tmp_path):
    with running_registry(tmp_path) if request.param == "Apicurio" else registry_of({}) as running:
        yield running


@pytest.fixture
def decode(spark):
    """Decode pairs of key and value, texts or bytes; gives payload, op and problem of each that is left."""

    def run(format_, pairs, schemas=None, **given):
        chosen = settings(format=format_, **{"schema_registry_url": NOWHERE, **given})
        frame = name_key(decode_records(records(spark, pairs), chosen, schemas), chosen.identifier_columns, None, None)
        return [(row.payload, row.op, row.problem) for row in frame.orderBy("offset").collect()]

    return run


@pytest.fixture
def fit(spark):
    """Decode and fit; gives the frame."""

    def run(format_, pairs, ddl, schemas=None, **given):
        chosen = settings(format=format_, **{"schema_registry_url": NOWHERE, **given})
        frame = parsed(decode_records(records(spark, pairs), chosen, schemas), T.StructType.fromDDL(ddl), chosen)
        return frame.orderBy("offset")

    with settings_unless_set(spark, {"spark.sql.caseSensitive": "true"}):  # as in the session of a batch
        yield run


@pytest.fixture
def rows(fit):
    """Decode and fit; gives op, row as a tuple (or None) and problem of each."""
    return lambda *given, **more: [
        (row.op, None if row.problem else tuple(row.row), row.problem) for row in fit(*given, **more).collect()
    ]


def it_routes_an_undecodable_record_to_no_table_although_two_expressions_match(spark):
    source = decode_records(records(spark, [(None, b"\xff"), (None, "{}")]), settings())
    routes = {"lake.a.x": "topic", "lake.a.y": "t.*", "lake.a.`y`": ".*c"}  # two names of one table
    found = route_records(source, settings(route_by="regex", route_field="", routes=routes)).collect()
    expected = [(0, ""), (1, "`lake`.`a`.`x`"), (1, "`lake`.`a`.`y`")]
    assert sorted((row.offset, row[TABLE] or "") for row in found) == expected
    none = route_records(source, settings(route_by="regex", route_field="", routes={"lake.a.z": "other"})).collect()
    assert [row[TABLE] for row in none] == [None, None]
    assert "no expression matches" in none[1].problem


def it_routes_no_record_to_a_table_of_icecdc_or_to_a_name_with_a_line_break(spark):
    given = {"bootstrap_servers": "127.0.0.1:9", "topics": "t", "namespace": "lake.a", "route_field": "t"}
    given |= {"job": "j", "dead_letter_table": "lake.a.letters"}
    names = ["letters", "icecdc_ingest_log", "ICECDC_DEAD_LETTERS", "icecdc_embeddings", "x\n", "letters2"]
    topics = F.element_at(F.array(*map(F.lit, names)), (F.col("offset") + 1).cast("int"))
    source = records(spark, [(None, {"t": name}) for name in names]).withColumn("topic", topics)
    # In a topic's name, a line break becomes another character.
    for route_by, others in (("field", []), ("topic", ["`lake`.`a`.`x_`"])):
        config = IngestConfig(route_by=route_by, **given)
        found = route_records(decode_records(source, config), config).orderBy("offset").collect()
        assert [row[TABLE] for row in found if row[TABLE]] == [*others, "`lake`.`a`.`letters2`"]
        assert found[0].problem.startswith("no table: ")


def it_limits_offsets_to_the_topics_that_are_routed_to_a_table(spark):
    given = {name: {0: 1} for name in ("a.b", "A_b", "ab", "b")}
    for chosen, table, expected in (
        ({"route_by": "topic", "quoted_namespace": "`lake`.`n`"}, "`lake`.`n`.`a_b`", ["a.b", "A_b"]),
        (
            {"route_by": "regex", "routes": {"lake.n.x": "a\\p{Alpha}", "lake.n.`x`": "b"}},
            "`lake`.`n`.`x`",
            ["ab", "b"],
        ),
        ({"route_by": "regex", "routes": {"lake.n.x": "a"}, "route_field": "kind"}, "`lake`.`n`.`x`", [*given]),
        ({"route_by": "table"}, "`lake`.`n`.`x`", [*given]),
    ):
        assert [*routed_topics(spark, settings(**chosen))(table, given)] == expected


def it_routes_spellings_of_a_name_to_one_table_if_the_catalog_ignores_case(spark):
    config = settings(route_by="topic", route_field="", quoted_namespace="`lake`.`A`", own_tables=set())
    source = decode_records(records(spark, [(None, "{}")]), settings()).withColumn("topic", F.lit("Orders"))
    names = [route_records(source, config, any_case).first()[TABLE] for any_case in (False, True)]
    assert names == ["`lake`.`A`.`Orders`", "`lake`.`A`.`orders`"]


class DescribeJson:
    def it_reads_the_operation_from_a_field(self, decode):
        no_operation = "the operation (field meta.op) is 'x', which is not an operation"
        expected = {
            "I": ("upsert", None), "update": ("upsert", None), "D": ("delete", None), "x": (None, no_operation),
            None: (None, "the operation (field meta.op) is missing"),
        }  # fmt: skip
        source = [(None, {"meta": {"op": op}}) for op in expected]
        assert [row[1:] for row in decode("json", source, op_field="meta.op")] == list(expected.values())

    def it_makes_of_tombstones_what_is_configured(self, decode):
        several = "the record has no value, and its key does not name the identifier columns"
        unset = "the record has no value, and identifier_columns does not say which column its key is"
        plain = {"7": '{"id":"7"}', 'a"b': '{"id":"a\\"b"}', "[1]": '{"id":"[1]"}', "null": '{"id":"null"}',
                 '{"id":1}': '{"id":1}'}  # fmt: skip
        for given, expected in (
            ({"identifier_columns": ["id"]}, {key: (payload, "delete", None) for key, payload in plain.items()}
                | {None: (None, "delete", "the record has no value")}),
            ({"identifier_columns": ["a", "b"]}, {"7": (None, "delete", several)}),
            ({}, {"7": (None, "delete", unset)}),
            ({"tombstones": "reject"}, {'{"id":1}': (None, None, "the record has no value")}),
        ):  # fmt: skip
            found = decode("json", [(key, None) for key in expected], **given)
            assert [(None if problem else payload, op, problem) for payload, op, problem in found] == [
                *expected.values()
            ]
        assert decode("json", [('{"id":1}', None)], tombstones="ignore") == []

    @pytest.mark.parametrize("format_", ["json", "debezium_json"])
    def it_stores_a_plain_text_key_unchanged_in_a_text_column(self, rows, format_):
        keys = ["1.10", "1e3", "-0", '"q"', " 5", "null", "true", "a\\b\n", "[1]", "{x", ""]
        values = {**dict(zip(keys, keys, strict=True)), '{"id":"1.10"}': "1.10", ' {"id": "null"} ': "null"}
        actual = rows(format_, [(key, None) for key in values], "name int, id string", identifier_columns=["id"])
        assert actual == [("delete", (None, value), None) for value in values.values()]

    def it_stores_a_key_unchanged_beside_other_spellings_of_its_column(self, rows):
        given = {"column_case": "insensitive", "unknown_fields": "reject", "identifier_columns": ["id"]}
        found = rows("json", [(None, '{"ID":"x"}'), ("1.10", None)], "id string", **given)
        assert found == [(None, ("x",), None), ("delete", ("1.10",), None)]

    def it_reads_a_plain_text_key_by_the_type_of_its_column(self, fit):
        kinds = {
            "bigint": {"7": '{"id":7}', " 5": '{"id":5}', "1e3": "field id: '1000.0' is not of type bigint",
                '"7"': "field id: '7' is not of type bigint", "x": "field id: 'x' is not of type bigint",
                "null": "field id is missing or null, and identifies the row"},
            "double": {"1.10": '{"id":1.1}'},
            "boolean": {"true": '{"id":true}'},
            "date": dict.fromkeys(("2024-02-29", '"2024-02-29"'),
                '{"id":"2024-02-29"}') | {"2024": "field id: '2024' is not of type date"},
            "binary": dict.fromkeys(("1234", '"1234"'), '{"id":"1234"}'),
        }  # fmt: skip
        frames = [
            fit("json", [(key, None) for key in expected], f"id {kind}", identifier_columns=["id"])
            for kind, expected in kinds.items()
        ]
        texts = [frame.select(F.coalesce("problem", F.to_json("row")).alias("text")) for frame in frames]
        found = [row.text for row in reduce(DataFrame.unionAll, texts).collect()]
        assert found == [text for expected in kinds.values() for text in expected.values()]

    def it_reads_a_key_as_json_if_configured(self, rows):
        neither = "the record has no value, and its key is neither a JSON object nor a single JSON value"
        missing = "field id is missing or null, and identifies the row"
        values = {'"1.10"': "1.10", '"q"': "q", "5": "5", '{"id":"x"}': "x", "null": None, "q": None, "[1]": None}
        found = rows("json", [(key, None) for key in values], "id string", identifier_columns=["id"], key_format="json")
        assert [row and row[0] for _, row, _ in found] == [*values.values()]
        assert [problem for *_, problem in found[4:]] == [missing, neither, neither]

    def it_infers_no_type_from_a_plain_text_key(self, spark):
        source = records(spark, [("7", None), (None, '{"id":1}')])
        chosen = settings(identifier_columns=["id"])
        assert infer_schema(decode_records(source, chosen), chosen).simpleString() == "struct<id:bigint>"


def avro_record(name, **fields):
    return {"type": "record", "name": name, "fields": [{"name": each, "type": kind} for each, kind in fields.items()]}


AVRO_ORDER = avro_record(
    "shop.Order",
    id="long",
    amount={"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2},
    at={"type": "long", "logicalType": "timestamp-micros"},
    day={"type": "int", "logicalType": "date"},
    note=["null", "string"],
)


def avro_order(number, amount=1999, micros=1_700_000_000_123_456, day=19_000, note=None):
    size = (amount.bit_length() + 8) // 8
    parts = [zigzag(number), text(amount.to_bytes(size, "big", signed=True)), zigzag(micros), zigzag(day)]
    return b"".join(parts) + (NULL if note is None else SOME + text(note))


class DescribeAvro:
    def it_reads_values_exactly_or_says_why_not(self, registry, rows):
        order = registry.register(AVRO_ORDER, "orders")
        # A decimal of more digits than Spark has; with the precision as a text Avro ignores the logical type.
        long = {"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 2}
        of_connect = {**long, "connect.name": DECIMAL, "connect.parameters": {"scale": "2"}}
        digits = avro_record("Long", a=long, b=["null", of_connect], c={**long, "precision": "64"})
        digits = registry.register(digits, "long")
        # A reference of a reference, which is also one of its own.
        city, address = ({"name": f"shop.{each}", "subject": each, "version": 1} for each in ("City", "Address"))
        registry.register(avro_record("shop.City", zip="string"), "City")
        registry.register(avro_record("shop.Address", city="City"), "Address", references=[city])
        customer = avro_record("shop.Customer", home="Address", work=["null", "City"])
        customer = registry.register(customer, "customer", references=[address, city])
        price = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
        price = registry.register(avro_record("Price", price=price), "price")
        of_json = registry.register({"type": "object", "properties": {"a": {"type": "string"}}}, "of-json", "JSON")

        def decimals(number, size):
            value = text(number.to_bytes(size, "big"))
            return framed(digits, value + SOME + value + text(b"x"))

        at, day = datetime(2023, 11, 14, 22, 13, 20, 123456), date(2022, 1, 8)
        largest = Decimal("9" * 36 + ".99")
        starts = "does not start with a zero byte and a four-byte schema ID, but with 0x"
        cases = [
            (framed(order, avro_order(1, 123456789012345678, note="né")),
             {"id": 1, "amount": Decimal("1234567890123456.78"), "at": at, "day": day, "note": "né"}),
            (framed(order, avro_order(2, -5)), {"id": 2, "amount": Decimal("-0.05"), "at": at, "day": day}),
            (decimals(1999, 2), {"a": Decimal("19.99"), "b": Decimal("19.99"), "c": b"x"}),
            (decimals(10**38 - 1, 16), {"a": largest, "b": largest, "c": b"x"}),
            (decimals(10**38, 16), None),
            (decimals(int.from_bytes(b"\1" * 17, "big"), 17), None),
            (framed(customer, text("Ulm") + SOME + text("Bonn")), {"home": (("Ulm",),), "work": ("Bonn",)}),
            *((framed(price, text(each.to_bytes(9, "big"))), row)
              for each, row in ((150, {"price": Decimal("1.50")}), (2**64 + 150, None))),
            (framed(999_999, b"x"), "the schema registry has no schema 999999"),
            (bytearray(b'{"id":1}'), f"{starts}7B22696422"),
            (bytearray(b"\0\0"), f"{starts}0000"),
            (bytearray(b""), starts),
            (framed(order, avro_order(1, note=b"\xffa")), "a text in it is not valid UTF-8"),
            (framed(order, avro_order(1, -5, note="\ufffd")),  # its decimal has bytes that are no UTF-8
             {"id": 1, "amount": Decimal("-0.05"), "at": at, "day": day, "note": "\ufffd"}),
            (framed(order, b"\x02\xff"), f"the bytes do not fit schema {order}"),
            (framed(of_json, b"{}"), f"schema {of_json} is JSON, not AVRO"),
        ]  # fmt: skip
        ddl = (
            "id bigint, amount decimal(20,2), at timestamp, day date, note string, a decimal(38,2), b decimal(38,2), "
            "c binary, home struct<city:struct<zip:string>>, work struct<zip:string>, price decimal(9,2)"
        )
        found = rows("avro", [(None, value) for value, _ in cases], ddl, schema_registry_url=registry.url)
        names = T.StructType.fromDDL(ddl).names
        for (_, row, problem), (_, expected) in zip(found, cases, strict=True):
            values = row and {name: value for name, value in zip(names, row, strict=True) if value is not None}
            assert values == expected if row or expected is None else problem == expected, problem

    def it_uses_the_types_of_the_writers_schemas_but_makes_no_column_of_the_type_null(self, spark):
        growing = avro_record("Growing", id="long", tag=["null", "string"], nothing="null")
        several = known(avro_record("Growing", id={"type": "int", "spark.sql.catalyst.type": "interval year"}), growing)
        source = [(None, framed(1, zigzag(1))), (None, framed(2, zigzag(1 << 40) + NULL))]
        chosen = settings(format="avro", schema_registry_url=NOWHERE)
        decoded = decode_records(records(spark, source), chosen, several)
        seen = infer_schema(decoded, chosen)
        found = [(each.name, each.dataType.simpleString(), each.nullable) for each in seen]
        assert found == [("id", "bigint", False), ("tag", "string", True), ("nothing", "void", True)]
        columns = ColumnNames(T.StructType()).new_struct(seen)
        stored = [(row.problem, tuple(row.row)) for row in parsed(decoded, columns, chosen).orderBy("offset").collect()]
        assert stored == [(None, (1, None)), (None, (1 << 40, None))]

    def it_deletes_by_keys_of_every_form(self, decode):
        keys = *((framed(number, zigzag(5)), None) for number in (1, 2)), ("6", None)
        found = decode("avro", keys, known(avro_record("Key", id="long"), "long"), identifier_columns=["id"])
        assert found == [(f'{{"id":{value}}}', "delete", None) for value in ("5", "5", '"6"')]

    @pytest.mark.parametrize("format_", ["avro", "json_schema"])
    def it_reads_the_operation_from_a_field_also_by_a_json_schema(self, decode, format_):
        if format_ == "avro":
            schemas = known(avro_record("R", id="long", __op=["null", "string"]))
            values = [zigzag(7) + op for op in (SOME + text("c"), SOME + text("d"), NULL)]
        else:
            kinds = {"id": {"type": "integer"}, "__op": {"type": "string"}}
            schemas = known({"properties": kinds}, kind="JSON")
            values = [b'{"id":7,"__op":"c"}', b'{"id":7,"__op":"d"}', b'{"id":7}']
        source = [*((None, framed(1, value)) for value in values), ('{"id":1}', None)]
        found = decode(format_, source, schemas, op_field="__op")
        missing = (None, "the operation (field __op) is missing")
        assert [row[1:] for row in found] == [("upsert", None), ("delete", None), missing, ("delete", None)]


PROTO_CURRENCY = 'syntax = "proto3"; package shop; enum Currency { EUR = 0; USD = 3; }'
PROTO_MONEY = """
    syntax = "proto3"; package shop; import "shop/currency.proto";
    message Money { Currency currency = 1; sint64 units = 2; }
"""
PROTO_ORDER = """
    syntax = "proto3"; package shop;
    import "shop/currency.proto"; import "shop/money.proto"; import "google/protobuf/duration.proto";
    import "google/protobuf/struct.proto"; import "google/protobuf/timestamp.proto";
    import "google/protobuf/wrappers.proto"; import "google/protobuf/empty.proto";
    message Other { string name = 1; }
    message Order {
        uint64 id = 1; optional string note = 2; bytes data = 3; double ratio = 4; float part = 5;
        map<int32, Line> lines = 6; repeated Money costs = 7; oneof pay { string card = 8; Money cash = 9; }
        google.protobuf.Timestamp at = 10; google.protobuf.Duration took = 11; google.protobuf.Struct doc = 12;
        google.protobuf.UInt64Value big = 13; google.protobuf.Empty gone = 14; Order parent = 15; Currency unit = 16;
        message Line { string sku = 1; uint32 count = 2; }
    }
"""


class DescribeProtobuf:
    def it_reads_values_exactly_or_says_why_not(self, registry, rows):
        registry.register(PROTO_CURRENCY, "currency", "PROTOBUF")
        currency, money = (
            {"name": f"shop/{name}.proto", "subject": name, "version": 1} for name in ("currency", "money")
        )
        registry.register(PROTO_MONEY, "money", "PROTOBUF", [currency])
        order = registry.register(PROTO_ORDER, "order", "PROTOBUF", [money, currency])
        imports = {"shop/currency.proto": PROTO_CURRENCY, "shop/money.proto": PROTO_MONEY}
        of = message_classes(PROTO_ORDER, imports)
        full = of["Order"](id=2**64 - 1, note="", data=b"\0\xff", ratio=float("-inf"), part=0.1, card="c")
        full.lines[-3].sku = "né😀"
        full.costs.add(currency=3, units=-(2**63))
        full.costs.add(currency=2)
        full.at.FromJsonString("2024-01-02T03:04:05.123456789Z")
        full.took.FromJsonString("-1.5s")
        full.doc.update({"a": [1.5, None]})
        full.big.value = 2**64 - 1
        full.gone.SetInParent()
        full.parent.parent.id = 7
        inner = '{{"id":{},"data":"","ratio":0.0,"part":0.0,"lines":{{}},"costs":[],{}"unit":"EUR"}}'
        parent = inner.format(0, f'"parent":{inner.format(7, "")},')
        far = of["Order"](id=1)
        far.at.seconds = 2**60
        data, unknown = full.SerializeToString(), b"\xfa\x01\1z"  # a field of the number 31
        problem = f"the bytes do not fit schema {order} ("
        cases = [
            (b"\x02\x02" + data, {
                "id": Decimal(2**64 - 1), "note": "", "data": b"\0\xff", "ratio": float("-inf"), "card": "c",
                "part": 0.10000000149011612, "lines": {-3: ("né😀", 0)}, "at": datetime(2024, 1, 2, 3, 4, 5, 123456),
                "costs": [("USD", -(2**63)), ("2", 0)], "took": "-1.500s", "doc": '{"a":[1.5,null]}',
                "big": Decimal(2**64 - 1), "gone": "{}", "unit": "EUR", "parent": parent}),
            (b"\x02\x02", {"id": 0, "unit": "EUR", "data": b"", "ratio": 0.0, "part": 0.0, "lines": {}, "costs": []}),
            (b"\0" + of["Other"](name="x").SerializeToString(), {"name": "x"}),
            (b"\x04\x02\0\x0a\1s", {"sku": "s", "count": 0}),
            (b"\x02\x02" + far.SerializeToString(), problem + "Timestamp is not valid"),
            (b"\x02\x02" + data[:-1], problem),
            (b"\x02\x02" + data + b"\0", problem),
            (b"\x02\x02" + data + unknown, problem + "there are fields that it does not have)"),
            (b"\x02\x02" + b"\x7a" + bytes([len(unknown)]) + unknown, problem + "there are fields"),
            (b"\x02\x02\x12\1\xff", problem),
            (b"\x02\x04", problem + "it has no message of the indexes [2])"),
            (b"\x01", problem),
            (b"", problem),
        ]  # fmt: skip
        ddl = (
            "id decimal(20,0), note string, data binary, ratio double, part float, "
            "lines map<int, struct<sku:string, count:bigint>>, costs array<struct<currency:string, units:bigint>>, "
            "card string, cash struct<currency:string, units:bigint>, at timestamp, took string, doc string, "
            "big decimal(20,0), gone string, unit string, parent string, name string, sku string, count bigint"
        )
        found = rows(
            "protobuf", [(None, framed(order, data)) for data, _ in cases], ddl, schema_registry_url=registry.url
        )
        names = T.StructType.fromDDL(ddl).names
        for (_, row, problem), (_, expected) in zip(found, cases, strict=True):
            values = row and {name: value for name, value in zip(names, row, strict=True) if value is not None}
            assert row or problem.startswith(expected), problem
            assert not row or values == expected

    def it_reads_proto2_with_required_fields_and_says_what_it_has_no_column_for(self, rows):
        text = """
            syntax = "proto2"; message A { required int32 id = 1; optional Kind kind = 2; optional int32 n = 3
            [default = 7]; repeated group Part = 4 { optional bool ok = 1; } extensions 10 to 20; }
            enum Kind { X = 1; } extend A { optional string more = 10; }
        """
        group, more = b"\x23\x08\1\x24", b"\x52\1x"
        expected = {
            b"\x08\1" + group: (None, (1, None, None, [(True,)]), None),
            b"\x08\1\x10\1": (None, (1, "X", None, []), None),
            b"": "required fields are missing: id",
            b"\x08\1\x10\2": "there are fields that it does not have",
            b"\x08\1" + more: "there are fields that it does not have",
        }
        ddl = "id int, kind string, n int, part array<struct<ok:boolean>>"
        found = rows(
            "protobuf", [(None, framed(1, b"\0" + data)) for data in expected], ddl, known(text, kind="PROTOBUF")
        )
        problem = "the bytes do not fit schema 1 ({})"
        wanted = [each if isinstance(each, tuple) else (None, None, problem.format(each)) for each in expected.values()]
        assert found == wanted

    def it_gives_columns_the_types_of_the_schema(self, spark):
        text = """
            syntax = "proto2"; import "google/protobuf/wrappers.proto"; import "google/protobuf/timestamp.proto";
            message A { required fixed64 id = 1; optional sfixed32 i = 2; optional uint32 u = 3; optional sint64 l = 4;
            optional float f = 5; optional bytes b = 6; map<bool, A> m = 7; repeated B r = 8; optional B one = 9;
            optional google.protobuf.BoolValue w = 10; optional google.protobuf.Timestamp t = 11; }
            message B { optional string s = 1; }
        """
        chosen = settings(format="protobuf", schema_registry_url=NOWHERE)
        source = records(spark, [(None, framed(1, b"\0\x09" + bytes(8)))])
        seen = infer_schema(decode_records(source, chosen, known(text, kind="PROTOBUF")), chosen)
        expected = (
            "id decimal(20,0) not null, i int, u bigint, l bigint, f float, b binary, m map<boolean, string>, "
            "r array<struct<s:string>>, one struct<s:string>, w boolean, t timestamp"
        )
        assert seen == T.StructType.fromDDL(expected)

    def it_deletes_by_keys_and_reads_the_operation_from_a_field(self, decode):
        text = 'syntax = "proto3"; message R { int64 id = 1; optional string op = 2; }'
        upsert, delete, neither = (framed(1, b"\0\x08\7" + op) for op in (b"\x12\1c", b"\x12\1d", b""))
        source = [(None, upsert), (None, delete), (None, neither), (neither, None), ("6", None)]
        schemas = known(text, kind="PROTOBUF")
        found = decode("protobuf", source, schemas, op_field="op", identifier_columns=["id"])
        missing = (None, "the operation (field op) is missing")
        assert [row[1:] for row in found] == [("upsert", None), ("delete", None), missing, *[("delete", None)] * 2]
        assert [row[0] for row in found[3:]] == ['{"id":7}', '{"id":"6"}']

    def it_says_which_schema_cannot_be_understood(self, decode):
        other = RegisteredSchema("PROTOBUF", "")
        schemas = {
            1: RegisteredSchema("PROTOBUF", "message"),
            2: RegisteredSchema("PROTOBUF", 'syntax = "proto3";', {"../x.proto": other}),
            3: RegisteredSchema("AVRO", '"long"'),
        }
        problems = [row[2] for row in decode("protobuf", [(None, framed(each, b"\0")) for each in schemas], schemas)]
        assert problems[0].startswith("schema 1 cannot be understood (ValueError: ")
        assert "the reference ../x.proto is not below its folder" in problems[1]
        assert problems[2] == "schema 3 is AVRO, not PROTOBUF"

    def it_names_the_extra_that_is_missing(self, decode, monkeypatch):
        monkeypatch.setitem(sys.modules, "grpc_tools", None)
        with pytest.raises(DependencyError, match=r"icecdc\[protobuf\]"):
            decode("protobuf", [(None, "x")])


JSON_ORDER = {
    "type": "object",
    "required": ["id"],
    "properties": {"id": {"type": "integer"}, "at": {"type": "string", "format": "date-time"},
        "size": {"oneOf": [{"type": "null"}, {"type": "number"}]}, "home": {"$ref": "#/definitions/address"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "counts": {"type": "object", "additionalProperties": {"type": "integer"}}},
    "definitions": {"address": {"type": "object", "properties": {"zip": {"type": "integer"}}}},
}  # fmt: skip


class DescribeJsonSchema:
    def it_reads_json_behind_the_header_that_fits_the_schema(self, rows):
        value = '{"id":1,"at":"2024-01-02T03:04:05Z","size":1.5,"home":{"zip":7},"tags":["a"],"counts":{"x":1}}'
        expected = {
            value: None,
            '{"id":"x"}': "field id: 'x' is not of type bigint",
            "{}": "field id is missing or null, and required",
            '{"id":1,"at":"noon"}': "field at: 'noon' is not of type timestamp",
            '{"id":1,"home":{"zip":"x"}}': 'field home: \'{"zip":"x"}\' is not of type struct<zip:bigint>',
            "[]": "not one JSON object: '[]'",
            '{"id":1} {}': "not one JSON object: '{\"id\":1} {}'",
        }
        ddl = "id bigint, size double, home struct<zip:bigint>, tags array<string>, counts map<string,bigint>"
        source = [(None, framed(1, each.encode())) for each in expected]
        found = rows("json_schema", source, ddl, known(JSON_ORDER, kind="JSON"))
        assert [problem for *_, problem in found] == list(expected.values())
        assert found[0] == (None, (1, 1.5, (7,), ["a"], {"x": 1}), None)

    def it_deletes_by_a_key_that_is_a_single_json_value(self, rows):
        schema = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "string"}
        source = [(framed(1, b'"1.10"'), None), ("1.10", None), (framed(1, b"x"), None)]
        actual = rows("json_schema", source, "id string", known(schema, kind="JSON"), identifier_columns=["id"])
        neither = "the record has no value, and its key is neither a JSON object nor a single JSON value"
        assert actual == [("delete", ("1.10",), None), ("delete", ("1.10",), None), ("delete", None, neither)]

    def it_sees_fields_that_the_schema_does_not_declare(self, spark):
        schema = {"properties": {"id": {"type": "integer"}, "day": {"type": "string", "format": "date"}}}
        values = [b'{"id":1,"day":"2024-02-29"}', b'{"id":2,"extra":5}', b'{"id":3,"extra":null}']
        chosen = settings(format="json_schema", schema_registry_url=NOWHERE, unknown_fields="reject")
        source = records(spark, [(None, framed(1, value)) for value in values])
        decoded = decode_records(source, chosen, known(schema, kind="JSON"))
        columns = T.StructType.fromDDL("id bigint, day date")
        found = parsed(decoded, columns, chosen).orderBy("offset").collect()
        assert [row.problem for row in found] == [None, "field extra: '5' has no column", None]
        chosen.unknown_fields = "ignore"  # a new table has no column for them either, so they are ignored there
        seen = look_at(decoded, columns, chosen)
        assert [each.names for each in (seen.guessed, *seen.written)] == [[], ["id", "day"]]
        chosen.evolve_schema = True
        changes = plan_evolution(T.StructType.fromDDL("id bigint"), look_at(decoded, columns, chosen), chosen)
        assert sorted(map(str, changes)) == ["add day date", "add extra bigint"]


def envelope(op, before=None, after=None, **more):
    return {"before": before, "after": after, "op": op, "source": {"table": "t"}, "ts_ms": 1, **more}


NO_BEFORE = "the change event deletes a row, but has no before to name the row"
CONNECTOR = "io.debezium.connector."
ABOUT_CONNECTOR = {
    f"{CONNECTOR}common.Heartbeat": {"ts_ms": 5},
    f"{CONNECTOR}common.TransactionMetadataValue": {"status": "END", "id": "571:53195832", "event_count": 2,
        "data_collections": [{"data_collection": "s1.a", "event_count": 2}], "ts_ms": 5},
    f"{CONNECTOR}mysql.SchemaChangeValue": {"source": {"db": "shop"}, "ts_ms": 5, "databaseName": "shop",
        "schemaName": None, "ddl": "ALTER TABLE a ADD b INT", "tableChanges": []},
    f"{CONNECTOR}common.Notification": {"id": "ff81", "aggregate_type": "Initial Snapshot", "type": "COMPLETED",
        "additional_data": {}, "timestamp": 5},
}  # fmt: skip
FIELDS = [
    {"field": "id", "type": "int32", "optional": False},
    {"field": "day", "type": "int32", "optional": True, "name": "io.debezium.time.Date"},
    {"field": "us", "type": "int64", "optional": True, "name": "io.debezium.time.MicroTimestamp"},
    {"field": "z", "type": "string", "optional": True},
    {"field": "list", "type": "array", "optional": True, "items": {"type": "int32", "name": "io.debezium.time.Date"}},
]


def with_schema(payload):
    return {"schema": connect_envelope(*FIELDS, optional=True, name="server.t.Value"), "payload": payload}


def compact(value):
    return json.dumps(value, separators=(",", ":"))


CONNECT_ID = {"field": "id", "type": "int32"}


def connect_struct(*fields, **more):
    return {"type": "struct", "fields": list(fields), **more}


def connect_envelope(*fields, before=True, **more):
    rows = [connect_struct(*fields, field=name, **more) for name in (["before"] if before else []) + ["after"]]
    return connect_struct(*rows, {"field": "op", "type": "string"})


class DescribeDebeziumJson:
    def it_upserts_after_and_deletes_before(self, decode):
        row = {"id": 1, "payload": '{"payload":1}'}
        schema = connect_envelope(CONNECT_ID, {"field": "payload", "type": "string"})
        wrapped = [compact({"schema": each, "payload": envelope("c", None, row)}) for each in (schema, None)]
        key = {"type": "struct", "fields": [{"field": "id", "type": "int32", "optional": False}]}
        cases = [
            (None, envelope("c", None, {"id": 1, "x": 1.25}), '{"id":1,"x":1.25}', "upsert"),
            (None, envelope("r", None, {"id": 2}), '{"id":2}', "upsert"),
            (None, envelope("u", {"id": 1}, {"id": 1, "x": None}), '{"id":1,"x":null}', "upsert"),
            (None, envelope("d", {"id": 1, "x": 3}), '{"id":1,"x":3}', "delete"),
            (None, {"payload": envelope("c", None, {"id": 3})}, '{"id":3}', "upsert"),
            ({"id": 4}, None, '{"id": 4}', "delete"),
            # The schema part is found whatever names there are, and says what a key is.
            *((None, each, compact(row), "upsert") for each in wrapped),
            ({"schema": key, "payload": {"id": 4}}, None, '{"id":4}', "delete"),
            ({"schema": {"type": "int32"}, "payload": 5}, None, '{"id":5}', "delete"),
            ({"schema": {"type": "string"}, "payload": "1.10"}, None, '{"id":"1.10"}', "delete"),
            ({"schema": {"type": "int32", "name": "io.debezium.time.Date"}, "payload": 19000}, None,
             '{"id":"2022-01-08"}', "delete"),
        ]  # fmt: skip
        # A message of the log describes no row, and is left out.
        with_schema = {"schema": connect_struct({"field": "op", "type": "string"}), "payload": {"op": "m"}}
        messages = (None, envelope("m", message={"prefix": "p"})), (None, with_schema)
        source = [*messages, *(case[:2] for case in cases)]
        found = decode("debezium_json", source, identifier_columns=["id"])
        assert found == [(*case[2:], None) for case in cases]

    def it_skips_records_about_the_connector_but_no_row_that_resembles_them(self, decode):
        source = []
        for name, payload in ABOUT_CONNECTOR.items():
            schemas = None, connect_struct(*({"field": field, "type": "string"} for field in payload), name=name)
            source += [payload, *(compact({"schema": schema, "payload": payload}) for schema in schemas)]
        assert decode("debezium_json", [(None, each) for each in source]) == []
        signals = [{"id": "a-open", "type": "snapshot-window-open", "data": "{}"},
                   {"ID": "1", "TYPE": "execute-snapshot", "DATA": "{}"}]  # fmt: skip
        rows = [{"id": "1", "type": "snapshot", "data": "{}"}, {"id": "1", "type": "stop-snapshot", "data": 1, "x": 1}]
        source = [envelope("c", None, each) for each in (*signals, *rows)] + [envelope("d", signals[0])]
        found = decode("debezium_json", [(None, each) for each in source])
        assert [json.loads(payload) for payload, _, _ in found] == rows

    @pytest.mark.parametrize("has_schema", [False, True])
    def it_deletes_by_the_key_if_there_is_no_before(self, decode, has_schema):
        def connect(schema, payload):
            return compact({"schema": schema, "payload": payload}) if has_schema else compact(payload)

        day = {"field": "day", "type": "int32", "name": "io.debezium.time.Date"}
        value = connect(connect_envelope(CONNECT_ID, day), {"before": None, "after": None, "op": "d"})
        unnamed = None, "delete", f"{NO_BEFORE}, and its key does not name the identifier columns"
        keys = {
            connect(connect_struct(CONNECT_ID, day), {"id": 5, "day": 19000}):
                (compact({"id": 5, "day": "2022-01-08" if has_schema else 19000}), "delete", None),
            '{"id":"\\ud83d","day":1}': unnamed,
            None: unnamed,
        }  # fmt: skip
        source = [(key, value) for key in keys]
        assert decode("debezium_json", source, identifier_columns=["id", "day"]) == [*keys.values()]

    def it_explains_records_that_describe_no_row(self, decode):
        cases = [
            (envelope("d"), f"{NO_BEFORE}, and its key does not name the identifier columns"),
            (envelope("c"), "the change event has no after, so there is no row"),
            (envelope("z", None, {"id": 1}),
             "the operation of the change event (op) is 'z', which is not an operation"),
            *((each, "the operation of the change event (op) is missing") for each in (
                {"ts_ms": 1, "x": 1}, {"id": "1", "status": "NEW"}, {"source": {}, "databaseName": "a"})),
            ("[1]", "not one JSON object: '[1]'"),
        ]  # fmt: skip
        unfit = with_schema(envelope("c", None, {"id": "x"}))
        *actual, last = (row[2] for row in decode("debezium_json", [(None, each) for each, _ in [*cases, (unfit, "")]]))
        assert actual == [problem for _, problem in cases]
        assert last.startswith("the record does not fit its own schema part: '{")

    def it_marks_updates_with_unavailable_values_and_truncations(self, decode):
        toast = "__debezium_unavailable_value"
        array, hash_ = [*toast.encode()], ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"]
        unavailable = [toast, base64.b64encode(toast.encode()).decode(), compact({toast: toast}), array, hash_]
        events = [envelope("u", None, {"id": 1, "body": value}) for value in unavailable]
        events += [with_schema(envelope("u", None, {"id": 1, "list": array})), envelope("t")]
        events.append(envelope("u", {"body": toast}, {"body": f"x {toast}"}))
        found = decode("debezium_json", [(None, each) for each in events])
        assert [row[1:] for row in found] == [(op, None) for op in ["partial"] * 6 + ["truncate", "upsert"]]
        unwrapped = [(None, compact({"op": op, "x": value})) for value in unavailable for op in "ud"]
        ops = [row[1:] for row in decode("json", unwrapped, op_field="op")]
        assert ops == [("partial", None), ("delete", None)] * 5


NOT_UNDERSTOOD_CONNECT = {
    "text": "v1", "list": [], "empty": {}, "unknown type": {"type": "int46"},
    "field without name": connect_envelope({"type": "int32"}),
    "row fields null": connect_struct({"field": "after", "type": "struct", "fields": None}),
    "duplicate field": connect_envelope(CONNECT_ID, CONNECT_ID),
    "scale": connect_envelope({**CONNECT_ID, "type": "bytes", "name": DECIMAL, "parameters": {"scale": "x"}}),
    "rows are texts": connect_struct(*({"field": name, "type": "string"} for name in ("before", "after", "op"))),
}  # fmt: skip
NOT_UNDERSTOOD_AVRO = {
    "empty": {}, "null": None, "unknown type": avro_record("R", a="int46"),
    "recursive": avro_record("R", value="long", next=["null", "R"]),
    "case": avro_record("R", a="int", A="int"),
    "scale": avro_record("R", a={"type": "bytes", "connect.name": DECIMAL, "connect.parameters": {"scale": "x"}}),
}  # fmt: skip


class DescribeSchemasThatCannotBeUnderstood:
    """They make dead letters of their own records; the good records beside them are rows."""

    def it_rejects_the_records_of_a_schema_part(self, decode):
        payload = envelope("c", None, {"id": 1})
        bad = [{"schema": schema, "payload": payload} for schema in NOT_UNDERSTOOD_CONNECT.values()]
        source = [pair for each in bad for pair in ((None, compact(each)), (each, None))]
        good = {"schema": connect_envelope(CONNECT_ID), "payload": payload}
        only_after = {"schema": connect_envelope(CONNECT_ID, before=False), "payload": payload}
        deep = (f'{{"schema":{"[" * depth}{"]" * depth},"payload":{{}}}}' for depth in (900, 1000, 5000))
        source += [*((None, text) for text in deep), (None, only_after), (None, good)]
        actual = decode("debezium_json", source, identifier_columns=["id"])
        start = "the schema part of the record cannot be understood ("
        cases = [name for name in NOT_UNDERSTOOD_CONNECT for _ in ("value", "key")]
        assert [name for name, row in zip(cases, actual, strict=False) if not (row[2] or "").startswith(start)] == []
        assert [problem is not None for *_, problem in actual[-5:-2]] == [True] * 3
        assert actual[-2][2].startswith("not a change event: ")
        assert actual[-1] == ('{"id":1}', "upsert", None)
        assert actual[2 * list(NOT_UNDERSTOOD_CONNECT).index("empty")][2].endswith("(KeyError: 'type'): '{}'")

    def it_rejects_the_records_of_a_registered_schema(self, decode):
        # Writers do not check defaults, so the last one is good.
        good = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int", "default": ""}]}
        schemas = {**known(*NOT_UNDERSTOOD_AVRO.values(), good), 99: RegisteredSchema("AVRO", "no json")}
        names = dict(zip(schemas, [*NOT_UNDERSTOOD_AVRO, "good", "no json"], strict=True))
        bodies = [framed(number, zigzag(7)) for number in schemas]
        source = [(None, body) for body in bodies] + [(body, None) for body in bodies]
        found = decode("avro", source, schemas, identifier_columns=["id"])
        understood = [
            (names[number], payload)
            for number, (payload, _, problem) in zip([*schemas, *schemas], found, strict=True)
            if not (problem or "").startswith(f"schema {number} cannot be understood (")
        ]
        assert understood == [("good", '{"id":7}')] * 2

    def it_rejects_the_records_of_a_json_schema(self, decode):
        bad = [{"properties": {"a": {"type": "integer"}, "A": {"type": "integer"}}}, {"properties": 5}, 5, None]
        schemas = known(*bad, {"properties": {"id": {"type": "integer"}}}, kind="JSON")
        schemas[9] = RegisteredSchema("JSON", "no json")
        problems = [row[2] for row in decode("json_schema", [(None, framed(n, b'{"id":1}')) for n in schemas], schemas)]
        assert [problem is None for problem in problems] == [False] * 4 + [True, False]
        assert problems[0].startswith("schema 1 cannot be understood (AnalysisException: ")


def it_rejects_a_record_with_a_longer_text_than_the_parser_reads(decode):
    value = json.dumps(envelope("c", None, {"id": 1, "z": "y" * 20_100_000}))
    [(payload, _, problem)] = decode("debezium_json", [(None, value)])
    assert (payload, bool(problem)) == (None, True)


AVRO_TIME = {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}
AVRO_ROW = avro_record("Value", id="int", at=["null", AVRO_TIME])
AVRO_ENVELOPE = {
    **avro_record("server.t.Envelope", before=["null", AVRO_ROW], after=["null", "Value"], op="string"),
    "connect.name": "server.t.Envelope",
}


class DescribeDebeziumAvro:
    def it_upserts_after_and_deletes_before(self, rows):
        row = zigzag(7) + SOME + zigzag(1_700_000_000_000_001)
        events = NULL + SOME + row + text("c"), SOME + zigzag(7) + NULL + NULL + text("d"), NULL + NULL + text("t")
        # A message of the log has a schema of its own, and is left out.
        source = [*((None, framed(1, event)) for event in events), (None, framed(2, text("m")))]
        # A document of MongoDB is a text.
        document = {"type": "string", "connect.name": "io.debezium.data.Json"}
        document = avro_record("R", before=["null", document], after=["null", document], op="string")
        source += [(None, framed(3, avro_order(1))), (None, framed(4, NULL + SOME + text('{"id": 1}') + text("c")))]
        # A heartbeat is left out, too. A deletion without `before` goes by its key.
        heartbeat = {**avro_record("Heartbeat", ts_ms="long"), "connect.name": f"{CONNECTOR}common.Heartbeat"}
        bare = framed(1, NULL + NULL + text("d"))
        source += [(None, framed(5, zigzag(1))), (framed(6, zigzag(8)), bare), ("9", bare), (None, bare)]
        key = avro_record("Key", id="int")
        schemas = known(AVRO_ENVELOPE, avro_record("MessageValue", op="string"), AVRO_ORDER, document, heartbeat, key)
        actual = rows("debezium_avro", source, "id int, at string", schemas, identifier_columns=["id"])
        assert actual == [
            ("upsert", (7, "2023-11-14T22:13:20.000001"), None),
            ("delete", (7, None), None),
            ("truncate", None, "not one JSON object: 'null'"),
            (None, None, "schema 3 does not describe a change event"),
            ("upsert", (1, None), None),
            ("delete", (8, None), None),
            ("delete", (9, None), None),
            ("delete", None, f"{NO_BEFORE}, and its key does not name the identifier columns"),
        ]


class DescribeDms:
    def it_reads_data_and_operation(self, decode):
        def record(operation, data, kind="data"):
            return {"data": data, "metadata": {"operation": operation, "record-type": kind, "table-name": "t"}}

        unknown = "the operation (metadata.operation) is 'reload', which is not an operation"
        cases = [
            (record("load", {"id": 1}), '{"id":1}', "upsert", None),
            (record("insert", {"id": 2}), '{"id":2}', "upsert", None),
            ('{"data":{"id":3,"x":12345678901234567890.12},"metadata":{"operation":"update"}}',
             '{"id":3,"x":12345678901234567890.12}', "upsert", None),
            (record("delete", {"id": 4}), '{"id":4}', "delete", None),
            (record("reload", {"id": 5}), '{"id":5}', None, unknown),
            (record("insert", None), None, "upsert", "the record has no data"),
        ]  # fmt: skip
        # A record about the table itself is left out.
        source = [record("create-table", None, "control"), *(case[0] for case in cases)]
        assert decode("dms", [(None, each) for each in source]) == [case[1:] for case in cases]

    def it_reads_the_flat_form(self, rows):
        cases = [
            ({"Op": "I", "id": 0, "metadata": {"a": 1}}, "upsert", (0, '{"a":1}'), None),
            ({"Op": "U", "id": 1, "metadata": '{"a":1}'}, "upsert", (1, '{"a":1}'), None),
            ({"Op": "U", "id": 2, "other": 1}, "upsert", None, "field other: '1' has no column"),
            ({"Op": "D", "id": 2, "other": 1}, "delete", (2, None), None),
            ({"id": 9}, None, None, "not a DMS record: '{\"id\": 9}'"),
            ("[]", None, None, "not one JSON object: '[]'"),
        ]
        source = [*((None, each) for each, *_ in cases), (" 5", None)]
        given = {"unknown_fields": "reject", "identifier_columns": ["id"]}
        found = rows("dms", source, "id int, metadata string", **given)
        assert found == [*(case[1:] for case in cases), ("delete", (5, None), None)]
