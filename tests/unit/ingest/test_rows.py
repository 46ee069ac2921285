"""JSON payloads become rows, or get a problem; no value becomes null silently."""

import json
import re

import pytest
from hypothesis import HealthCheck, given, settings as examples, strategies as st
from pyspark.sql import functions as F, types as T

from icecdc_core.ingest.decoding import decode_records
from icecdc_core.ingest.destinations import plan_evolution
from icecdc_core.ingest.inference import find_spellings, infer_schema, look_at
from icecdc_core.ingest.rows import parse_rows
from icecdc_core.session.spark import settings_unless_set
from tests.given import kafka_records
from tests.given.kafka_records import parsed, settings


@pytest.fixture(autouse=True)
def case_sensitive(spark):
    """Let Spark distinguish names by case and keep the last of equal keys, as the session of a batch does."""
    conf = {"spark.sql.caseSensitive": "true", "spark.sql.mapKeyDedupPolicy": "LAST_WIN"}
    with settings_unless_set(spark, conf):
        yield


def records(spark, values):
    return kafka_records.records(spark, [(None, value) for value in values])


@pytest.fixture
def fit(spark):
    """Fit texts into columns; gives the row as JSON, or the problem, of each."""

    def run(ddl, values, seen=None, **given):
        chosen = settings(**given)
        source = decode_records(records(spark, values), chosen)
        frame = parsed(source, T.StructType.fromDDL(ddl), chosen, seen)
        row = F.to_json("row", {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"})
        found = frame.orderBy("offset").select("problem", "is_valid", row.alias("row")).collect()
        assert [each.is_valid for each in found] == [each.problem is None for each in found]
        return [each.problem or each.row for each in found]

    return run


# A type, a value in JSON, and the value as read or why it is not; test_random_values.py draws others.
# fmt: off
VALUES = [
    ("bigint", f'"{"y" * 500}"', f"field x: '{'y' * 100}' is not of type bigint"),
    ("double", "1e309", "field x is too big for double"),
    ("array<timestamp_ntz>", '["2024"]', "field x: '[\"2024\"]' is not of type array<timestamp_ntz>"),
    ("map<string,int>", '{"a":1,"b":2,"a":3}', '{"a":3,"b":2}'),
    ("map<string,date>", '{"a":"2024-01-01","a":"2024-01-02"}', '{"a":"2024-01-02"}'),
    ("struct<y:int,z:date>", '{"y":1,"y":2}', '{"y":2}'),
    ("struct<y:int,z:date>", '{"z":"a"}', "field x: '{\"z\":\"a\"}' is not of type struct<y:int,z:date>"),
    ("map<string,struct<y:float>>", '{"k":{"y":1e39}}', "field x: '{\"k\":{\"y\":1.0E39}}' is not of type map<string,struct<y:float>>"),  # noqa: E501
]
# fmt: on


class DescribeParseRows:
    def it_keeps_a_value_or_says_why_it_does_not_fit(self, fit):
        names = {kind: f"x{place}" for place, kind in enumerate(dict.fromkeys(kind for kind, *_ in VALUES))}
        ddl = ", ".join(f"{name} {kind}" for kind, name in names.items())
        actual = fit(ddl, [f'{{"{names[kind]}":{value}}}' for kind, value, _ in VALUES])
        assert actual == [
            text.replace("field x", f"field {names[kind]}", 1)
            if text.startswith("field ")
            else f'{{"{names[kind]}":{text}}}'
            for kind, _, text in VALUES
        ]

    def it_accepts_only_one_whole_json_object(self, fit):
        values = ["", " ", "null", "1", '"x"', "[]", '[{"x":1}]', '{"x":1', '{"x":1}}', '{"x":1} {"x":2}',
                  '{"x":1},{"x":2}', "{'x':1}", '{"x":01}', '{"x":1,}', "{x:1}", '{"x":1}x',
                  '{"x":' * 1500 + "1" + "}" * 1500]  # fmt: skip
        *actual, equal_keys, no_utf8 = fit("x bigint", [*values, '{"x":1,"x":2}', b'{"x":"\xff"}'])
        assert (equal_keys, no_utf8) == ('{"x":2}', "the value is not valid UTF-8")
        assert [text.removesuffix("'")[:24] for text in actual] == [
            ("not one JSON object: '" + value)[:24] for value in values
        ]

    def it_names_the_limit_of_a_string(self, fit):
        [actual] = fit("x string", ['{"x":"' + "a" * 20_000_001 + '"}'])
        assert actual.endswith("; perhaps a string in it has more than 20,000,000 characters, which is the limit")

    def it_rejects_records_of_more_levels_than_spark_can_infer_the_type_of(self, fit):
        nested = ['{"x":' * levels + "1" + "}" * levels for levels in (100, 103, 300)]
        actual = fit("y bigint", nested, unknown_fields="reject")
        assert [text[:11] for text in actual] == ["field x: '{", "not one JSO", "not one JSO"]

    def it_requires_required_fields_also_in_structs_but_only_the_identifiers_of_a_deleted_row(self, fit):
        missing = "field x is missing or null, and required"
        expected = {
            '{"id":1,"x":1,"op":"c"}': '{"id":1,"x":1}',
            '{"id":1,"x":null,"op":"c"}': missing,
            '{"id":1,"op":"c"}': missing,
            '{"id":1,"x":1,"s":{},"op":"c"}': "field s: '{}' is not of type struct<y:bigint>",
            '{"id":1,"x":1,"s":{"y":2},"op":"c"}': '{"id":1,"x":1,"s":{"y":2}}',
            '{"id":1,"x":1,"s":{"y":2,"b":3},"op":"c"}': 'field s: \'{"y":2,"b":3}\' is not of type struct<y:bigint>',
            '{"id":1,"op":"d"}': '{"id":1}',
            '{"id":1,"s":{"b":3},"z":4,"op":"d"}': '{"id":1,"s":{}}',
            '{"x":1,"op":"d"}': "field id is missing or null, and identifies the row",
        }
        ddl = "id bigint, x bigint not null, s struct<y: bigint not null>"
        actual = fit(ddl, expected, op_field="op", identifier_columns=["id"], unknown_fields="reject")
        assert actual == list(expected.values())

    def it_rejects_fields_without_a_column_if_configured(self, fit):
        expected = {
            '{"x":1}': '{"x":1}',
            '{"x":1,"y":2}': "field y: '2' has no column",
            '{"x":1,"y":null,"z":[]}': '{"x":1}',
            '{"s":"x"}': "field s: 'x' is not of type struct<a:int>",
            '{"s":{"a":1,"b":2}}': 'field s: \'{"a":1,"b":2}\' is not of type struct<a:int>',
            '{"l":[{"c":1}]}': "field l: '[{\"c\":1}]' is not of type array<struct<a:int>>",
        }
        actual = fit("x bigint, s struct<a:int>, l array<struct<a:int>>", expected, unknown_fields="reject")
        assert actual == list(expected.values())

    def it_rejects_records_with_thousands_of_names_without_a_column(self, fit):
        others = [json.dumps({"x": 1, **{f"k{start + n}": 2 for n in range(5000)}}) for start in (0, 7000)]
        actual = fit("x bigint", [*others, '{"x":1}'], unknown_fields="reject")
        assert actual == ["field k0: '2' has no column", "field k7000: '2' has no column", '{"x":1}']

    def it_finds_columns_in_any_case(self, fit):
        expected = {
            '{"orderId":1,"Home":{"ZIP":2}}': '{"orderid":1,"home":{"zip":2}}',
            '{"ORDERID":3,"home":{"Zip":4}}': '{"orderid":3,"home":{"zip":4}}',
            '{"orderid":4,"HOME":{"zip":5}}': '{"orderid":4,"home":{"zip":5}}',
            '{"order\\u0049d":7,"\\q":1,"HOME":{"\\u005aip":8}}': 'not one JSON object: \'{"order\\u0049d":7,"\\q":1',
            '{"order\\u0049d":7,"HOME":{"\\u005aip":8}}': '{"orderid":7,"home":{"zip":8}}',
            '{"orderId":5,"orderid":6}': "field ORDERID: '5' is there twice, as ORDERID and orderId and orderid",
        }
        actual = fit("orderid bigint, home struct<zip:bigint>", expected, column_case="insensitive")
        assert [text[: len(each)] for text, each in zip(actual, expected.values(), strict=True)] == [*expected.values()]

    def it_reads_columns_of_any_name(self, fit):
        ddl = "`value` bigint, `topic` string, `a.b` bigint, `c``d` bigint, `row` bigint, `payload` bigint"
        value = '{"value":1,"topic":"x","a.b":2,"c`d":3,"row":4,"payload":5}'
        assert fit(ddl, [value]) == [value]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**25), 10**25) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
