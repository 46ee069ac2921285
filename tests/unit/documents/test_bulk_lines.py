"""Rows to documents, ids and bulk operations: what OpenSearch is going to be sent, to the byte."""

import hashlib
import json

import pytest
from pyspark.sql import functions as F

from icecdc_core.documents.bulk_lines import (
    delete_actions,
    delete_version,
    document_id,
    document_json,
    stored_actions,
    to_actions,
    upsert_version,
)


def row(spark, **expressions):
    return spark.range(1).select(*(F.expr(text).alias(name) for name, text in expressions.items()))


def document(df):
    return df.select(document_json(df.schema)).first()[0]


class DescribeDocumentJson:
    CASES = (
        ("true", "true"),
        ("cast(null as boolean)", "null"),
        ("cast(1 as tinyint)", "1"),
        ("9223372036854775807", "9223372036854775807"),
        ("1.5F", "1.5"),
        ("-0.0D", "-0.0"),
        ("double('NaN')", '"NaN"'),
        ("double('-Infinity')", '"-Infinity"'),
        ("cast(1.50 as decimal(5,2))", '"1.50"'),
        ("cast(null as decimal(5,2))", "null"),
        ("cast(0 as decimal(20,10))", '"0.0000000000"'),
        ("cast(-1e-9 as decimal(20,10))", '"-0.0000000010"'),
        ("cast(1e-38 as decimal(38,38))", f'"0.{"0" * 37}1"'),
        ("cast('12345678901234567890123456789012345678' as decimal(38,0))", '"12345678901234567890123456789012345678"'),
        ("'a\"b\\\\c\\n\u0001é\U0001f600'", '"a\\"b\\\\c\\n\\u0001é\U0001f600"'),
        ("date'2026-01-31'", '"2026-01-31"'),
        ("date'-0001-01-31'", '"-0001-01-31"'),
        ("date'+10000-01-31'", '"+10000-01-31"'),
        ("timestamp_micros(0)", '"1970-01-01T00:00:00.000000Z"'),
        ("timestamp_micros(1616889600123456)", '"2021-03-28T00:00:00.123456Z"'),
        ("timestamp_micros(253402300800000001)", '"+10000-01-01T00:00:00.000001Z"'),
        ("timestamp_ntz'2021-03-28 02:30:00.1'", '"2021-03-28T02:30:00.100000"'),
        ("X'00FF'", '"AP8="'),
        ("X''", '""'),
        ("unhex(repeat('00', 60))", f'"{"A" * 80}"'),
        ("array(1, null)", "[1,null]"),
        ("array(cast(1.5 as decimal(3,1)), null)", '["1.5",null]'),
        ("cast(null as array<decimal(3,1)>)", "null"),
        ("array(array(1.5BD), null)", '[["1.5"],null]'),
        ("named_struct('X', 1, 'a.b', null)", '{"X":1,"a.b":null}'),
        ("named_struct('a.b', 1.5BD, 'c`d', named_struct('e', X'01'))", '{"a.b":"1.5","c`d":{"e":"AQ=="}}'),
        ("cast(null as struct<a: decimal(3,1)>)", "null"),
        ("named_struct('a', cast(null as struct<b: decimal(3,1)>))", '{"a":null}'),
        ("struct()", "{}"),
        ("map('k', null)", '{"k":null}'),
        ("map()", "{}"),
        ("map('k', 1.5BD, 'n', null)", '{"k":"1.5","n":null}'),
        ("map(1, 2)", '{"1":2}'),
        ("map(true, 2)", '{"true":2}'),
        ("map(date'2026-01-31', 2)", '{"2026-01-31":2}'),
        ("map(timestamp_micros(0), 2)", '{"1970-01-01T00:00:00.000000Z":2}'),
        ("map(timestamp_ntz'2021-03-28 02:30:00', 2)", '{"2021-03-28T02:30:00.000000":2}'),
        ("map(cast(0 as decimal(20,10)), 2)", '{"0.0000000000":2}'),
        ("map(X'00FF', 2)", '{"AP8=":2}'),
        ("map(named_struct('a', 1.5BD), map(date'2026-01-31', X'01'))",
            '{"{\\"a\\":\\"1.5\\"}":{"2026-01-31":"AQ=="}}'),
        ("cast(null as map<date, int>)", "null"),
        ("null", "null"),
        ("array(null)", "[null]"),
        ("""parse_json('{"b": 1.50, "a": [1, null, "x"]}')""", '{"a":[1,null,"x"],"b":1.5}'),
        ("parse_json('7')", "7"),
        ("parse_json('null')", "null"),
        ("cast(null as variant)", "null"),
        ("to_variant_object(named_struct('at', timestamp_micros(123456), 'b', X'00FF', 'd', 1.50BD, "
            "'f', double('NaN')))", '{"at":"1970-01-01 00:00:00.123456+00:00","b":"AP8=","d":1.5,"f":"NaN"}'),
        ("named_struct('v', parse_json('[1]'), 'p', 1.5BD)", '{"v":[1],"p":"1.5"}'),
        ("array(parse_json('1'), null)", "[1,null]"),
        ("map('k', parse_json('{}'))", '{"k":{}}'),
    )  # fmt: skip

    def it_writes_every_type(self, spark):
        df = row(spark, **{f"c{number}": case[0] for number, case in enumerate(self.CASES)})
        expected = ",".join(f'"c{number}":{case[1]}' for number, case in enumerate(self.CASES))
        assert document(df) == f"{{{expected}}}"

    def it_has_the_column_order_and_odd_names_without_reserved_columns_and_bytes_that_are_not_utf8(self, spark):
        odd = {"b": "1", "A": "2", "a.c": "3", "d`e": "4", 'f"g': "cast(X'61FF62' as string)"}
        df = row(spark, **odd, _change_type="6", _row_position="7")
        assert document(df) == '{"b":1,"A":2,"a.c":3,"d`e":4,"f\\"g":"a\ufffdb"}'


