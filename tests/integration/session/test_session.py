"""The session: its catalog is the one that the parameters describe, or an error names the difference; it is private."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from weakref import WeakKeyDictionary

import pyspark
import pytest
from pyspark.sql import SparkSession

from icecdc_core import SyncConfig, export_table, get_spark
from icecdc_core.errors import ConfigError
from icecdc_core.jobs.setup import check_setup
from icecdc_core.session import jvm
from icecdc_core.session.spark import _local_session, _settings, running_session


@pytest.fixture
def catalog(name):
    return f"c_{name}"


@pytest.fixture
def parameters(catalog):
    def build(**given):
        return SyncConfig(table=f"{catalog}.ns.t", **given)

    return build


def fill(config, value):
    spark = get_spark(config)
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {config.catalog}.ns")
    spark.sql(f"CREATE TABLE {config.quoted_table} USING iceberg AS SELECT '{value}' AS id")


def rows(config):
    return [row.id for row in get_spark(config).table(config.quoted_table).collect()]


class DescribeTheCatalog:
    def it_is_registered_once_and_found_again_after_an_interrupt(self, spark, parameters, tmp_path):
        config = parameters(warehouse=str(tmp_path))
        fill(config, "one")
        assert get_spark(config)._jsparkSession.equals(running_session()._jsparkSession)
        with ThreadPoolExecutor(1) as another:  # without an active session, as after an interrupted cell
            found = another.submit(lambda: (SparkSession.getActiveSession(), rows(config))).result()
        assert found == (None, ["one"])
        assert rows(parameters()) == ["one"]

    def it_must_be_the_one_described(self, spark, parameters, catalog, tmp_path, monkeypatch, opensearch_url):
        monkeypatch.setenv("PLANTED", "hunter2")
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
        session, two = get_spark(parameters(warehouse=str(tmp_path / "one"))), {"warehouse": str(tmp_path / "two")}
        for given, names in (
            (two, ["warehouse"]),
            ({"catalog_properties": {"type": "hadoop", "warehouse": "one"}}, ["type", "uri"]),
            ({"catalog_properties": {"type": "rest", "uri": "http://x", "thing": "env:PLANTED"}}, ["thing"]),
            ({"catalog_properties": {"type": "rest", "token": "hunter2"}}, ["token"]),
            ({"spark_conf": {f"spark.sql.catalog.{catalog}.cache-enabled": "true"}}, ["cache-enabled"]),
        ):
            config = parameters(**given)
            for job in (get_spark, lambda config: export_table(session, config)):
                with pytest.raises(ConfigError, match=r"restart the kernel") as caught:
                    job(config)
                shown = str(caught.value)
                assert ([name for name in names if name not in shown], "hunter2" in shown) == ([], False)
        report = check_setup(session, parameters(**two, opensearch_url=opensearch_url))
        assert "The session's catalog is not the one" in report.problems[0]

    def it_may_be_configured_by_somebody_else(self, spark, parameters, catalog, tmp_path):
        prefix = f"spark.sql.catalog.{catalog}"
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


def it_blames_no_repository_for_a_cache_folder_that_cannot_be_used(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nope")
    with pytest.raises(ConfigError, match="XDG_CACHE_HOME='/proc/nope/icecdc'"):
        _local_session([SyncConfig(table="lake.ns.t")], {})


class DescribeALocalSession:
    """The log alone, and in `make test`: tests/unit/session/test_java.py."""

    @pytest.mark.long
    def it_is_open_to_nobody_else_on_the_machine_or_the_network(self, tmp_path):
        """Of the web pages, the log and the folder for tables, with links put where they could be expected."""
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


class DescribeAJavaHelper:
    def it_is_made_once_though_threads_ask_for_it_at_the_same_time(self, spark, monkeypatch):
        monkeypatch.setattr(jvm, "_compiled", WeakKeyDictionary())
        with ThreadPoolExecutor(4) as pool:
            made = list(pool.map(lambda _: jvm.file_lists(spark), range(4)))
        assert len(set(map(id, made))) == 1

    def it_gives_long_texts_whole(self, spark):
        for text in ("x" * 2499 + "\N{GRINNING FACE}" + "y" * 3000, "\N{EURO SIGN}" * 6000):
            assert jvm.fetch_text(spark._jvm.java.lang.StringBuilder(text)) == text

    def it_is_of_a_class_of_its_own_where_jars_come_from_elsewhere(self, spark, monkeypatch):
        one = jvm.file_lists(spark)
        monkeypatch.setattr(jvm, "_compiled", WeakKeyDictionary())
        other = jvm.file_lists(spark)
        # The gateway remembers a method by the name of its class, which would not fit an object of the other one.
        assert [each.chosen(spark._jvm.java.util.ArrayList(), "").size() for each in (one, other)] == [0, 0]
