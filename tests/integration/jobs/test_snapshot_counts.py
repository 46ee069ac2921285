"""Counts of what each snapshot changed: from summaries without reading a file, and exact on request."""

from __future__ import annotations

import pytest

from icecdc_core import sync_changes
from icecdc_core.jobs.pending import changes_per_snapshot

CREATE = """CREATE TABLE {t} (id BIGINT, name STRING) USING iceberg
TBLPROPERTIES ('format-version' = '2', 'write.update.mode' = 'copy-on-write')"""


@pytest.fixture
def synced(spark, sql, make_config):
    """Parameters and report of a sync over an append, an UPDATE of one of 100 rows, and a compaction."""
    config = make_config()
    sql(CREATE)
    sql("INSERT INTO {t} SELECT id, 'old' FROM range(0, 100, 1, 1)")
    sync_changes(spark, config)
    sql("INSERT INTO {t} SELECT id, 'new' FROM range(100, 110, 1, 1)")
    sql("UPDATE {t} SET name = 'updated' WHERE id = 7")
    spark.sql(f"CALL lake.system.rewrite_data_files(table => '{config.table}', options => map('rewrite-all', 'true'))")
    return config, sync_changes(spark, config)


def it_takes_rows_added_and_removed_from_the_summaries(spark, synced):
    config, report = synced
    frame = changes_per_snapshot(spark, config, report)
    actual = frame[["operation", "rows_added", "rows_removed"]].values.tolist()
    assert actual == [["append", 10, 0], ["overwrite", 100, 100], ["replace", 110, 110]]
    assert report.rows_rewritten == 210


def it_counts_the_rows_that_really_changed_on_request(spark, synced):
    config, report = synced
    frame = changes_per_snapshot(spark, config, report, exact=True)
    actual = frame[["operation", "inserted", "updated", "deleted", "carryovers_removed"]].values.tolist()
    assert actual == [["append", 10, 0, 0, 0], ["overwrite", 0, 1, 0, 99], ["replace", 0, 0, 0, 0]]


def it_has_no_rows_for_an_export(spark, sql, make_config):
    sql(CREATE)
    sql("INSERT INTO {t} VALUES (1, 'a')")
    report = sync_changes(spark, make_config())
    assert (len(changes_per_snapshot(spark, make_config(), report)), report.rows_rewritten) == (0, None)
