"""Every place that blames the files of a table has a case that really provokes it; everything else blames no file."""

from __future__ import annotations

import json
import os

import psutil
import pytest

from icecdc_core import export_table, sync_changes, validate_table
from icecdc_core.errors import ConfigError, DataReadError, SparkJobError
from icecdc_core.reporting.exit_states import state_of
from icecdc_core.table.failures import spark_errors
from icecdc_core.table.iceberg_table import IcebergTable
from tests.conftest import GIVEN_CATALOG
from tests.faults.killing import Victim, of_one_core
from tests.faults.test_storage_faults import missing, newest_file, overwritten, truncated
from tests.loopback_proxy import loopback_proxy


@pytest.fixture
def broken(spark, sql, make_config):
    """A table of which one data file is missing or damaged."""
    if GIVEN_CATALOG:
        pytest.skip("needs the files of the embedded catalog")

    def build(damage, kind="parquet"):
        sql("CREATE TABLE {t} (id BIGINT, name STRING) USING iceberg")
        sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ('write.format.default' = '{kind}')")
        sql("INSERT INTO {t} SELECT id, concat('n', id) FROM range(500)")
        damage(newest_file(spark, make_config().table))
        return make_config()

    return build


@pytest.mark.parametrize("later", ["", "DELETE FROM {t} WHERE id = 5"], ids=["append", "and-a-delete"])
def it_refuses_a_file_that_was_appended_again_after_its_deletion_vector(spark, sql, make_config, name, later):
    sql(
        "CREATE TABLE {t} (id INT) USING iceberg TBLPROPERTIES ('format-version' = '3', 'write.delete.mode' = "
        "'merge-on-read')"
    )
    sql("INSERT INTO {t} SELECT /*+ COALESCE(1) */ CAST(id AS INT) FROM range(3)")
    sql("INSERT INTO {t} SELECT /*+ COALESCE(1) */ CAST(id AS INT) FROM range(4, 8)")
    sql("DELETE FROM {t} WHERE id = 1")
    config = make_config()
    export_table(spark, config)
    table = spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, f"lake.ns.{name}")
    table.refresh()
    loaded = IcebergTable(spark, config.table)
    (file,) = loaded.commit_files(loaded.metadata().snapshots[0].snapshot_id).added_files
    if later:
        sql(later)
        table.refresh()
    table.newAppend().appendFile(file).commit()
    sql("REFRESH TABLE {t}")
    with pytest.raises(Exception, match=r"[Dd]eletion vector|DV data sequence"):
        sql("SELECT * FROM {t}").collect()
    for job in (sync_changes, validate_table, export_table):
        with pytest.raises(DataReadError, match=r"Iceberg refuses to read .*the position did not move"):
            job(spark, config)
    sql(f"CALL lake.system.rollback_to_snapshot('ns.{name}', {table.currentSnapshot().parentId()})")
    assert sync_changes(spark, config).deletes == bool(later)
    assert validate_table(spark, config).ok


def it_names_a_missing_file(spark, broken):
    with pytest.raises(DataReadError, match=r"cannot be read: .*\.parquet.*Remedy: restore the file"):
        sync_changes(spark, broken(missing))


@pytest.mark.parametrize(
    ("damage", "kind"),
    # Of an Avro file that is cut off, Avro reads what is there.
    [(truncated, "parquet"), (truncated, "orc"), (overwritten, "parquet"), (overwritten, "orc"), (overwritten, "avro")],
)
def it_names_a_damaged_file(spark, broken, damage, kind):
    with pytest.raises(DataReadError, match=r"cannot be read: .*Remedy: restore the file"):
        sync_changes(spark, broken(damage, kind))


def it_names_a_java_process_that_is_killed_and_leaves_a_report(spark, sql, make_config, opensearch_url, tmp_path):
    config, path = make_config(), tmp_path / "report.json"
    sql("CREATE TABLE {t} (id BIGINT NOT NULL, name STRING) USING iceberg TBLPROPERTIES ('format-version' = '2')")
    sql("INSERT INTO {t} SELECT id, concat('n', id) FROM range(50)")
    export_table(spark, config)
    sql("UPDATE {t} SET name = 'new' WHERE id < 9")
    victim, killed = Victim(of_one_core(config)), []

    def trouble(method, path, body):
        if "_bulk" in path and not killed:
            children = psutil.Process(victim.process.pid).children(recursive=True)
            killed.extend(child for child in children if child.name() == "java")
            for child in killed:
                child.kill()

    with loopback_proxy(opensearch_url, trouble=trouble) as proxy:
        victim.start("sync", {"opensearch_url": proxy.url, "report_path": str(path)})
        ended = victim.ended()
    victim.kill()
    report = json.loads(path.read_text())
    assert (ended.split()[:2], report["state"]) == (["FAILED", "SparkJobError"], "retry")
    assert sync_changes(spark, config).to_snapshot_id is not None
    assert validate_table(spark, config).ok


def die(batches):
    os._exit(1)


def fail(batches):
    raise ValueError("a reason in Python")


def out_of_memory(spark):
    spark._jvm.java.nio.ByteBuffer.allocate(2**31 - 1)


def dead_worker(spark):
    spark.range(1).mapInArrow(die, "id long").collect()


def python_error(spark):
    spark.range(1).mapInArrow(fail, "id long").collect()


def cast(spark):
    spark.sql("SELECT CAST(name AS INT) FROM VALUES ('x'), ('y') AS t(name)").collect()


def closed_file(spark):
    spark._jvm.java.io.FileInputStream("/nowhere/shuffle_0_0_0.data")


class DescribeAFailureThatNoFileIsToBlameFor:
    @pytest.mark.parametrize(
        ("failing", "said"),
        [
            (out_of_memory, "java.lang.OutOfMemoryError.*spark.driver.memory"),
            (dead_worker, "Python worker.*spark.executor.memoryOverhead"),
            (python_error, "a reason in Python.*Spark's log"),
            (cast, "CAST_INVALID_INPUT.*Spark's log"),
            (closed_file, "shuffle_0_0_0.data.*Spark's log"),
        ],
    )
    def it_is_named_as_what_it_is(self, spark, make_config, failing, said):
        with pytest.raises(SparkJobError, match=said) as caught, spark_errors(make_config()):
            failing(spark)
        assert (state_of(caught.value), "restore" in str(caught.value)) == ("retry", False)

    def it_is_the_filters_fault_where_there_is_one(self, spark, make_config):
        with pytest.raises(ConfigError, match="row_filter fails for a row"), spark_errors(make_config(row_filter="a")):
            cast(spark)