SINGLE = {
    "7": "7", "-9223372036854775808": "-9223372036854775808", "'a|b\\\\c'": "a|b\\c", "true": "true",
    "cast(1.50 as decimal(5,2))": "1.50", "cast(0 as decimal(20,10))": "0.0000000000", "date'2026-01-31'": "2026-01-31",
    "timestamp_micros(1616889600123456)": "2021-03-28T00:00:00.123456Z",
    "timestamp_ntz'2021-03-28 02:30:00'": "2021-03-28T02:30:00.000000", "X'00FF'": "AP8=",
    # Ids that OpenSearch accepts.
    "repeat('x', 512)": "x" * 512, "repeat('é', 256)": "é" * 256, "' '": " ", "repeat('ab', 31)": "ab" * 31,
    "upper(sha2('', 256))": hashlib.sha256(b"").hexdigest().upper(),
    "sha2('', 256) || '0'": hashlib.sha256(b"").hexdigest() + "0",
}  # fmt: skip
HASHED = {
    "repeat('x', 513)": b"x" * 513,
    "repeat('é', 257)": "é".encode() * 257,
    "''": b"",
    "cast(X'61FF' as string)": b"a\xff",
    # Looks like the digest of another id.
    "sha2('', 256)": hashlib.sha256(b"").hexdigest().encode(),
    "unbase64(repeat('ab', 32))": b"ab" * 32,
}


