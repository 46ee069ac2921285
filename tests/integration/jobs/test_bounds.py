"""What passes through the driver, a worker or an answer is bounded in bytes: `docs/operations.md` has the table."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from icecdc_core import export_table, sync_changes, validate_table
from icecdc_core.commits.store import PositionStore
from icecdc_core.config.sync import InitConfig
from icecdc_core.errors import DependencyError, SparkJobError
from icecdc_core.jobs import validate
from icecdc_core.jobs.init import write_index_file
from icecdc_core.jobs.setup import check_setup
from tests.servers.loopback_proxy import loopback_proxy

CREATE = "CREATE TABLE {t} (id BIGINT, body STRING) USING iceberg TBLPROPERTIES ('format-version' = '2')"
# Texts that do not get smaller when they are compressed.
LONG = "array_join(transform(sequence(1, {times}), i -> sha2(cast(id * 100000 + i AS string), 512)), '')"


@contextmanager
def results_of_a_job(spark, most):
    """Let the results of all tasks of a job have so many bytes in the driver."""
    conf = spark.sparkContext._jsc.sc().conf()
    conf.set("spark.driver.maxResultSize", most)
    yield
    conf.remove("spark.driver.maxResultSize")


def it_keeps_rejected_documents_on_the_executors(spark, sql, make_config, name):
    config = make_config(
        select=["id", "body AS day"],
        mapping={"day": {"type": "date"}},
        max_rejected_documents=60,
        dead_letter_table=f"lake.ns.letters_{name}",
    )
    sql(CREATE, f"INSERT INTO {{t}} SELECT id, {LONG.format(times=800)} FROM range(0, 60, 1, 2)")  # of 100 KB
    try:
        with results_of_a_job(spark, "1m"):
            report = export_table(spark, config)
        letters = spark.table(config.dead_letter_table).selectExpr("count(1)", "min(length(document))").first()
        assert (report.rejected, len(report.rejected_samples), letters[0], letters[1] > 100_000) == (60, 20, 60, True)
    finally:
        sql(f"DROP TABLE IF EXISTS {config.dead_letter_table}")


def it_goes_on_without_a_broadcast_that_fails(spark, sql, new_index, indexed):
    config = new_index(
        CREATE.replace("BIGINT", "STRING"),
        "INSERT INTO {t} SELECT sha2(cast(id AS string), 256), 'a' FROM range(0, 6000, 1, 1)",
    )
    sql("UPDATE {t} SET body = 'b' WHERE id < '1'")
    with results_of_a_job(spark, "100k"):
        report = sync_changes(spark, config)
    updated = [each for each in indexed().values() if each["body"] == "b"]
    assert (report.upserts, len(updated)) == (len(updated), 385)


def it_samples_long_texts_by_their_beginning(spark, sql, name, warehouse, tmp_path):
    sql(CREATE, f"INSERT INTO {{t}} SELECT id, {LONG.format(times=800)} FROM range(0, 100, 1, 1)")
    output = tmp_path / "indexes.yml"
    with results_of_a_job(spark, "1m"):
        write_index_file(spark, InitConfig(table=f"lake.ns.{name}", output=str(output), warehouse=str(warehouse)))
    assert "identifier_columns: [id]" in output.read_text()


def it_asks_for_pages_that_the_largest_documents_fit_into(spark, new_index, opensearch_url, opensearch):
    config = new_index(
        CREATE,
        "INSERT INTO {t} SELECT id, if(id < 300, 'small', repeat('x', 2 * 1024 * 1024)) FROM range(0, 304, 1, 1)",
    )
    sizes = []

    def note(method, path, body):
        if "_search" in path and b'"_doc"' in body:
            sizes.append(json.loads(body)["size"])

    with loopback_proxy(opensearch_url, trouble=note) as proxy:
        report = validate_table(spark, config.replace(opensearch_url=proxy.url))
    assert (report.ok, max(sizes)) == (True, 15)  # documents of 2 MB and more in 32 MB


def it_validates_and_repairs_many_indexes_part_by_part(spark, sql, new_index, opensearch, monkeypatch):
    monkeypatch.setattr(validate, "SHARDS_AT_ONCE", 2)
    config = new_index(
        CREATE,
        "INSERT INTO {t} SELECT id, concat('s', id % 4) FROM range(20)",
        index_column="body",
        number_of_shards=1,
    )
    physical = sorted(opensearch.indices.get_alias(name=config.index))
    one, other = (next(each for each in physical if each.endswith(suffix)) for suffix in ("s1", "s3"))
    opensearch.delete(index=one, id="1", refresh=True)
    for identity, body in (("99", "s3"), ("2", "s2")):  # the other one is also in its place
        opensearch.index(index=other, id=identity, body={"id": int(identity), "body": body}, refresh=True)
    found = validate_table(spark, config)
    counts = found.source_rows, found.index_documents
    assert (counts, found.missing_ids, found.extra_ids) == ((20, 21), ["1"], ["2", "99"])
    # As an earlier release left it, which did not know the largest document.
    opensearch.update(index=config.positions_index, id=f"position:{config.index}", body={"doc": {"largest": 0}})
    repaired = validate_table(spark, config.replace(repair=True))
    assert PositionStore(opensearch, config).read().largest > 0
    assert (repaired.ok, repaired.repaired, repaired.source_rows, repaired.index_documents) == (True, 3, 20, 20)


HIDING = """
import runpy, sys

