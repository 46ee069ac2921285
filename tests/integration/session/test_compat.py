"""The gate with real sessions: every class in use is there, a supported session passes, Spark Connect is refused."""

import re
from pathlib import Path

import pytest

import icecdc_core
from icecdc_core import SyncConfig, export_table, status, sync_changes, validate_table
from icecdc_core.changes import read_changes
from icecdc_core.errors import DependencyError
from icecdc_core.jobs.setup import check_setup
from icecdc_core.session import compat
from icecdc_core.session.jvm import java_class
from tests.unit.session.test_compat import ConnectSession


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
    session, config = ConnectSession(), SyncConfig(table="lake.ns.t", opensearch_url="http://127.0.0.1:9")
    for job in (export_table, sync_changes, validate_table, status, check_setup):
        with pytest.raises(DependencyError, match="Spark Connect"):
            job(session, config)
    with pytest.raises(DependencyError, match="Spark Connect"):
        read_changes(session, "lake.ns.t")
