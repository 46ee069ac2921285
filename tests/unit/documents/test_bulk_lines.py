"""Rows to documents, ids and bulk operations: what OpenSearch is going to be sent, to the byte."""

import pytest
from pyspark.sql import functions as F

from icecdc_core.documents.bulk_lines import (
    delete_actions,
    delete_version,
    document_id,
    to_actions,
    upsert_version,
)


def row(spark, **expressions):
    return spark.range(1).select(*(F.expr(text).alias(name) for name, text in expressions.items()))


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

    def it_deletes_by_id_alone(self, spark):
        (action,) = delete_actions(spark.createDataFrame([('a"b',)], "id string"), 3).first()
        assert action == '{"delete":{"_id":"a\\"b","version":6,"version_type":"external"}}\n'
        assert [version // 2 for version in (delete_version(7), upsert_version(7))] == [7, 7]
