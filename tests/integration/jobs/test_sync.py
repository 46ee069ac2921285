"""Export and sync against real services: after every run the index equals the table."""

import pytest

from icecdc_core import sync_changes, validate_table
from icecdc_core.commits.store import PositionStore
from icecdc_core.errors import IdentifierColumnsError
from icecdc_core.jobs import setup
from icecdc_core.jobs.poll import follow_changes
from tests.faults.tables import rows_as_documents

pytestmark = pytest.mark.usefixtures("sql", "compiled_plans")

CREATE = """CREATE TABLE {t} (id BIGINT NOT NULL, name STRING, amount DOUBLE, region STRING) USING iceberg
PARTITIONED BY (region) TBLPROPERTIES ('format-version' = '2', 'write.update.mode' = 'copy-on-write')"""
FILL = """INSERT INTO {t} SELECT id, concat('n', id), id * 1.5D,
element_at(array('north', 'south', 'west'), CAST(id % 3 AS INT) + 1) FROM range(100)"""


@pytest.fixture
def rows(spark, make_config):
    return lambda: rows_as_documents(spark, make_config().table)


class DescribeSyncChanges:
    def it_may_run_while_the_setup_is_checked(self, spark, sql, new_index, monkeypatch, indexed, rows):
        config = new_index(CREATE)
        assert indexed() == {}
        open_table = setup.open_indexable_source

        def open_early(*given, **more):
            source = open_table(*given, **more)
            sql(FILL)
            sync_changes(spark, config)
            return source

        monkeypatch.setattr(setup, "open_indexable_source", open_early)
        assert (setup.check_setup(spark, config).problems, indexed()) == ([], rows())

    def it_exports_first_then_applies_all_at_once(self, spark, sql, make_config, opensearch, indexed, name, rows):
        sql(CREATE, FILL)
        report, again = (sync_changes(spark, make_config()) for _ in range(2))
        assert (report.strategy, indexed()) == ("export", rows())
        assert (again.strategy, again.upserts, again.deletes, again.snapshots) == ("none", 0, 0, 0)
        sql("UPDATE {t} SET name = 'changed' WHERE id IN (1, 2, 3)", "DELETE FROM {t} WHERE id IN (2, 10)")
        sql("INSERT INTO {t} VALUES (1000, 'new', 1.00, 'east')")
        report = sync_changes(spark, make_config())
        counts = (report.snapshots, report.upserts, report.deletes, report.carryovers_removed)
        assert (counts, indexed()) == ((3, 3, 2, 96), rows())
        log = PositionStore(opensearch, make_config()).log()
        assert [(entry["kind"], entry["deletes"]) for entry in log] == [("sync", 2), ("export", 0)]
        # No data is read for a compaction.
        sql(f"CALL lake.system.rewrite_data_files(table => 'ns.{name}', options => map('rewrite-all', 'true'))")
        report = sync_changes(spark, make_config())
        assert (report.steps, report.snapshots, indexed()) == ([], 1, rows())
        # Polls read only metadata while there is nothing new. How a lag is kept: tests/unit/jobs/test_poll.py.
        tracker, pauses = spark.sparkContext.statusTracker(), []
        before = set(tracker.getJobIdsForGroup())
        report = follow_changes(spark, make_config(target_lag="3s", max_polls=4), sleep=pauses.append)
        assert set(tracker.getJobIdsForGroup()) == before
        assert (report.strategy, report.worst_lag_seconds, report.lag_kept) == ("none", None, None)
        assert min(pauses) > 0.3

    def it_applies_appends_without_identifier_columns_and_refuses_deletes(self, spark, sql, new_index, indexed, name):
        config = new_index(CREATE, FILL, identifier_columns=[])
        for number, policy in enumerate(("last", "fail"), 1):
            sql(f"INSERT INTO {{t}} VALUES ({1000 + number}, 'new', 1.00, 'east')")
            report = sync_changes(spark, config.replace(on_duplicate_identifier=policy))
            assert (report.strategy, report.upserts, len(indexed())) == ("insert-only", 1, 100 + number)
        # A compaction of small files, some of them synced; to read across it takes fewer bytes.
        sql(*(f"INSERT INTO {{t}} VALUES ({2000 + number}, 'new', 1.00, 'east')" for number in range(6)))
        sql(f"CALL lake.system.rewrite_data_files(table => 'ns.{name}')")
        report = sync_changes(spark, config)
        assert (report.strategy, report.upserts, len(report.steps)) == ("insert-only", 6, 1)
        before = indexed()
        assert validate_table(spark, config).ok  # by content
        sql("DELETE FROM {t} WHERE id = 5")
        with pytest.raises(IdentifierColumnsError, match="identifier_columns"):
            sync_changes(spark, config)
        assert indexed() == before