PIECES = st.text('{}[]":,0123eE.+-ntfu\\ ab', max_size=30)


class DescribeCoercion:
    def it_reads_numbers_of_the_named_column_also_if_it_is_strict_and_says_which_parameter_decided(self, fit):
        ddl, values = "d date, s struct<t:date>, n int", ['{"d":1}', '{"s":{"t":1}}', '{"d":"x"}', '{"n":"1"}']
        found = fit(ddl, values, epoch_units={"s.t": "days"})
        assert found == [
            "field d: '1' is not of type date", '{"s":{"t":"1970-01-02"}}', "field d: 'x' is not of type date",
            "field n: '1' is not of type int",
        ]  # fmt: skip
        found = fit(ddl, ['{"d":1.5}', '{"n":1.5}'], coercion="lenient", epoch_units={"d": "days"})
        reasons = ["date (epoch_units=days)", "int (coercion=lenient)"]
        assert found == [
            f"field {name}: '1.5' is not of type {reason}" for name, reason in zip("dn", reasons, strict=True)
        ]

    def it_widens_columns_for_numbers_in_text(self, spark):
        chosen = settings(evolve_schema=True, coercion="lenient")
        source = decode_records(records(spark, ['{"a":"3000000000","new":1}', '{"a":"x","other":1}']), chosen)
        current = T.StructType.fromDDL("a int")
        changes = plan_evolution(current, look_at(source, current, chosen), chosen)
        assert "widen a bigint" in map(str, changes)
        assert "add new bigint" in map(str, changes)


