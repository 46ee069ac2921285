"""The gate with real sessions: every class in use is there, a supported session passes, Spark Connect is refused."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import icecdc_core
from icecdc_core.session import compat
from icecdc_core.session.jvm import java_class

# PySpark 4.1 starts a server of Spark Connect by itself; without the packages of pyspark[connect] an object of the same
# class name stands in for its session.
CONNECT = """
import json, sys
from icecdc_core import SyncConfig, export_table, get_spark, status, validate_table
from icecdc_core.changes import read_changes
from icecdc_core.errors import DependencyError
from icecdc_core.jobs.setup import check_setup
if sys.argv[1] == "real":
    from pyspark.sql import SparkSession
    session = SparkSession.builder.remote("local[1]").getOrCreate()
else:
    from tests.unit.session.test_compat import ConnectSession
    session = ConnectSession()
config = SyncConfig(table="lake.ns.t", opensearch_url="http://127.0.0.1:9")
given = {
    "export": lambda: export_table(session, config), "validate": lambda: validate_table(session, config),
    "status": lambda: status(session, config), "setup": lambda: check_setup(session, config),
    "changes": lambda: read_changes(session, "lake.ns.t"),
}
if sys.argv[1] == "real":
    given["get_spark"] = lambda: get_spark(config)
found = {}
for name, work in given.items():
    try:
        work()
    except Exception as error:
        found[name] = [type(error).__name__, str(error)]
print(json.dumps([type(session).__module__, found]), flush=True)
if sys.argv[1] == "real":
    session.stop()
"""


def it_finds_every_class_that_is_used(spark):
    core = Path(icecdc_core.__file__).parent
    python = "\n".join(path.read_text(encoding="utf-8") for path in core.rglob("*.py"))
    java = "\n".join(path.read_text(encoding="utf-8") for path in (core / "session").glob("*.java"))
    used = {f"org.apache.iceberg.{name}" for name in re.findall(r'iceberg_class\([\w.]*spark, "([\w.]+)"', python)}
    used |= {*re.findall(r'java_class\([\w.]*spark, "(org\.apache\.[\w.]+)"', python)}
    used |= {*re.findall(r"^import (org\.apache\.[\w.]+);", java, re.MULTILINE)}
    loader = java_class(spark, "java.lang.Thread").currentThread().getContextClassLoader()
    assert len(used) > 20
    assert [name for name in sorted(used) if not compat.has_class(loader, name)] == []


def it_refuses_spark_connect_wherever_a_session_is_given():
    kind = "real" if importlib.util.find_spec("grpc_status") else "stand-in"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", CONNECT, kind]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    module, found = json.loads(ended.stdout.splitlines()[-1])
    assert module == "pyspark.sql.connect.session"
    assert {name: error for name, (error, _) in found.items() if error != "DependencyError"} == {}
    assert {name for name, (_, text) in found.items() if "Spark Connect" not in text} == set()
    assert {"export", "validate", "status", "setup", "changes"} <= {*found}
