"""Counts of what each snapshot changed, from summaries without reading a file."""

from __future__ import annotations

from icecdc_core import sync_changes
from icecdc_core.jobs.pending import changes_per_snapshot

CREATE = """CREATE TABLE {t} (id BIGINT, name STRING) USING iceberg
TBLPROPERTIES ('format-version' = '2', 'write.update.mode' = 'copy-on-write')"""


def it_takes_rows_added_and_removed_from_the_summaries(spark, sql, make_config):
    config = make_config()
    sql(CREATE)
    sql("INSERT INTO {t} SELECT id, 'old' FROM range(0, 100, 1, 1)")
    export = sync_changes(spark, config)
    assert (len(changes_per_snapshot(spark, config, export)), export.rows_rewritten) == (0, None)
    sql("INSERT INTO {t} SELECT id, 'new' FROM range(100, 110, 1, 1)")
    sql("UPDATE {t} SET name = 'updated' WHERE id = 7")
    spark.sql(f"CALL lake.system.rewrite_data_files(table => '{config.table}', options => map('rewrite-all', 'true'))")
    report = sync_changes(spark, config)
    frame = changes_per_snapshot(spark, config, report)
    actual = frame[["operation", "rows_added", "rows_removed"]].values.tolist()
    assert actual == [["append", 10, 0], ["overwrite", 100, 100], ["replace", 110, 110]]
    assert report.rows_rewritten == 210
