"""Classes of the session's JVM, and our own ones, which are compiled in it."""

from __future__ import annotations

from importlib import resources
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

# Characters that surely fit, however many bytes each takes, ...
_PART = 2500
# ... and as many as take about as long in parts as the 40 ms that they spare.
_LONG = 1_000_000

_compiled: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()


def java_class(spark: SparkSession, name: str) -> Any:
    """Return a class of Spark's JVM, as the gateway shows it, by its whole name.

    Of ``spark._jvm.org.apache.iceberg.Schema`` the gateway asks for every part in turn whether it is a class, and for
    each that is none the JVM looks into all its jars: a third of what a driver with little to do would do.
    """
    return getattr(spark._jvm, name)


def iceberg_class(spark: SparkSession, name: str) -> Any:
    """Return a class of Iceberg's Java library, by its name below ``org.apache.iceberg``."""
    return java_class(spark, f"org.apache.iceberg.{name}")


def file_lists(spark: SparkSession) -> Any:
    """Return the JVM's ``FileLists``, of ``FileLists.java`` beside this module."""
    return own_object(spark, "FileLists")


def own_object(spark: SparkSession, name: str) -> Any:
    """Return an object of a Java class of ours, whose source is beside this module.

    Spark brings the compiler. It takes a quarter of a second once in a JVM; a session whose classes come from elsewhere
    (a Databricks notebook with jars of its own) gets another one.

    Args:
        spark: The session.
        name: The class.
    """
    gateway: Any = spark.sparkContext._gateway
    loader = java_class(spark, "java.lang.Thread").currentThread().getContextClassLoader()
    compiled = _compiled.setdefault(gateway, {})
    known = compiled.get(name)
    if known is None or not known.getClass().getClassLoader().getParent().equals(loader):
        compiler = java_class(spark, "org.codehaus.janino.SimpleCompiler")()
        compiler.setParentClassLoader(loader)
        compiler.cook(resources.files("icecdc_core.session").joinpath(f"{name}.java").read_text(encoding="utf-8"))
        no_classes = gateway.new_array(java_class(spark, "java.lang.Class"), 0)
        no_values = gateway.new_array(java_class(spark, "java.lang.Object"), 0)
        made = compiler.getClassLoader().loadClass(name).getConstructor(no_classes)
        known = compiled[name] = made.newInstance(no_values)
    return known


def taken(handed: Any) -> str:
    """Return a text of ``FileLists``, which hands over a longer one as a Java object, to be taken in parts.

    An answer of the gateway that exceeds the 8 KB of its buffer is sent in two, and the second waits for the other
    side's TCP to acknowledge the first, which it delays by 40 ms.
    """
    if isinstance(handed, str):
        return handed
    length = int(handed.length())
    part = _PART if length < _LONG else length
    return "".join(handed.substring(start, min(start + part, length)) for start in range(0, length, part))
