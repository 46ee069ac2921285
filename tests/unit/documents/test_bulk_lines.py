"""Rows to bulk operations; that documents and their ids are right is drawn by tests/integration/documents."""

import pytest

from icecdc_core.documents.bulk_lines import to_actions


@pytest.mark.parametrize("columns", [["k"], ["a", "k"]])
def it_fails_on_a_null_identifier_when_the_query_runs(spark, columns):
    rows = spark.range(1).selectExpr("1 AS a", "cast(null AS string) AS k", "'INSERT' AS _change_type")
    lazy = to_actions(rows, columns, 1)
    with pytest.raises(Exception, match="null identifier in column k"):
        lazy.collect()
