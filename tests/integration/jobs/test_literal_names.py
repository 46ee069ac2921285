"""Jobs work on columns of odd names in a session in which backticks quote regular expressions."""

from __future__ import annotations

import pytest

from icecdc_core import export_table, sync_changes, validate_table
from icecdc_core.changes import read_changes
from icecdc_core.jobs.setup import check_setup, count_rows_and_documents
from icecdc_core.jobs.status import status

SETTING = "spark.sql.parser.quotedRegexColumnNames"
CREATE = """CREATE TABLE {{t}} (`no. (id)` INT, `a+b` STRING, `[x]` STRUCT<`y*`: INT>) USING iceberg
TBLPROPERTIES ('format-version' = '{version}', 'write.update.mode' = 'copy-on-write')"""
FILL = "INSERT INTO {t} SELECT CAST(id AS INT), 'v', named_struct('y*', CAST(id AS INT)) FROM range(4)"


@pytest.fixture
def regular_expressions(spark):
    spark.conf.set(SETTING, "true")
    yield
    assert spark.conf.get(SETTING) == "true"
    spark.conf.unset(SETTING)


@pytest.mark.parametrize(("version", "policy"), [(2, "fail"), (3, "last")])
def it_keeps_an_index_in_sync(spark, sql, make_config, indexed, regular_expressions, name, version, policy):
    sql(CREATE.format(version=version))
    sql(FILL)
    config = make_config(identifier_columns=["no. (id)"], row_filter="`a+b` <> 'x'", on_duplicate_identifier=policy)
    export_table(spark, config=config)
    sql("UPDATE {t} SET `a+b` = 'w' WHERE `no. (id)` = 1")
    sql("UPDATE {t} SET `a+b` = 'x' WHERE `no. (id)` = 2")
    foreseen = sync_changes(spark, config.replace(dry_run=True))
    report = sync_changes(config=config, spark=spark)
    texts = {key: row["a+b"] for key, row in indexed().items()}
    assert (texts, validate_table(spark, config).ok) == ({"0": "v", "1": "w", "3": "v"}, True)
    assert [(each.upserts, each.deletes) for each in (foreseen, report)] == [(1, 1), (1, 1)]
    assert read_changes(spark, table=f"lake.ns.{name}").columns[:3] == ["no. (id)", "a+b", "[x]"]
    assert [each.index for each in status(spark, config).indexes] == [name]
    assert check_setup(spark, config).ok
    assert count_rows_and_documents(spark, config) == {"rows": 3, "documents": 3}
