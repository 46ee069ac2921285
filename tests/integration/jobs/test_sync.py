"""Export and sync against real services: after every run the index equals the table."""

from __future__ import annotations

import traceback

import pytest
from opensearchpy import Transport

from icecdc_core import export_table, sync_changes
from icecdc_core.commits.store import PositionStore
from icecdc_core.errors import IdentifierColumnsError
from icecdc_core.jobs.poll import follow_changes
from icecdc_core.opensearch.bulk import BulkWriter
from icecdc_core.opensearch.indexes import write_alias
from tests.bulk_writes import write

pytestmark = pytest.mark.usefixtures("sql", "compiled_plans")

CREATE = """CREATE TABLE {t} (id BIGINT NOT NULL, name STRING, amount DECIMAL(10, 2), region STRING) USING iceberg
PARTITIONED BY (region) TBLPROPERTIES ('format-version' = '2', 'write.update.mode' = 'copy-on-write')"""
FILL = """INSERT INTO {t} SELECT id, concat('n', id), CAST(id * 1.5 AS DECIMAL(10, 2)),
element_at(array('north', 'south', 'west'), CAST(id % 3 AS INT) + 1) FROM range(100)"""


def table_rows(sql, order="id"):
    """The table as documents, made in Python from collected rows."""
    rows = sql(f"SELECT * FROM {{t}} ORDER BY {order}").collect()
    return {
        str(row["id"]): {
            "id": row["id"],
            "name": row["name"],
            "amount": None if row["amount"] is None else str(row["amount"]),
            "region": row["region"],
        }
        for row in rows
    }


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

    def it_replaces_the_index_behind_the_alias_and_drops_the_old_one(
        self, spark, sql, make_config, opensearch, indexed, name
    ):
        sql(CREATE)
        sql(FILL)
        export_table(spark, make_config())
        sql("DELETE FROM {t} WHERE id < 50")
        export_table(spark, make_config())
        physical = list(opensearch.indices.get(index=f"{name}--*"))
        assert (len(physical), indexed()) == (1, table_rows(sql))


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
        sql("INSERT INTO {t} VALUES (1000, 'new', 1.00, 'east')")
        report, before = sync_changes(spark, config), indexed()
        assert (report.strategy, report.upserts, len(before)) == ("insert-only", 1, 101)
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

    def it_follows_a_rollback_and_rows_to_another_partition(self, spark, sql, make_config, indexed, name):
        sql(CREATE)
        sql(FILL)
        first = sql("SELECT snapshot_id FROM {t}.snapshots").first()[0]
        sql("UPDATE {t} SET name = 'changed' WHERE id < 10")
        export_table(spark, make_config())
        spark.sql(f"CALL lake.system.rollback_to_snapshot('ns.{name}', {first})")
        sql("UPDATE {t} SET region = 'moved' WHERE id % 7 = 0")
        sync_changes(spark, make_config())
        assert indexed() == table_rows(sql)

    def it_keeps_only_the_wanted_columns_and_rows(self, spark, sql, make_config, indexed):
        sql(CREATE)
        sql(FILL)
        config = make_config(columns=["id", "name"], row_filter="amount < 30")
        export_table(spark, config)
        sql("UPDATE {t} SET amount = 99 WHERE id = 3")
        sql("UPDATE {t} SET amount = 1 WHERE id = 50")
        sync_changes(spark, config)
        wanted = sql("SELECT id, name FROM {t} WHERE amount < 30").collect()
        assert indexed() == {str(row.id): {"id": row.id, "name": row.name} for row in wanted}

    def it_can_start_without_an_export(self, spark, sql, make_config, indexed):
        sql(CREATE)
        sql(FILL)
        config = make_config(start_from="latest")
        sync_changes(spark, config)
        sql("INSERT INTO {t} VALUES (1000, 'new', 1.00, 'north')")
        sync_changes(spark, config)
        assert list(indexed()) == ["1000"]

    def it_takes_the_last_of_rows_that_share_an_identifier_on_request(self, spark, sql, make_config, indexed):
        sql(CREATE)
        sql("INSERT INTO {t} VALUES (1, 'a', 1, 'north'), (1, 'b', 1, 'north'), (2, 'c', 1, 'south')")
        config = make_config(on_duplicate_identifier="last")
        export_table(spark, config)
        exported = indexed()["1"]["name"]
        sql(f"DELETE FROM {{t}} WHERE name = '{exported}'")
        sync_changes(spark, config)
        assert {exported, indexed()["1"]["name"]} == {"a", "b"}


class DescribeTheCallStack:
    """Few frames of icecdc lie between the notebook and a bulk request, so that a traceback is readable."""

    def it_has_fewer_than_ten_frames_from_the_notebook_to_the_bulk_request(
        self, spark, sql, make_config, opensearch, monkeypatch, name
    ):
        own = lambda: [frame.name for frame in traceback.extract_stack() if "icecdc_core" in frame.filename]  # noqa: E731
        driver, executor = [], []
        frames = type(spark.range(1))
        collect, perform_request = frames.collect, Transport.perform_request

        def collecting(frame):
            if frame.columns == ["result"]:
                driver.append(own())
            return collect(frame)

        def requesting(self, method, url, *given, **named):
            if url.endswith("/_bulk"):
                executor.append(own())
            return perform_request(self, method, url, *given, **named)

        config = make_config()
        sql("CREATE TABLE {t} (id BIGINT) USING iceberg")
        monkeypatch.setattr(frames, "collect", collecting)
        for number, kind in enumerate(("export", "sync")):
            sql(f"INSERT INTO {{t}} VALUES ({number})")
            assert follow_changes(spark, config).kind == kind
        monkeypatch.setattr(Transport, "perform_request", requesting)
        # Executors are other processes, so their part of the way is taken here once more, in this one.
        action = '{"index":{"_id":"3","version":9,"version_type":"external"}}\n{"id":3}\n'
        physical = PositionStore(opensearch, config).read().physical_index
        write(BulkWriter.of(config, write_alias(physical)), action)
        ways = [[*way, "write_partition", *executor[0]] for way in driver]
        assert (len(ways), [way for way in ways if len(way) >= 10]) == (2, [])
