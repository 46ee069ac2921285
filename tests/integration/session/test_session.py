"""The session: its catalog is the one described, it is private, and jobs work in one of their own."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from weakref import WeakKeyDictionary

import pyspark
import pytest
from pyspark.sql import SparkSession

from icecdc_core import SyncConfig, export_table, get_spark, status, sync_changes, validate_table
from icecdc_core.changes import read_changes
from icecdc_core.commits.store import PositionStore
from icecdc_core.errors import ConfigError, DependencyError
from icecdc_core.ingest import IngestConfig
from icecdc_core.jobs.setup import check_setup
from icecdc_core.session import jvm
from icecdc_core.session.job_session import job_session
from icecdc_core.session.spark import _local_session, _settings, running_session
from tests.unit.session.test_compat import ConnectSession

NOTES_LINES = "spark.python.sql.dataFrameDebugging.enabled"


@pytest.fixture
def parameters(name):
    return partial(SyncConfig, table=f"c_{name}.ns.t")


class DescribeTheCatalog:
    def it_is_registered_once_and_found_again_after_an_interrupt(self, spark, parameters, tmp_path):
        config = parameters(warehouse=str(tmp_path))
        mine = get_spark(config)
        mine.sql(f"CREATE NAMESPACE IF NOT EXISTS {config.catalog}.ns")
        mine.sql(f"CREATE TABLE {config.table} USING iceberg AS SELECT 'one' AS id")
        assert mine._jsparkSession.equals(running_session()._jsparkSession)
        with ThreadPoolExecutor(1) as another:  # without an active session, as after an interrupted cell
            active, found = another.submit(lambda: (SparkSession.getActiveSession(), get_spark(config))).result()
        read = [each.table(config.table).collect() for each in (found, get_spark(parameters()))]
        assert (active, read) == (None, [[("one",)]] * 2)

    def it_must_be_the_one_described(self, spark, parameters, name, tmp_path, monkeypatch, opensearch_url):
        monkeypatch.setenv("PLANTED", "hunter2")
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
        session, two = get_spark(parameters(warehouse=str(tmp_path / "one"))), {"warehouse": str(tmp_path / "two")}
        for given, names in (
            (two, ["warehouse"]),
            ({"catalog_properties": {"type": "hadoop", "warehouse": "one"}}, ["type", "uri"]),
            ({"catalog_properties": {"type": "rest", "uri": "http://x", "thing": "env:PLANTED"}}, ["thing"]),
            ({"catalog_properties": {"type": "rest", "token": "hunter2"}}, ["token"]),
            ({"spark_conf": {f"spark.sql.catalog.c_{name}.cache-enabled": "true"}}, ["cache-enabled"]),
        ):
            config = parameters(**given)
            for job in (get_spark, lambda config: export_table(session, config)):
                with pytest.raises(ConfigError, match=r"restart the kernel") as caught:
                    job(config)
                shown = str(caught.value)
                assert ([name for name in names if name not in shown], "hunter2" in shown) == ([], False)
        report = check_setup(session, parameters(**two, opensearch_url=opensearch_url))
        assert "The session's catalog is not the one" in report.problems[0]

    def it_may_be_configured_by_somebody_else(self, spark, parameters, name, tmp_path):
        prefix = f"spark.sql.catalog.c_{name}"
        mine = running_session()
        settings = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "hadoop", ".warehouse": f"file://{tmp_path}"}
        for key, value in {**settings, ".io-impl": "org.apache.iceberg.hadoop.HadoopFileIO"}.items():
            mine.conf.set(prefix + key, value)
        warehouse = {"warehouse": str(tmp_path)}
        same = [{"catalog_properties": {"type": "hadoop", **warehouse}}, {"spark_conf": {f"{prefix}.type": "hadoop"}}]
        for given in ({}, warehouse, *same):
            assert get_spark(parameters(**given))._jsparkSession.equals(mine._jsparkSession)
        for given in ({"warehouse": f"{tmp_path}/else"}, {"spark_conf": {f"{prefix}.cache-enabled": "false"}}):
            with pytest.raises(ConfigError, match="is not the one that the parameters describe"):
                get_spark(parameters(**given))


LOCAL_SESSION = """
import json, os, stat, sys, tempfile
from pathlib import Path
import psutil
from icecdc_core import SyncConfig
from icecdc_core.notebook import open_spark

theirs, shared = Path(sys.argv[1]), Path(tempfile.gettempdir())
(shared / f"icecdc-spark-{os.getpid()}.log").symlink_to(theirs)
(shared / "icecdc-spark-warehouse").symlink_to(theirs.parent / "theirs")
spark = open_spark(SyncConfig(table="lake.ns.t", warehouse=sys.argv[2], spark_conf={
    "spark.master": "local[1]", "spark.driver.memory": "512m", "spark.ui.enabled": "true", "spark.ui.port": "0"}))
