"""Rows to documents, ids and bulk operations: what OpenSearch is going to be sent, to the byte."""

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
    def it_has_the_column_order_and_odd_names_without_reserved_columns_and_bytes_that_are_not_utf8(self, spark):
        odd = {"b": "1", "A": "2", "a.c": "3", "d`e": "4", 'f"g': "cast(X'61FF62' as string)"}
        df = row(spark, **odd, _change_type="6", _row_position="7")
        assert document(df) == '{"b":1,"A":2,"a.c":3,"d`e":4,"f\\"g":"a\ufffdb"}'


class DescribeDocumentId:
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

    def it_deletes_by_id_alone(self, spark):
        (action,) = delete_actions(spark.createDataFrame([('a"b',)], "id string"), 3).first()
        assert action == '{"delete":{"_id":"a\\"b","version":6,"version_type":"external"}}\n'
        assert [version // 2 for version in (delete_version(7), upsert_version(7))] == [7, 7]
