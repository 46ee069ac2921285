"""Staged appends that are staged again because another writer committed in between."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

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


def _expire_as_older_iceberg(spark, name):
    """Expire all snapshots but the current one, and delete files as Iceberg did before it looked at all snapshots.

    Engines with such a core and jobs that call its Java API still do. It deletes the files that an expired snapshot
    added, unless it is an ancestor of the current snapshot, or a snapshot of that line names it as its source.
    """
    table = load_table(spark, name)
    before = table.operations().current()
    table.expireSnapshots().expireOlderThan(_ALL).cleanExpiredFiles(False).commit()
    gateway = spark.sparkContext._gateway
    java = gateway.jvm.java
    loader = table.getClass().getClassLoader()
    kind = java.lang.Class.forName("org.apache.iceberg.IncrementalFileCleanup", True, loader)
    level = java.lang.Class.forName("org.apache.iceberg.ExpireSnapshots$CleanupLevel", True, loader)
    executor = java.util.concurrent.Executors.newSingleThreadExecutor()

    def call(member, target, *given):
        member.setAccessible(True)
        arguments = gateway.new_array(java.lang.Object, len(given))
        for position, each in enumerate(given):
            arguments[position] = each
        return member.newInstance(arguments) if target is None else member.invoke(target, arguments)

    cleanup = call(kind.getDeclaredConstructors()[0], None, table.io(), executor, executor, None)
    [clean] = [method for method in kind.getDeclaredMethods() if method.getName() == "cleanFiles"]
    call(clean, cleanup, before, load_table(spark, name).operations().current(), level.getEnumConstants()[2])
    executor.shutdown()


class DescribeAnAppendThatIsStagedAgain:
    @pytest.mark.parametrize("commits", [1, 2])
    def it_keeps_its_files_when_an_older_engine_expires_the_first_staged_snapshot(self, spark, sql, name, commits):
        table = f"lake.ns.{name}"
        sql(_CREATE)
        staged = _stage_one_row(spark, table)
        for number in range(commits):
            sql(f"INSERT INTO {{t}} VALUES ({10 + number})")
            staged = restage(spark, table, staged)
        publish(spark, table, load_table(spark, table), staged)
        _expire_as_older_iceberg(spark, table)
        spark.catalog.refreshTable(table)
        assert sorted(row.id for row in spark.table(table).collect()) == [0, *range(10, 10 + commits)]

    def it_is_not_staged_again_once_it_has_expired(self, spark, sql, name):
        table = f"lake.ns.{name}"
        sql(_CREATE)
        staged = _stage_one_row(spark, table)
        sql("INSERT INTO {t} VALUES (10)")
        load_table(spark, table).expireSnapshots().expireOlderThan(_ALL).commit()
        assert restage(spark, table, staged) is None