spark.sql("CREATE TABLE default.plain (id INT) USING parquet")
logs = list(shared.glob("icecdc-spark-*/*.log"))
listening = [each.laddr.ip for child in psutil.Process().children(recursive=True)
             for each in child.net_connections("inet") if each.status == psutil.CONN_LISTEN]
made = {path.name: stat.S_IMODE(path.stat().st_mode) for path in shared.iterdir() if not path.is_symlink()}
print(json.dumps({
    "ui": spark.sparkContext.uiWebUrl, "listening": listening, "log": [path.read_text() for path in logs], "made": made,
    "modes": [stat.S_IMODE(path.stat().st_mode) for log in logs for path in (log, log.parent)],
    "warehouse": [path.name for path in shared.glob("icecdc-spark-warehouse-*/*")],
}), flush=True)
spark.stop()
"""


SUBMITTED = """
from pyspark import SparkContext
from icecdc_core import SyncConfig, get_spark, errors
try:
    get_spark(SyncConfig(table="lake.ns.t"))
except errors.DependencyError as error:  # it has no Iceberg
    print(SparkContext.getOrCreate().master, "without Iceberg" in str(error))
"""


@pytest.mark.long
def it_is_the_session_of_spark_submit(tmp_path):
    program = tmp_path / "job.py"
    program.write_text(SUBMITTED)
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": os.pathsep.join(sys.path)}
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    command = [submit, "--master", "local[3]", "--conf", "spark.ui.enabled=false", program]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert (ended.returncode, ended.stdout) == (0, "local[3] True\n"), ended.stderr[-2000:]


def it_lets_executors_on_other_machines_reach_the_driver():
    hosts = []
    for master in ("local[2]", "spark://cluster:7077"):
        config = SyncConfig(table="lake.ns.t", spark_conf={"spark.master": master})
        hosts.append(_settings([config], {}).get("spark.driver.host"))
    assert hosts == ["127.0.0.1", None]


def it_notes_no_lines_of_expressions_for_an_ingest_unless_asked_to():
    ingest = {"job": "j", "bootstrap_servers": "127.0.0.1:9", "topics": "t", "table": "lake.ns.t"}
    for given, wanted in ({}, "false"), ({NOTES_LINES: "true"}, "true"):
        assert _settings([IngestConfig(**ingest, spark_conf=given)], {})[NOTES_LINES] == wanted
    assert NOTES_LINES not in _settings([SyncConfig(table="lake.ns.t")], {})


def it_blames_no_repository_for_a_cache_folder_that_cannot_be_used(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nope")
    with pytest.raises(ConfigError, match="XDG_CACHE_HOME='/proc/nope/icecdc'"):
        _local_session([SyncConfig(table="lake.ns.t")], {})


@pytest.mark.long
def it_is_open_to_nobody_else_on_the_machine_or_the_network(tmp_path):
    """Of its web pages, log and tables, with links put where they could be expected; the log alone: test_java.py."""
    shared, theirs = tmp_path / "tmp", tmp_path / "theirs.txt"
    shared.mkdir()
    theirs.write_text("theirs")
    environment = {**os.environ, "TMPDIR": str(shared), "PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop("SPARK_LOCAL_IP", None)
    command = [sys.executable, "-c", LOCAL_SESSION, str(theirs), str(tmp_path / "warehouse")]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")  # a script is as quiet as a command
    found = json.loads(ended.stdout.splitlines()[-1])
    # Spark's own gateway and block manager listen too.
    assert {address.removeprefix("::ffff:") for address in found["listening"]} == {"127.0.0.1"}
    assert found["ui"].startswith("http://127.0.0.1:")
    assert (theirs.read_text(), (tmp_path / "theirs").exists()) == ("theirs", False)
    assert found["modes"] == [0o600, 0o700]
    assert "WARN" in found["log"][0]
    assert found["warehouse"] == ["plain"]
    assert {name for name, mode in found["made"].items() if name.startswith("icecdc") and mode != 0o700} == set()
    assert list(shared.glob("icecdc-spark-warehouse-*")) == []


def it_gives_long_texts_whole(spark):
    for text in ("x" * 2499 + "\N{GRINNING FACE}" + "y" * 3000, "\N{EURO SIGN}" * 6000):
        assert jvm.fetch_text(spark._jvm.java.lang.StringBuilder(text)) == text
    columns = [f"named_struct('\N{GRINNING FACE}', {n}, 'v', array(date'2020-01-01')) AS c{n}" for n in range(60)]
    frame = spark.range(1).selectExpr(*columns).withMetadata("c0", {"comment": "\N{EURO SIGN}"})
    assert jvm.schema_of(frame) == frame.schema
    assert jvm.schema_of(frame)["c0"].metadata == {"comment": "\N{EURO SIGN}"}


def it_has_a_java_class_of_its_own_where_jars_come_from_elsewhere(spark, monkeypatch):
    one = jvm.java_helper(spark)
    monkeypatch.setattr(jvm, "_compiled", WeakKeyDictionary())
    with ThreadPoolExecutor(4) as pool:  # threads that ask at the same time get the same one
        other, *others = pool.map(lambda _: jvm.java_helper(spark), range(4))
    assert [each is other for each in others] == [True] * 3
    # The gateway remembers a method by the name of its class, which would not fit an object of the other one.
    assert [each.texts(spark._jvm.java.util.ArrayList(), "location") for each in (one, other)] == ["", ""]


SETTINGS = {
    "spark.sql.ansi.enabled": "false",
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
    "spark.sql.legacy.castComplexTypesToString.enabled": "true",
    "spark.sql.session.timeZone": "Asia/Tokyo",
    "spark.sql.parser.quotedRegexColumnNames": "true",
    "spark.sql.adaptive.enabled": "false",
}
SELECT = [
    "id",
    "coalesce(size(tags), 99) AS tags",
    "cast(price * price AS STRING) AS squared",
    "cast(struct(id, tags) AS STRING) AS row",
    "hour(seen) AS `hour`",
    "'${env:HOME}' AS home",
]


class DescribeTheSessionOfTheCaller:
    def it_changes_no_document(self, spark, sql, new_index, opensearch, indexed):
        create = "CREATE TABLE {t} (id INT, tags ARRAY<INT>, price DECIMAL(38, 10), seen TIMESTAMP) USING iceberg"
        fill = "INSERT INTO {t} SELECT id, null, 1.5, timestamp '2026-01-31T11:30:00Z' FROM range(1, 4)"
        config = new_index(create, fill, select=SELECT, row_filter="hour(seen) < 12")
        exported = indexed()
        caller = spark.newSession()
        for name, value in SETTINGS.items():
            caller.conf.set(name, value)
        caller.udf.register("mine", lambda value: True, "boolean")
        caller.createDataFrame([(1,)], "id int").createOrReplaceTempView("mine")
        sql("UPDATE {t} SET price = 1.50 WHERE id < 3", "DELETE FROM {t} WHERE id = 3")
        report = sync_changes(caller, config)
        assert (report.deletes, SparkSession.getActiveSession()) == (1, caller)
        del exported["3"]
        assert indexed() == exported
        assert exported["1"]["hour"] == 11
        assert exported["1"]["home"] == "${env:HOME}"
        assert validate_table(caller, config).ok
        assert "time_zone" not in PositionStore(opensearch, config).read().selection
        for changed in ({"row_filter": "mine(id)"}, {"select": ["id", "mine(id) AS x"]}):
            with pytest.raises(ConfigError, match="mine"):
                sync_changes(caller, config.replace(**changed))
        assert {name: caller.conf.get(name) for name in SETTINGS} == SETTINGS

    def it_gives_its_catalogs_and_how_spark_executes(self, spark):
        caller = spark.newSession()
        given = {"spark.sql.catalog.later": "x.Y", "spark.sql.shuffle.partitions": "5", "fs.azure.account.key": "k"}
        given |= {"spark.sql.artifact.isolation.enabled": "false"}  # else Python's workers start in another folder
        for name, value in given.items():
            caller.conf.set(name, value)
        caller.conf.set("spark.comet.enabled", "true")
        with job_session(caller) as own, job_session(own) as inner, job_session(caller) as again:
            assert (inner, again) == (own, own)
            assert {name: own.conf.get(name) for name in given} == given
            engines = {name: own.conf.get(f"spark.{name}.enabled") for name in ("comet", "gluten", "rapids.sql")}
            assert set(engines.values()) == {"false"}
        caller.conf.set("spark.sql.catalog.later.type", "hadoop")
        with job_session(caller) as other:
            assert other.conf.get("spark.sql.catalog.later.type") == "hadoop"


def it_refuses_an_accelerator_whose_plugin_is_missing(spark, make_config):
    with pytest.raises(ConfigError, match="leave accelerator out") as refused:
        sync_changes(spark, make_config(accelerator="comet"))
    assert refused.value.subject == "accelerator"


def it_refuses_spark_connect_wherever_a_session_is_given():
    session, config = ConnectSession(), SyncConfig(table="lake.ns.t", opensearch_url="http://127.0.0.1:9")
    for job in (export_table, sync_changes, validate_table, status, check_setup):
        with pytest.raises(DependencyError, match="Spark Connect"):
            job(session, config)
    with pytest.raises(DependencyError, match="Spark Connect"):
        read_changes(session, "lake.ns.t")
