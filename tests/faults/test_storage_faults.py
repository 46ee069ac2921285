"""Files, snapshots and the catalog fail under a run: a typed error, a true position, and equal afterwards."""

import os
import sqlite3
from pathlib import Path
from unittest import mock
from urllib.parse import urlsplit

import pytest

from icecdc_core import sync_changes, validate_table
from icecdc_core.commits.store import PositionStore
from icecdc_core.errors import CatalogError, DataReadError, HistoryGapError, SparkJobError
from icecdc_core.jobs import export, sync
from icecdc_core.reporting.exit_states import state_of
from icecdc_core.session.jvm import iceberg_class
from icecdc_core.table.failures import spark_errors
from icecdc_core.table.source import Source
from tests.conftest import GIVEN_CATALOG
from tests.faults.tables import CREATE, FILL, change
from tests.servers.loopback_proxy import at_first, loopback_proxy

pytestmark = pytest.mark.skipif(bool(GIVEN_CATALOG), reason="needs the files of the embedded catalog")


@pytest.fixture
def exported(new_index):
    """An exported table that did not change since, unlike that of the other faults."""
    return new_index(CREATE, FILL)


def newest_file(spark, table):
    query = f"SELECT data_file.file_path FROM {table}.entries WHERE status = 1 ORDER BY sequence_number DESC LIMIT 1"
    path = Path(urlsplit(spark.sql(query).collect()[0][0]).path)
    # The checksum that the local file system keeps would be checked first.
    (path.parent / f".{path.name}.crc").unlink(missing_ok=True)
    return path


