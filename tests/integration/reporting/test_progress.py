"""The progress bars of real runs: true counts, and not one Spark job more."""

import re
import sys
from types import SimpleNamespace

from icecdc_core import export_table
from icecdc_core.opensearch.indexes import count_operations
from icecdc_core.reporting import progress as module
from icecdc_core.runs.run import connect

CREATE = """CREATE TABLE {t} (id BIGINT NOT NULL, name STRING) USING iceberg
TBLPROPERTIES ('format-version' = '2', 'write.update.mode' = 'copy-on-write')"""


def _screen():
    return SimpleNamespace(write=sys.stdout.write, flush=sys.stdout.flush)


def _last_line(capsys) -> str:
    return re.split(r"[\r\n]+", capsys.readouterr().out.strip())[-1]


def _jobs(spark, group: str, work) -> int:
    spark.sparkContext.setJobGroup(group, group)
    try:
        work()
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(group))


def it_starts_no_spark_job_of_its_own_and_ends_with_the_rows_that_the_filter_keeps(
    spark, sql, make_config, monkeypatch, capsys
):
    sql(CREATE)
    sql("INSERT INTO {t} SELECT id, 'old' FROM range(0, 100, 1, 1)")
    config = make_config(row_filter="id < 30")
    report = export_table(spark, config)  # the first export reads the table once, later ones twice
    client = connect(config)
    physical = next(iter(client.indices.get_alias(name=config.index)))
    assert count_operations(client, physical) == report.upserts == 30
    client.close()
    silent = _jobs(spark, "silent", lambda: export_table(spark, config))
    monkeypatch.setattr(module, "person_output", _screen)
    assert _jobs(spark, "shown", lambda: export_table(spark, config)) == silent > 0
    assert "30 of 30 documents" in _last_line(capsys)
