"""Polling with a target lag, against real services: idle polls are cheap."""

from icecdc_core import export_table, sync_changes
from icecdc_core.jobs.poll import follow_changes


class DescribeTargetLag:
    """How it is kept: tests/unit/jobs/test_poll_interval.py."""

    def it_reads_only_metadata_while_there_is_nothing_new(self, spark, sql, make_config):
        config = make_config(target_lag="3s", max_polls=4)
        sql("CREATE TABLE {t} (id BIGINT NOT NULL, name STRING) USING iceberg")
        sql("INSERT INTO {t} VALUES (0, 'n0')")
        export_table(spark, config)
        sync_changes(spark, config)
        tracker = spark.sparkContext.statusTracker()
        pauses: list[float] = []
        before = set(tracker.getJobIdsForGroup())
        report = follow_changes(spark, config, sleep=pauses.append)
        assert set(tracker.getJobIdsForGroup()) == before
        assert (report.strategy, report.worst_lag_seconds, report.lag_kept) == ("none", None, None)
        assert min(pauses) > 0.3
