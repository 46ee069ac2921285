"""The session: its catalog is the one that the parameters describe, or an error names the difference; it is private."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading

import pytest
from pyspark.sql import SparkSession

from icecdc_core import SyncConfig, export_table, get_spark
from icecdc_core.errors import CatalogError, ConfigError
from icecdc_core.jobs.setup import check_setup
from icecdc_core.session.catalog import require_catalog
from icecdc_core.session.spark import running_session
from icecdc_core.table.source import open_source

UNREACHABLE = {"type": "rest", "uri": "http://127.0.0.1:9/"}


@pytest.fixture
def catalog(name):
    """A catalog name that no other test's session knows."""
    return f"c_{name}"


@pytest.fixture
def parameters(catalog):
    """Parameters of a table in this test's catalog."""

    def build(**given):
        return SyncConfig(table=f"{catalog}.ns.t", **given)

    return build


def fill(config, value):
    """Make the table in the catalog of these parameters, with one row."""
    spark = get_spark(config)
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {config.catalog}.ns")
    spark.sql(f"CREATE TABLE {config.quoted_table} USING iceberg AS SELECT '{value}' AS id")


def rows(config):
    """What the table of these parameters holds."""
    return [row.id for row in get_spark(config).table(config.quoted_table).collect()]


def in_another_thread(work):
    """What the work returns or raises in a thread without an active session, as after an interrupted cell."""
    results = []

    def run():
        assert SparkSession.getActiveSession() is None
        try:
            results.append(work())
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return results[0]


class DescribeAChangedCatalog:
    def it_is_used_when_the_warehouse_changed(self, spark, parameters, tmp_path):
        one, two = (parameters(warehouse=str(tmp_path / name)) for name in ("one", "two"))
        fill(one, "one")
        fill(two, "two")
        assert [rows(one), rows(two), rows(one)] == [["one"], ["two"], ["one"]]

    def it_is_used_when_the_properties_changed(self, spark, parameters, tmp_path):
        one, two = (
            parameters(catalog_properties={"type": "hadoop", "warehouse": str(tmp_path / name)})
            for name in ("one", "two")
        )
        fill(one, "one")
        fill(two, "two")
        assert [rows(one), rows(two)] == [["one"], ["two"]]

    def it_is_used_when_a_property_was_removed(self, spark, parameters, catalog, tmp_path):
        properties = {"type": "hadoop", "warehouse": str(tmp_path)}
        get_spark(parameters(catalog_properties={**properties, "token": "hunter2"}))
        changed = get_spark(parameters(catalog_properties=properties))
        assert changed.conf.get(f"spark.sql.catalog.{catalog}.token", None) is None

    def it_is_used_when_spark_conf_describes_it(self, spark, parameters, catalog, tmp_path):
        prefix = f"spark.sql.catalog.{catalog}"
        fill(parameters(warehouse=str(tmp_path / "one")), "one")
        given = {f"{prefix}.type": "hadoop", f"{prefix}.uri": "", f"{prefix}.warehouse": str(tmp_path / "two")}
        two = parameters(spark_conf=given)
        fill(two, "two")
        assert rows(two) == ["two"]

    def it_is_used_though_the_settings_were_changed_by_hand(self, spark, parameters, catalog, tmp_path):
        one, two = (parameters(warehouse=str(tmp_path / name)) for name in ("one", "two"))
        fill(one, "one")
        session = get_spark(one)
        fill(two, "two")
        for key in ("uri", "warehouse"):
            key = f"spark.sql.catalog.{catalog}.{key}"
            session.conf.set(key, get_spark(two).conf.get(key))
        assert rows(two) == ["two"]

    def it_is_used_after_an_interrupt(self, spark, parameters, tmp_path):
        fill(parameters(warehouse=str(tmp_path)), "old")
        changed = parameters(catalog_properties=UNREACHABLE)
        outcome = in_another_thread(lambda: open_source(get_spark(changed), changed))
        assert isinstance(outcome, CatalogError), outcome

    def it_is_made_once_while_its_session_is_in_use(self, spark, parameters, tmp_path):
        one, two = (parameters(warehouse=str(tmp_path / name)) for name in ("one", "two"))
        sessions = [get_spark(config) for config in (one, two, one, two)]
        assert [session._jsparkSession.equals(sessions[1]._jsparkSession) for session in sessions] == [False, True] * 2

    def it_leaves_the_rest_of_the_session_as_it_was(self, spark, parameters, tmp_path):
        session = get_spark(parameters(warehouse=str(tmp_path / "one")))
        before = session.conf.get("spark.sql.shuffle.partitions")
        session.conf.set("spark.sql.shuffle.partitions", "3")
        session.conf.set("spark.hadoop.some.key", "kept")
        try:
            sibling = get_spark(parameters(warehouse=str(tmp_path / "two")))
            kept = [sibling.conf.get(key) for key in ("spark.sql.shuffle.partitions", "spark.hadoop.some.key")]
        finally:
            # Not unset: then it would be Spark's 200 for all tests that follow.
            session.conf.set("spark.sql.shuffle.partitions", before)
            session.conf.unset("spark.hadoop.some.key")
        assert kept == ["3", "kept"]