DAMAGES = (
    ("parquet", Path.unlink),
    # Of an Avro file that is cut off, Avro reads what is there.
    ("orc", lambda path: os.truncate(path, path.stat().st_size // 2)),
    ("avro", lambda path: path.write_bytes(bytes(path.stat().st_size))),
)


def it_stops_at_a_damaged_file_and_the_position_stays(spark, sql, exported, opensearch, equal, name):
    before = PositionStore(opensearch, exported).read()
    for n, (kind, damage) in enumerate(DAMAGES):
        sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ('write.format.default' = '{kind}')")
        sql(f"UPDATE {{t}} SET name = '{kind}' WHERE id % 7 = {n}")
        path = newest_file(spark, exported.table)
        content = path.read_bytes()
        damage(path)
        says = r"cannot be read: .*Remedy: restore the file.*the position did not move"
        with pytest.raises(DataReadError, match=says):
            sync_changes(spark, exported)
        path.write_bytes(content)
        assert PositionStore(opensearch, exported).read().snapshot_id == before.snapshot_id, kind
    sync_changes(spark, exported)
    assert equal(exported)

    # A rollback leaves it behind.
    before = PositionStore(opensearch, exported).read()
    sql("INSERT INTO {t} SELECT id, 'new' FROM range(1000, 1040)")
    newest_file(spark, exported.table).unlink()
    with pytest.raises(DataReadError):
        sync_changes(spark, exported)
    spark.sql(f"CALL lake.system.rollback_to_snapshot('ns.{name}', {before.snapshot_id})")
    sql("INSERT INTO {t} VALUES (2000, 'after the rollback')")
    sync_changes(spark, exported)
    assert equal(exported)


def expire(spark, sql, name):
    """A commit, then the older snapshots really expire, with their files; without the jobs of the procedure."""
    path = newest_file(spark, f"lake.ns.{name}")
    sql("DELETE FROM {t} WHERE id % 4 = 1")
    table = iceberg_class(spark, "spark.Spark3Util").loadIcebergTable(spark._jsparkSession, f"lake.ns.{name}")
    # Where one is named, Iceberg looks for all files that nothing refers to any more.
    named = table.expireSnapshots().expireSnapshotId(table.currentSnapshot().parentId())
    named.expireOlderThan(2**42).retainLast(1).commit()
    assert not path.exists()


class DescribeSnapshotsThatExpireUnderARead:
    def it_needs_an_export_only_if_that_of_the_position_is_gone(
        self, spark, sql, exported, opensearch, equal, name, just_before
    ):
        sql("ALTER TABLE {t} CREATE TAG kept")
        change(sql)
        planned = spark.sql(f"SELECT snapshot_id FROM {exported.table}.refs WHERE name = 'main'").first()[0]
        just_before(sync, "compute_changes", lambda: expire(spark, sql, name))
        report = sync_changes(spark, exported)
        assert (report.strategy, report.to_snapshot_id != planned, equal(exported)) == ("diff", True, True)

        before = PositionStore(opensearch, exported).read()
        change(sql)
        waiting = just_before(sync, "compute_changes", lambda: expire(spark, sql, name))
        for _ in range(2):
            with pytest.raises(HistoryGapError, match="on_history_gap"):
                sync_changes(spark, exported)
        assert (waiting, PositionStore(opensearch, exported).read().snapshot_id) == ([], before.snapshot_id)
        reexporting = exported.replace(on_history_gap="reexport")
        sync_changes(spark, reexporting)
        assert equal(exported)

        sql("INSERT INTO {t} VALUES (5001, 'new')")
        waiting = just_before(sync, "compute_changes", lambda: expire(spark, sql, name))
        report = sync_changes(spark, reexporting)
        assert (waiting, report.strategy, equal(exported)) == ([], "reexport", True)

        # It is neither a difference nor damage to a validation.
        sql("INSERT INTO {t} VALUES (6001, 'new')")
        read = Source.current_rows

        def planned_rows(*args):
            rows = read(*args)
            expire(spark, sql, name)
            return rows

        with (
            mock.patch.object(Source, "current_rows", planned_rows),
            pytest.raises(HistoryGapError, match="is not in the table's metadata"),
        ):
            validate_table(spark, exported)

    @pytest.mark.parametrize("policy", [pytest.param("fail", marks=pytest.mark.long), "reexport"])
    def it_starts_an_export_over(self, spark, sql, make_config, equal, name, just_before, policy):
        config = make_config(on_history_gap=policy)
        sql(CREATE, FILL)
        just_before(export, "progress", lambda: expire(spark, sql, name))
        if policy == "fail":
            with pytest.raises(HistoryGapError):
                sync_changes(spark, config)
        report = sync_changes(spark, config)
        assert (report.strategy, equal(config)) == ("export", True)
        assert "its snapshot expired" in report.notes[0]


def it_names_a_locked_catalog_and_applies_a_commit_during_a_run_with_the_next_run(
    spark, sql, exported, warehouse, opensearch_url, equal
):
    change(sql)
    holder = sqlite3.connect(warehouse / "catalog.db", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    try:
        with pytest.raises(CatalogError):
            sync_changes(spark, exported)
    finally:
        holder.execute("ROLLBACK")
        holder.close()

    def commit():
        sql("DELETE FROM {t} WHERE id % 4 = 1")

    with loopback_proxy(opensearch_url, trouble=at_first("_bulk", commit)) as proxy:
        first = sync_changes(spark, exported.replace(opensearch_url=proxy.url))
    second = sync_changes(spark, exported)
    went_on = first.to_snapshot_id == second.from_snapshot_id
    assert (went_on, second.deletes > 0, equal(exported)) == (True, True, True)


def in_python(function):
    return lambda spark: spark.range(1).mapInArrow(function, "id long").collect()


@pytest.mark.parametrize(
    ("failing", "said"),
    [
        (lambda spark: spark._jvm.java.nio.ByteBuffer.allocate(2**31 - 1), "OutOfMemoryError.*spark.driver.memory"),
        (in_python(lambda _: os._exit(1)), "Python worker.*spark.executor.memoryOverhead"),
        (in_python(lambda _: {}["a reason in Python"]), "a reason in Python.*Spark's log"),
        (
            lambda spark: spark.sql("SELECT CAST(x AS INT) FROM VALUES ('a') AS t(x)").collect(),
            "CAST_INVALID_INPUT.*Spark's log",
        ),
    ],
)
def it_names_a_failure_that_no_file_is_to_blame_for(spark, make_config, failing, said):
    with pytest.raises(SparkJobError, match=said) as caught, spark_errors(make_config()):
        failing(spark)
    assert (state_of(caught.value), "restore" in str(caught.value)) == ("retry", False)
