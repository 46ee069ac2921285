"""Staged appends that are staged again because another writer committed in between."""

from contextlib import contextmanager

from icecdc_core.ingest.publish import WAP_ID, append, publish, restage, stage
from icecdc_core.table.catalogs import load_table

_CREATE = "CREATE TABLE {t} (id BIGINT) USING iceberg"
_ALL = 2**62
"""A time later than every snapshot."""


@contextmanager
def _staged_writes(spark):
    spark.conf.set(WAP_ID, "icecdc-test")
    try:
        yield
    finally:
        spark.conf.unset(WAP_ID)


def _stage_one_row(spark, name):
    rows = spark.range(1).coalesce(1)
    with _staged_writes(spark):
        return stage(spark, name, load_table(spark, name), {}, lambda properties: append(rows, name, {}, properties))


class DescribeAnAppendThatIsStagedAgain:
    def it_names_the_snapshot_that_added_its_files_so_that_no_expiry_deletes_them(self, spark, sql, name):
        table = f"lake.ns.{name}"
        sql(_CREATE)
        first = staged = _stage_one_row(spark, table)
        for number in range(2):
            sql(f"INSERT INTO {{t}} VALUES ({10 + number})")
            staged = restage(spark, table, staged)
            summary = load_table(spark, table).snapshot(staged.entry.snapshot_id).summary()
            assert summary.get("source-snapshot-id") == str(first.entry.snapshot_id)
        publish(spark, table, staged)
        load_table(spark, table).expireSnapshots().expireOlderThan(_ALL).commit()
        spark.catalog.refreshTable(table)
        assert sorted(row.id for row in spark.table(table).collect()) == [0, 10, 11]

    def it_is_not_staged_again_once_it_has_expired(self, spark, sql, name):
        table = f"lake.ns.{name}"
        sql(_CREATE)
        staged = _stage_one_row(spark, table)
        sql("INSERT INTO {t} VALUES (10)")
        load_table(spark, table).expireSnapshots().expireOlderThan(_ALL).commit()
        assert restage(spark, table, staged) is None