class DescribeDocumentId:
    def it_is_the_text_a_single_column_has_in_the_document_or_its_hash_where_opensearch_refuses_that(self, spark):
        expected = {**SINGLE, **{each: hashlib.sha256(raw).hexdigest() for each, raw in HASHED.items()}}
        df = row(spark, **{f"k{number}": expression for number, expression in enumerate(expected)})
        found = df.select(*(document_id(df.schema, [name]) for name in df.columns)).first()
        assert dict(zip(expected, found, strict=True)) == expected

    def it_joins_several_columns_unambiguously_in_their_order(self, spark):
        columns = {"x": "'x'", "p": "'x|y'", "s": "'x\\\\'", "e": "''", "one": "1", "day": "date'2026-01-31'"}
        wide = {f"d{number}": f"cast('{'1'.ljust(38, '0')}' AS decimal(38))" for number in range(14)}
        df = row(spark, **columns, **wide, zeros="repeat('0', 31)", letters="repeat('a', 32)")
        expected = {
            ("x", "one"): "x|1", ("one", "x"): "1|x", ("p", "one"): "x\\|y|1", ("s", "one"): "x\\\\|1",
            tuple(wide): hashlib.sha256(b"|".join([b"1".ljust(38, b"0")] * 14)).hexdigest(),
            ("e", "one"): "|1", ("x", "day"): "x|2026-01-31", ("zeros", "letters"): f"{'0' * 31}|{'a' * 32}",
        }  # fmt: skip
        found = df.select(*(document_id(df.schema, names) for names in expected)).first()
        assert dict(zip(expected, found, strict=True)) == expected

    def it_is_the_position_of_the_row_without_identifier_columns(self, spark):
        df = row(spark, a="1", _row_position="'file.parquet#3'")
        assert df.select(document_id(df.schema, [])).first()[0] == "file.parquet#3"

    @pytest.mark.parametrize("columns", [["k"], ["a", "k"]])
    def it_fails_on_a_null_when_the_query_runs(self, spark, columns):
        lazy = to_actions(row(spark, a="1", k="cast(null as string)", _change_type="'INSERT'"), columns, 1)
        with pytest.raises(Exception, match="null identifier in column k"):
            lazy.collect()


class DescribeToActions:
    def it_makes_one_complete_operation_of_a_row(self, spark):
        for change, expected in (
            ("INSERT", '{"index":{"_id":"7","version":7,"version_type":"external"}}\n{"id":7,"v":"x"}\n'),
            ("DELETE", '{"delete":{"_id":"7","version":6,"version_type":"external"}}\n'),
        ):
            df = row(spark, id="7", v="'x'", _change_type=f"'{change}'", _change_ordinal="0", _commit_snapshot_id="1L")
            assert to_actions(df, ["id"], 3).first()["action"] == expected

    def it_says_where_the_document_is(self, spark):
        changes = [("INSERT", "a"), ("DELETE", 'b"')]
        df = spark.createDataFrame(changes, "_change_type string, _icecdc_place string").selectExpr("7 AS id", "*")
        found = [row["action"] for row in to_actions(df, ["id"], 3).collect()]
        assert found == [
            '{"index":{"_id":"7","routing":"a","version":7,"version_type":"external"}}\n{"id":7}\n',
            '{"delete":{"_id":"7","routing":"b\\"","version":6,"version_type":"external"}}\n',
        ]
        letters = spark.createDataFrame(
            [("7", "a", 7, '{"id":7}'), ("7", 'b"', 6, None), ("8", "", 6, None)],
            "document_id string, _icecdc_place string, version long, document string",
        )
        again = [row["action"] for row in stored_actions(letters).collect()]
        assert again == [*found, '{"delete":{"_id":"8","version":6,"version_type":"external"}}\n']

    def it_keeps_a_column_that_is_named_as_its_own(self, spark):
        df = row(spark, id="7", _document_id="'x'", _change_type="'INSERT'")
        (action,) = to_actions(df, ["id"], 3).first()
        assert json.loads(action.split("\n")[1]) == {"id": 7, "_document_id": "x"}

    def it_escapes_the_id(self, spark):
        keys = ['a"b', "a\\b", "a\nb", "a\u0001b", "a\tb", "é\U0001f600", "a\u2028b", "{}"]
        df = spark.createDataFrame([(key, "INSERT") for key in keys], "k string, _change_type string")
        parts = [row["action"].split("\n") for row in to_actions(df, ["k"], 1).collect()]
        found = [(json.loads(head)["index"]["_id"], json.loads(doc)["k"], end) for head, doc, end in parts]
        assert found == [(key, key, "") for key in keys]

    def it_deletes_by_id_alone(self, spark):
        (action,) = delete_actions(spark.createDataFrame([('a"b',)], "id string"), 3).first()
        assert action == '{"delete":{"_id":"a\\"b","version":6,"version_type":"external"}}\n'
        assert [version // 2 for version in (delete_version(7), upsert_version(7))] == [7, 7]
