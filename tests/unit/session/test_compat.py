"""The gate: which sessions are refused, and that every private class in use is listed; no Spark."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkAttributeError
from pyspark.sql import SparkSession

import icecdc_core
from icecdc_core.errors import DependencyError
from icecdc_core.session.compat import (
    PRIVATE_ATTRIBUTES,
    PRIVATE_CLASSES,
    Found,
    require_pyspark,
    require_supported,
    unsupported,
)
from icecdc_core.session.maven.packages import ICEBERG_RUNTIMES

CORE = Path(icecdc_core.__file__).parent
SOURCES = {path: path.read_text(encoding="utf-8") for path in CORE.rglob("*.py")}
JAVA = "\n".join(path.read_text(encoding="utf-8") for path in (CORE / "session").glob("*.java"))
# Public interfaces of Iceberg, by whose constants, parsers and builders icecdc also works.
PUBLIC = {
    *("MetadataColumns", "PartitionSpec", "PartitionSpecParser", "Schema", "SchemaParser", "SortOrder"),
    "catalog.TableIdentifier",
}
BLOCKED = "py4j.security.Py4JSecurityException: Method java.lang.Thread.currentThread() is not whitelisted"
ICEBERG_CLASS = re.compile(r'iceberg_class\([\w.]*spark, "([\w.]+)"\)')
NAMED_CLASS = re.compile(r'(?:java_class\([\w.]*spark, |named\()"(org\.apache\.[\w.]+)"\)')


class ConnectSession:
    """What a session of Spark Connect does with the attributes that icecdc needs."""

    version = "4.1.4"

    def __getattr__(self, name):
        raise PySparkAttributeError(errorClass="JVM_ATTRIBUTE_NOT_SUPPORTED", messageParameters={"attr_name": name})


ConnectSession.__module__ = "pyspark.sql.connect.session"


class BlockedSession(SparkSession):
    """What a cluster with shared access does."""

    version = "4.0.1"

    @property
    def _jvm(self):
        raise Py4JError(BLOCKED)

    @property
    def sparkContext(self):
        raise Py4JError(BLOCKED)


class DescribeUnsupported:
    @pytest.mark.parametrize(
        ("found", "expected"),
        [
            (Found("classic", "4.1.4", "1.12.0"), ""),
            (Found("classic", "4.1.0", "1.12.1"), ""),
            (Found("classic", "4.0.5", "1.11.0"), ""),
            (Found("classic", "4.0.0.databricks", "1.11.0"), ""),
            (Found("classic", "3.5.2", "1.11.0"), "Spark 3.5.2"),
            (Found("classic", "4.2.0", "1.12.0"), "Spark 4.2.0"),
            (Found("classic", "4.10.0", "1.12.0"), "Spark 4.10.0"),
            (Found("classic", "4.1.4"), "Spark 4.1.4 without Iceberg"),
            (Found("classic", "4.1.4", "1.11.0"), "Spark 4.1.4 with Iceberg 1.11.0"),
            (Found("classic", "4.0.5", "1.12.0"), "Spark 4.0.5 with Iceberg 1.12.0"),
            (Found("classic", "4.0.5", "unknown"), "Spark 4.0.5 with Iceberg unknown"),
            (Found("classic", "4.0.5", "1.11.0", ("a.B", "a.C")), "Spark 4.0.5 with Iceberg 1.11.0 without a.B, a.C"),
            (Found("connect"), "a Spark Connect session"),
            (Found("blocked"), "a cluster that blocks access to Spark's JVM"),
        ],
    )
    def it_names_what_does_not_fit(self, found, expected):
        actual = unsupported(found)
        assert (actual.startswith(expected), bool(actual)) == (True, bool(expected))


class DescribeRequireSupported:
    @pytest.mark.parametrize(
        ("session", "words"),
        [
            (ConnectSession(), "found a Spark Connect session"),
            (BlockedSession.__new__(BlockedSession), "found a cluster that blocks access to Spark's JVM"),
        ],
        ids=["connect", "blocked"],
    )
    def it_raises_one_typed_error_that_names_what_is_supported(self, session, words):
        with pytest.raises(DependencyError) as caught:
            require_supported(session)
        pairs = [f"Spark {line} with Iceberg {iceberg[:4]}" for line, iceberg in ICEBERG_RUNTIMES.items()]
        assert [text for text in (words, *pairs, "dedicated access mode") if text not in str(caught.value)] == []


class DescribeRequirePyspark:
    def it_refuses_an_older_pyspark_with_the_same_error(self):
        with pytest.raises(DependencyError, match=r"found Spark 3\.5\.2; supported: a classic session of Spark 4\.0"):
            require_pyspark("3.5.2")

    def it_leaves_newer_ones_to_the_check_of_the_session(self):
        require_pyspark("4.2.0.dev1")


class DescribeThePrivateClasses:
    def it_has_every_class_that_is_used(self):
        used = set()
        for text in SOURCES.values():
            used |= {f"org.apache.iceberg.{name}" for name in ICEBERG_CLASS.findall(text)}
            used |= {*NAMED_CLASS.findall(text)}
        imported = set(re.findall(r"^import (org\.apache\.(?:iceberg\.)?spark\.[\w.]+);", JAVA, re.MULTILINE))
        public = {f"org.apache.iceberg.{name}" for name in PUBLIC} | {"org.apache.spark.sql.Encoders"}
        assert (used | imported) - public - {*PRIVATE_CLASSES} == set()

    def it_has_no_method_that_is_not_used(self):
        text = "\n".join([*SOURCES.values(), JAVA])
        methods = {method for listed in PRIVATE_CLASSES.values() for method in listed}
        assert {method for method in methods if not re.search(rf'\.{method}\b|"{method}"', text)} == set()

    def it_has_every_private_attribute_of_pyspark_that_is_used(self):
        used = set()
        for text in SOURCES.values():
            used |= set(re.findall(r"\._j(?!son)\w+|\._gateway|SparkContext\._\w+|_observation\._\w+", text))
        listed = {name.rpartition(".")[2] for name in PRIVATE_ATTRIBUTES}
        assert {name.rpartition(".")[2] for name in used} - listed == set()
