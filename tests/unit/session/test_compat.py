"""The gate: which sessions are refused, and that every private class in use is listed; no Spark."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pyspark.sql.functions
import pyspark.sql.streaming
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkAttributeError
from pyspark.sql import SparkSession, types

import icecdc_core
from icecdc_core.errors import DependencyError
from icecdc_core.session.compat import (
    PRIVATE_ATTRIBUTES,
    PRIVATE_CLASSES,
    SessionInfo,
    require_pyspark,
    require_supported,
    unsupported_reason,
)
from icecdc_core.session.jars import ICEBERG_RUNTIMES

CORE = Path(icecdc_core.__file__).parent
SOURCES = {path: path.read_text(encoding="utf-8") for path in CORE.rglob("*.py")}
JAVA = "\n".join(path.read_text(encoding="utf-8") for path in (CORE / "session").glob("*.java"))
TREES = {path: ast.parse(text) for path, text in SOURCES.items()}
# Public interfaces of Iceberg, and what icecdc calls of them and of other public Java classes.
PUBLIC = {
    *("ContentFile", "DataFile", "DeleteFile", "FileScanTask", "ManifestFile", "MetadataColumns", "PartitionSpec"),
    *("PartitionSpecParser", "Schema", "SchemaParser", "Snapshot", "SortOrder", "Table", "TableScan"),
    *("catalog.TableIdentifier", "expressions.Expression", "expressions.Expressions"),
    *("expressions.ResidualEvaluator", "io.CloseableIterable"),
}
OF_ICEBERG = {
    *("addColumn", "appendFile", "asPrimitiveType", "buildTable", "caseInsensitiveFindField", "currentSnapshot"),
    *("fieldId", "findField", "findType", "identifierFieldNames", "isMetadataColumn", "makeColumnOptional"),
    *("newAppend", "parentId", "rewrittenDataFilesCount", "sequenceNumber", "snapshotId"),
    *("stageOnly", "timestampMillis", "updateColumn", "updateProperties", "updateSchema", "withPartitionSpec"),
    *("withProperty", "withSortOrder"),
}
OF_JAVA = {
    *("addAll", "containsKey", "currentThread", "getCause", "getClass", "getClassLoader", "getClassName"),
    *("getCodeSource", "getConstructor", "getContextClassLoader", "getFile", "getLocation", "getMessage", "getParent"),
    *("getProperty", "getProtectionDomain", "getSimpleName", "getStackTrace", "hasNext", "hashCode", "iterator"),
    *("keySet", "loadClass", "newInstance", "setParentClassLoader", "toString"),
}
OF_SCALA = {"head", "isCompleted", "isDefined", "valuesIterator"}
OF_SPARK = {"as", "getExecutorMemoryStatus", "get", "json", "sc", "insertAll", "updateAll"}
OF_PY4J = {"new_array"}
OF_KAFKA = {"allTopicNames", "describeTopics", "listTopics", "offsetsForTimes", "partitionsFor", "topicId"}
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


class DescribeUnsupportedReason:
    @pytest.mark.parametrize(
        ("found", "expected"),
        [
            (SessionInfo("classic", "4.1.4", "1.12.0"), ""),
            (SessionInfo("classic", "4.1.0", "1.12.1"), ""),
            (SessionInfo("classic", "4.0.5", "1.11.0"), ""),
            (SessionInfo("classic", "4.0.0.databricks", "1.11.0"), ""),
            (SessionInfo("classic", "3.5.2", "1.11.0"), "Spark 3.5.2"),
            (SessionInfo("classic", "4.2.0", "1.12.0"), "Spark 4.2.0"),
            (SessionInfo("classic", "4.10.0", "1.12.0"), "Spark 4.10.0"),
            (SessionInfo("classic", "4.1.4"), "Spark 4.1.4 without Iceberg"),
            (SessionInfo("classic", "4.1.4", "1.11.0"), "Spark 4.1.4 with Iceberg 1.11.0"),
            (SessionInfo("classic", "4.0.5", "1.12.0"), "Spark 4.0.5 with Iceberg 1.12.0"),
            (SessionInfo("classic", "4.0.5", "unknown"), "Spark 4.0.5 with Iceberg unknown"),
            (
                SessionInfo("classic", "4.0.5", "1.11.0", ("a.B", "a.C")),
                "Spark 4.0.5 with Iceberg 1.11.0 without a.B, a.C",
            ),
            (SessionInfo("connect"), "a Spark Connect session"),
            (SessionInfo("blocked"), "a cluster that blocks access to Spark's JVM"),
        ],
    )
    def it_names_what_does_not_fit(self, found, expected):
        actual = unsupported_reason(found)
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


def attributes(tree: ast.AST) -> Iterator[ast.Attribute]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Attribute))


def names_before(node: ast.AST) -> set[str]:
    """The names in the chain of calls before an attribute: `b` and `c` for `d` in `a.b.c().d`."""
    inner = node.value if isinstance(node, ast.Attribute) else node.func if isinstance(node, ast.Call) else None
    if inner is None:
        return set()
    return {*names_before(inner), *([inner.attr] if isinstance(inner, ast.Attribute) else [])}


def of_pyspark() -> set[str]:
    """The public names of PySpark."""
    field = types.StructField("a", types.ArrayType(types.MapType(types.StringType(), types.StringType())))
    found = {*dir(field), *dir(field.dataType), *dir(field.dataType.elementType)}
    for module in (pyspark, pyspark.sql, pyspark.sql.functions, pyspark.sql.streaming):
        members = [getattr(module, name) for name in dir(module)]
        found |= {*dir(module), *(name for each in members if isinstance(each, type) for name in dir(each))}
    return {name for name in found if not name.startswith("_")}


def own_names() -> set[str]:
    """The names that the package itself gives to what begins with an underscore."""
    found = {"_replace"}
    for tree in TREES.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.attr if isinstance(node, ast.Attribute) else node.id)
    return found


class DescribeThePrivateClasses:
    def it_has_every_class_that_is_used(self):
        used = set()
        for text in SOURCES.values():
            used |= {f"org.apache.iceberg.{name}" for name in ICEBERG_CLASS.findall(text)}
            used |= {*NAMED_CLASS.findall(text)}
        imported = set(re.findall(r"^import (org\.apache\.[\w.]+);", JAVA, re.MULTILINE))
        public = {f"org.apache.iceberg.{name}" for name in PUBLIC} | {"org.apache.spark.sql.Encoders"}
        assert (used | imported) - public - {*PRIVATE_CLASSES} == set()

    def it_has_every_method_that_is_called_in_the_jvm(self):
        private = {name.rpartition(".")[2] for name in PRIVATE_ATTRIBUTES}
        listed = {method for methods in PRIVATE_CLASSES.values() for method in methods}
        of_own_java = set(re.findall(r"(\w+)\([^()]*\) \{", JAVA))
        public = {*of_pyspark(), *OF_ICEBERG, *OF_JAVA, *OF_SCALA, *OF_SPARK, *OF_KAFKA, *OF_PY4J, *of_own_java}
        unknown = {}
        for path, tree in TREES.items():
            # Elsewhere no object of the JVM is at hand.
            if not re.search(r"session\.jvm import|java_exception|\._j\w", SOURCES[path]):
                continue
            for node in attributes(tree):
                # PySpark's own names are spelled like Java's, other names of Python are not.
                is_of_java = re.search("^[a-z]+[A-Z]", node.attr) or names_before(node) & {*private, *listed}
                if is_of_java and node.attr not in {*public, *listed, *private}:
                    unknown[f"{path.relative_to(CORE)}:{node.lineno}"] = node.attr
        assert unknown == {}

    def it_has_no_method_that_is_not_used(self):
        text = "\n".join([*SOURCES.values(), JAVA])
        methods = {method for listed in PRIVATE_CLASSES.values() for method in listed}
        assert {method for method in methods if not re.search(rf'\.{method}\b|"{method}"', text)} == set()

    def it_has_every_private_attribute_of_pyspark_that_is_used(self):
        used = {node.attr for tree in TREES.values() for node in attributes(tree) if re.match("_[a-z]", node.attr)}
        for text in SOURCES.values():
            used |= set(re.findall(r'getattr\([\w.]+, "(_[a-z]\w+)"', text))
        listed = {name.rpartition(".")[2] for name in PRIVATE_ATTRIBUTES}
        assert (used - own_names() - listed, listed - used) == (set(), set())
