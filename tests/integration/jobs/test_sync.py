"""Export and sync against real services: after every run the index equals the table."""

import pytest

from icecdc_core import export_table, sync_changes
from icecdc_core.commits.store import PositionStore
from icecdc_core.errors import IdentifierColumnsError

pytestmark = pytest.mark.usefixtures("sql", "compiled_plans")

CREATE = """CREATE TABLE {t} (id BIGINT NOT NULL, name STRING, amount DOUBLE, region STRING) USING iceberg
PARTITIONED BY (region) TBLPROPERTIES ('format-version' = '2', 'write.update.mode' = 'copy-on-write')"""
FILL = """INSERT INTO {t} SELECT id, concat('n', id), id * 1.5D,
element_at(array('north', 'south', 'west'), CAST(id % 3 AS INT) + 1) FROM range(100)"""


def table_rows(sql):
    return {str(row["id"]): row.asDict() for row in sql("SELECT * FROM {t}").collect()}


class DescribeExportTable:
    @pytest.mark.parametrize("group_bytes", [1, 1 << 30])
    def it_makes_the_index_equal_to_the_table(self, spark, sql, make_config, indexed, group_bytes):
        sql(CREATE)
        sql(FILL)
        report = export_table(spark, make_config(export_group_bytes=group_bytes))
        counts = report.strategy, report.upserts, report.deletes, report.rejected
        assert (counts, indexed()) == (("export", 100, 0, 0), table_rows(sql))

    def it_reads_the_table_once_and_a_second_time_only_for_an_index_that_readers_have(
        self, spark, sql, make_config, monkeypatch
    ):
        sql(CREATE)
        sql("INSERT INTO {t} VALUES (1, 'one', 1.10, 'EU'), (2, 'two', 2.20, 'US')")
        reads = []
        monkeypatch.setattr("icecdc_core.table.source.require_unique", lambda rows, *_, **__: reads.append(rows))
        export_table(spark, make_config())
        assert reads == []
        export_table(spark, make_config())
        assert len(reads) == 1

    def it_exports_an_empty_table_and_sync_brings_its_first_snapshot(self, spark, sql, make_config, indexed):
        sql(CREATE)
        export_table(spark, make_config())
        before = indexed()
        sql(FILL)
        sync_changes(spark, make_config())
        assert (before, indexed()) == ({}, table_rows(sql))


class DescribeSyncChanges:
    def it_exports_first_then_applies_all_snapshots_in_one_batch(self, spark, sql, make_config, opensearch, indexed):
        sql(CREATE)
        sql(FILL)
        report, again = (sync_changes(spark, make_config()) for _ in range(2))
        assert (report.strategy, indexed()) == ("export", table_rows(sql))
        assert (again.strategy, again.upserts, again.deletes, again.snapshots) == ("none", 0, 0, 0)
        sql("UPDATE {t} SET name = 'changed' WHERE id IN (1, 2, 3)")
        sql("DELETE FROM {t} WHERE id IN (2, 10)")
        sql("INSERT INTO {t} VALUES (1000, 'new', 1.00, 'east')")
        report = sync_changes(spark, make_config())
        counts = (report.snapshots, report.upserts, report.deletes, report.carryovers_removed)
        assert (counts, indexed()) == ((3, 3, 2, 96), table_rows(sql))
        log = PositionStore(opensearch, make_config()).log()
        assert [(entry["kind"], entry["deletes"]) for entry in log] == [("sync", 2), ("export", 0)]

    def it_applies_appends_without_identifier_columns_and_refuses_deletes(self, spark, sql, make_config, indexed):
        sql(CREATE)
        sql(FILL)
        config = make_config(identifier_columns=[])
        export_table(spark, config)
        for number, policy in enumerate(("last", "fail"), 1):
            sql(f"INSERT INTO {{t}} VALUES ({1000 + number}, 'new', 1.00, 'east')")
            report = sync_changes(spark, config.replace(on_duplicate_identifier=policy))
            assert (report.strategy, report.upserts, len(indexed())) == ("insert-only", 1, 100 + number)
        before = indexed()
        sql("DELETE FROM {t} WHERE id = 5")
        with pytest.raises(IdentifierColumnsError, match="identifier_columns"):
            sync_changes(spark, config)
        assert indexed() == before

    def it_reads_no_data_for_a_compaction(self, spark, sql, make_config, indexed, name):
        sql(CREATE)
        sql(FILL)
        sql("INSERT INTO {t} VALUES (1000, 'new', 1.00, 'north')")
        export_table(spark, make_config())
        spark.sql(f"CALL lake.system.rewrite_data_files(table => 'ns.{name}', options => map('rewrite-all', 'true'))")
        report = sync_changes(spark, make_config())
        assert (report.steps, report.snapshots, indexed()) == ([], 1, table_rows(sql))