class DescribeNastyJson:
    @examples(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.binary(max_size=30) | PIECES.map(str.encode), min_size=50))
    def it_accepts_only_json_objects(self, spark, texts):
        source = decode_records(records(spark, texts), settings())
        rows = parse_rows(source, T.StructType.fromDDL("a int"), settings())[0].orderBy("offset").collect()
        taken = [text for text, row in zip(texts, rows, strict=True) if row.is_valid]
        assert [text for text in taken if not isinstance(json.loads(text), dict)] == []

    @examples(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.dictionaries(st.text(max_size=4), JSON, max_size=4), min_size=20, max_size=40))
    def it_fits_whatever_a_schema_was_inferred_from(self, spark, dicts):
        # Python writes numbers that JSON lacks; a field without a name can have no column.
        texts = [text for text in map(json.dumps, dicts) if not re.search('NaN|Infinity|"":', text)]
        chosen = settings(unknown_fields="reject")
        source = decode_records(records(spark, texts), chosen)
        frame = parsed(source, infer_schema(source, chosen), chosen)
        assert [row.problem for row in frame.select("problem").collect()] == [None] * len(texts)


class DescribeInferSchema:
    def it_infers_types_from_values(self, spark):
        assert infer_schema(decode_records(records(spark, []), settings()), settings()) == T.StructType()
        values = ['{"a":1,"b":"x","c":1.5,"d":true,"e":null,"f":[],"g":{},"h":[{"i":1}],"j":99999999999999999999}',
                  '{"a":"x","c":1,"h":[{"k":"y"}]}', "[1]", "no json", '{"z":1},5', ' \t\n{"s":{"t":""}}',
                  '{"n":1,"s":{"t":2,"t":"x"},"n":2.5}']  # fmt: skip
        actual = infer_schema(decode_records(records(spark, values), settings()), settings())
        assert actual.simpleString() == (
            "struct<a:string,b:string,c:double,d:boolean,h:array<struct<i:bigint,k:string>>,j:decimal(38,0),n:double,s:struct<t:string>>"
        )

    def it_widens_columns_despite_bad_values(self, spark):
        kept = "b int, k bigint, x int, n array<int>, d struct<e:float,g:float>"
        current = T.StructType.fromDDL(f"a int, f float, s struct<c:int>, l array<struct<x:int>>, {kept}")
        values = ['{"a":"x"}', '{"a":1.5}', '{"a":true}', '{"a":99999999999999999999}', '{"a":[1]}', '{"f":"x"}',
                  '{"f":{}}', '{"s":"x"}', '{"l":["x"]}', '{"l":5}', '{"b":"x"}', '{"k":"x","f":[1]}', '{"a":"1"}',
                  '{"a":1099511627776,"b":2}', '{"f":1e200}', '{"s":{"c":1099511627776,"new":1}}', '{"l":[{"y":2}]}',
                  '{"a":3}', "{}", '{"x":"y","n":[3000000000],"d":{"e":1.5}}', '{"d":{"e":1e200,"g":1.5}}']  # fmt: skip
        chosen = settings(evolve_schema=True)
        source = decode_records(records(spark, values), chosen)
        actual = plan_evolution(current, look_at(source, current, chosen), chosen)
        widened = [f"widen {change}" for change in ("a bigint", "d.e double", "f double", "s.c bigint")]
        assert sorted(map(str, actual)) == ["add l.element.y bigint", "add s.new bigint", *widened]

    def it_widens_columns_despite_bad_values_in_another_spelling(self, spark):
        current = T.StructType.fromDDL("a int, s struct<c:int>, l array<struct<x:int>>, m map<string,struct<x:int>>")
        values = ['{"A":"x"}', '{"A":1099511627776}', '{"s":"x"}', '{"S":{"C":"x"}}', '{"S":{"C":1099511627776}}',
                  '{"L":[{"X":"x"}]}', '{"L":[{"X":1,"y":2}]}', '{"m":{"k":{"X":"x"}}}',
                  '{"m":{"j":{"x":1}}}']  # fmt: skip
        chosen = settings(evolve_schema=True, column_case="lower")
        source = decode_records(records(spark, values), chosen)
        seen = look_at(source, current, chosen, find_spellings(source, current))
        actual = plan_evolution(current, seen, chosen)
        assert sorted(map(str, actual)) == ["add l.element.y bigint", "widen a bigint", "widen s.c bigint"]
        grown = "a bigint, s struct<c:bigint>, l array<struct<x:int,y:bigint>>, m map<string,struct<x:int>>"
        rows = parse_rows(source, T.StructType.fromDDL(grown), chosen, seen)[0].orderBy("offset").collect()
        assert [row.offset for row in rows if row.is_valid] == [1, 4, 6, 8]

    def it_widens_columns_despite_conflicting_writer_schemas(self, spark):
        wanted = {
            ("decimal(5,2)", "decimal(9,2)"): ["string", "double", "decimal(9,3)"],
            ("int", "bigint"): ["string"],
            ("float", "double"): ["boolean"],
            ("struct<c:int>", "struct<c:bigint>"): ["string"],
            ("array<int>", "array<bigint>"): ["array<string>"],
        }
        columns = [(column, wider, other) for (column, wider), others in wanted.items() for other in others]

        def schema(place):
            return ", ".join(f"x{number} {kinds[place]}" for number, kinds in enumerate(columns))

        rows = [("{}", T.StructType.fromDDL(f"{schema(place)}, y int").json(), None, None) for place in (1, 2)]
        source = spark.createDataFrame(rows, "payload string, payload_type string, problem string, op string")
        current, chosen = T.StructType.fromDDL(schema(0)), settings(format="avro", evolve_schema=True)
        actual = plan_evolution(current, look_at(source, current, chosen), chosen)
        assert [str(change) for change in actual] == [
            "add y int", *(f"widen x{number} decimal(9,2)" for number in range(3)), "widen x3 bigint",
            "widen x4 double", "widen x5.c bigint", "widen x6.element bigint",
        ]  # fmt: skip