class Hiding:
    def find_spec(self, name, *_):
        if name.partition(".")[0] == "{missing}":
            raise ModuleNotFoundError(f"No module named '{{name}}'", name=name)

sys.meta_path.insert(0, Hiding())
sys.argv = ["pyspark.daemon", "pyspark.worker"]
runpy.run_module("pyspark.daemon", run_name="__main__")
"""


@pytest.mark.parametrize("missing", ["icecdc_core", "pyarrow"])
def it_names_what_the_executors_lack(spark, new_index, tmp_path, monkeypatch, missing):
    config = new_index(CREATE, "INSERT INTO {t} VALUES (1, 'a')")
    python, program = tmp_path / "python", tmp_path / "program.py"
    program.write_text(HIDING.format(missing=missing))
    python.write_text(f"#!/bin/sh\nexec {sys.executable} {program}\n")
    python.chmod(0o700)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(python))
    (error,) = check_setup(spark, config).errors
    assert (type(error), missing in str(error), "every node" in error.remedy) == (DependencyError, True, True)
    with pytest.raises(DependencyError):
        export_table(spark, config)


SMALL_HEAP = """
import json, os, sys
from icecdc_core import SyncConfig, export_table, get_spark, sync_changes, validate_table
from icecdc_core.errors import IcecdcError

values = json.loads(sys.argv[1])
spark = get_spark(SyncConfig(**values, table="lake.ns.t"))
spark.sparkContext.setLogLevel("OFF")
spark.sql("CREATE NAMESPACE lake.ns")

def table(name, columns, rows, version=2):
    spark.sql(f"CREATE TABLE lake.ns.{name} ({columns}) USING iceberg TBLPROPERTIES ('format-version' = '{version}')")
    spark.sql(f"INSERT INTO lake.ns.{name} {rows}")
    return SyncConfig(**values, table=f"lake.ns.{name}", index=f"{values['positions_index']}-{name}")

# 640 MB of documents.
long = "SELECT id, repeat(md5(cast(id AS string)), 10000) FROM range(0, 2000, 1, 1)"
config = table("documents", "id BIGINT, body STRING", long)
print(export_table(spark, config).upserts, validate_table(spark, config).ok)
# 300 MB of identifiers.
config = table("identifiers", "id STRING, v INT", "SELECT lpad(id, 1000, 'x'), id FROM range(0, 300000, 1, 2)")
sync_changes(spark, config.replace(start_from="latest"))
spark.sql("UPDATE lake.ns.identifiers SET v = -1 WHERE v % 10000 = 0")
print(sync_changes(spark, config).upserts)
# Rows in files that have no neighbours.
config = table("scattered", "id BIGINT, k INT", "SELECT id, hash(id) FROM range(0, 1000000, 1, 1)", 3)
sync_changes(spark, config.replace(start_from="latest"))
spark.sql("CALL lake.system.rewrite_data_files(table => 'ns.scattered', strategy => 'sort', sort_order => 'k', "
          "options => map('rewrite-all', 'true', 'target-file-size-bytes', '100000'))")
sync_changes(spark, config)
spark.sql("UPDATE lake.ns.scattered SET k = 0 WHERE k < 0")
report = sync_changes(spark, config.replace(dry_run=True))
print(report.upserts == spark.table("lake.ns.scattered").where("k = 0").count())
spark._jsparkSession.sparkContext().stop()
try:
    sync_changes(spark, config)
except IcecdcError as error:
    print(type(error).__name__, error.message)
"""


@pytest.mark.long
@pytest.mark.timeout(900)
def it_goes_through_a_small_heap(opensearch, opensearch_url, tmp_path, name):
    values = {
        "opensearch_url": opensearch_url,
        "identifier_columns": ["id"],
        "warehouse": str(tmp_path / "warehouse"),
        "positions_index": f"positions-{name}",
        "spark_conf": {"spark.master": "local[2]", "spark.driver.memory": "512m"},
    }
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, "-c", SMALL_HEAP, json.dumps(values)]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    finally:
        opensearch.indices.delete(index=f"positions-{name}*", params={"expand_wildcards": "all"})
    expected = ["2000 True", "30", "True", f"{SparkJobError.__name__} Spark was stopped"]
    assert (ended.stdout.splitlines(), ended.returncode) == (expected, 0), ended.stderr[-3000:]