class DescribeAnUnchangedCatalog:
    def it_stays_in_its_session(self, spark, parameters, tmp_path):
        config = parameters(warehouse=str(tmp_path))
        assert get_spark(config)._jsparkSession.equals(get_spark(config)._jsparkSession)

    def it_stays_after_an_interrupt(self, spark, parameters, tmp_path):
        config = parameters(warehouse=str(tmp_path))
        fill(config, "one")
        assert in_another_thread(lambda: rows(config)) == ["one"]

    def it_may_be_configured_by_somebody_else(self, spark, parameters, catalog, tmp_path):
        prefix = f"spark.sql.catalog.{catalog}"
        mine = running_session()
        settings = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "hadoop", ".warehouse": f"file://{tmp_path}"}
        for key, value in {**settings, ".io-impl": "org.apache.iceberg.hadoop.HadoopFileIO"}.items():
            mine.conf.set(prefix + key, value)
        warehouse = {"warehouse": str(tmp_path)}
        asked = [
            {},
            warehouse,
            {"catalog_properties": {"type": "hadoop", **warehouse}},
            {"warehouse": f"{tmp_path}/elsewhere"},
        ]
        sessions = [get_spark(parameters(**given)) for given in asked]
        mine_again = [session._jsparkSession.equals(mine._jsparkSession) for session in sessions]
        assert mine_again == [True, True, True, False]

    def it_may_be_configured_by_somebody_else_without_a_warehouse(self, spark, parameters, catalog):
        prefix = f"spark.sql.catalog.{catalog}"
        metastore = {"type": "hive", "uri": "thrift://127.0.0.1:9083"}
        mine = running_session()
        for key, value in {"": "org.apache.iceberg.spark.SparkCatalog", **metastore}.items():
            mine.conf.set(f"{prefix}.{key}".rstrip("."), value)
        same = parameters(spark_conf={f"{prefix}.{key}": value for key, value in metastore.items()})
        require_catalog(mine, same)
        assert get_spark(same)._jsparkSession.equals(mine._jsparkSession)

    def it_keeps_its_other_settings_when_spark_conf_changes_one(self, spark, parameters, catalog, tmp_path):
        prefix = f"spark.sql.catalog.{catalog}"
        mine = running_session()
        theirs = {prefix: "org.apache.iceberg.spark.SparkCatalog", f"{prefix}.type": "hadoop"}
        theirs[f"{prefix}.warehouse"] = str(tmp_path)
        for key, value in theirs.items():
            mine.conf.set(key, value)
        changed = parameters(spark_conf={f"{prefix}.cache-enabled": "false"})
        with pytest.raises(ConfigError, match=r": cache-enabled is not set in the session and 'false' in the param"):
            require_catalog(mine, changed)
        sessions = [get_spark(changed), get_spark(changed)]
        require_catalog(sessions[0], changed)
        found = [{k: v for k, v in each.conf.getAll.items() if k.startswith(prefix)} for each in sessions]
        assert found == [theirs | {f"{prefix}.cache-enabled": "false"}] * 2
        assert sessions[0]._jsparkSession.equals(sessions[1]._jsparkSession)

    def it_causes_a_warning_when_the_parameters_no_longer_describe_it(self, spark, parameters, tmp_path, monkeypatch):
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
        fill(parameters(warehouse=str(tmp_path / "one")), "one")
        with pytest.warns(UserWarning, match=f"warehouse is '{tmp_path}/one' in the session and"):
            assert rows(parameters()) == ["one"]


class DescribeASessionWithAnotherCatalog:
    @pytest.fixture
    def other(self, spark, parameters, tmp_path):
        """A session with the catalog of other parameters."""
        fill(parameters(warehouse=str(tmp_path / "one")), "one")
        return get_spark(parameters(warehouse=str(tmp_path / "one")))

    def it_is_refused_with_what_differs(self, other, parameters, tmp_path):
        with pytest.raises(ConfigError, match=rf"warehouse is '{tmp_path}/one' in .*'{tmp_path}/two' in the param"):
            export_table(other, parameters(warehouse=str(tmp_path / "two")))

    def it_is_refused_without_showing_secrets(self, other, parameters, monkeypatch):
        monkeypatch.setenv("PLANTED", "hunter2")
        for secret in ({"thing": "env:PLANTED"}, {"token": "hunter2"}):
            with pytest.raises(ConfigError, match=r"differs \(values not shown\)") as caught:
                export_table(other, parameters(catalog_properties={"type": "rest", **secret}))
            assert "hunter2" not in str(caught.value)

    def it_is_a_problem_that_the_setup_check_finds(self, other, parameters, tmp_path, opensearch_url):
        report = check_setup(other, parameters(warehouse=str(tmp_path / "two"), opensearch_url=opensearch_url))
        assert "The session's catalog is not the one" in report.problems[0]


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


class DescribeALocalSession:
    def it_is_open_to_nobody_else_on_the_machine_or_the_network(self, tmp_path):
        """Of the web pages, the log and the folder for tables, with links put where they could be expected."""
        shared, theirs = tmp_path / "tmp", tmp_path / "theirs.txt"
        shared.mkdir()
        theirs.write_text("theirs")
        environment = {**os.environ, "TMPDIR": str(shared), "PYTHONPATH": os.pathsep.join(sys.path)}
        environment.pop("SPARK_LOCAL_IP", None)
        command = [sys.executable, "-c", LOCAL_SESSION, str(theirs), str(tmp_path / "warehouse")]
        ended = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert ended.returncode == 0, ended.stderr[-3000:]
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
