"""Avro records: reading them by the writer's schema, with its references and Connect's logical types."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.avro.functions import from_avro

from icecdc_core.errors import DependencyError
from icecdc_core.ingest.formats.logical_types import LogicalType
from icecdc_core.ingest.formats.registry import RegisteredSchema
from icecdc_core.session.compat import AVRO_READER
from icecdc_core.session.jars import avro_package
from icecdc_core.session.jvm import java_class

_NAMED = ("record", "error", "enum", "fixed")


class AvroSchema:
    """A writer's schema."""

    def __init__(self, spark: SparkSession, schema: RegisteredSchema) -> None:
        parsed = {name: json.loads(other.text) for name, other in schema.references.items()}
        whole = _References(parsed).inline(json.loads(schema.text), "")
        # Spark reads a malformed record as a record of nulls, but a malformed array as null.
        self.text = json.dumps({"type": "array", "items": whole})
        kind = spark.range(0).select(self.read(F.lit(None).cast("binary"))).schema[0].dataType
        self.logical_type = _LogicalTypes().of(whole, kind, "")

    def read(self, data: Column) -> Column:
        """Read a value in Avro's binary encoding; null if the bytes, to the last one, do not fit the schema."""
        # In that encoding an array is a count, that many values, and a zero.
        array = F.concat(F.lit(b"\2"), data, F.lit(b"\0"))
        values = from_avro(array, self.text, {"mode": "PERMISSIVE"})
        return F.when(F.size(values) == 1, F.get(values, F.lit(0)))


def require_avro(spark: SparkSession) -> None:
    """Check that the session has Spark's Avro reader."""
    try:
        java_class(spark, "java.lang.Thread").currentThread().getContextClassLoader().loadClass(AVRO_READER)
    except Exception as error:
        raise DependencyError(
            "The Spark session has no Avro reader",
            subject="spark.jars.packages",
            value=spark.conf.get("spark.jars.packages", ""),
            remedy="attach the library " + avro_package(spark.version) + " to the cluster, or stop the session",
        ) from error


class _References:
    """Replaces the first name of each referenced type by its definition, because Spark reads one schema text."""

    def __init__(self, references: dict[str, Any]) -> None:
        self._references, self._defined = references, set[str]()

    def inline(self, node: Any, namespace: str) -> Any:
        if isinstance(node, str):
            return self._name(node, namespace)
        if isinstance(node, list):
            return [self.inline(branch, namespace) for branch in node]
        kind = node.get("type")
        if kind in _NAMED:
            full, namespace = _full_name(node, namespace)
            self._defined.add(full)
        inner = {key: self.inline(node[key], namespace) for key in ("items", "values") if key in node}
        if kind in ("record", "error"):
            inner["fields"] = [{**field, "type": self.inline(field["type"], namespace)} for field in node["fields"]]
        elif kind not in (*_NAMED, "array", "map"):
            inner["type"] = self.inline(kind, namespace)
        return {**node, **inner}

    def _name(self, name: str, namespace: str) -> Any:
        for full in ([] if "." in name else [f"{namespace}.{name}"]) + [name]:
            if full in self._defined:
                return full
            if full in self._references:
                return self.inline(self._references[full], "")
        return name


class _LogicalTypes:
    """Finds the logical types in a schema, with the types that Spark reads by it."""

    def __init__(self) -> None:
        self._named: dict[str, tuple[Any, str]] = {}

    def of(self, node: Any, kind: T.DataType, namespace: str, optional: bool = False) -> LogicalType:
        if isinstance(node, list):
            branches = [branch for branch in node if branch != "null"]
            optional = optional or len(branches) < len(node)
            # Spark reads a union of several types as a struct, whose values are not converted.
            return self.of(branches[0], kind, namespace, optional) if len(branches) == 1 else LogicalType(kind)
        if isinstance(node, str):
            named = self._named.get(node) or self._named.get(f"{namespace}.{node}")
            return (
                LogicalType(kind, optional=optional) if named is None else self.of(named[0], kind, named[1], optional)
            )
        if node.get("type") in _NAMED:
            outer = namespace
            full, namespace = _full_name(node, namespace)
            self._named[full] = (node, outer)
        logical_type = partial(
            LogicalType, kind, node.get("connect.name", ""), dict(node.get("connect.parameters", {})), optional
        )
        if isinstance(kind, T.StructType) and "fields" in node:
            nodes = {field["name"]: field["type"] for field in node["fields"]}
            return logical_type({name: self.of(nodes[name], kind[name].dataType, namespace) for name in kind.names})
        if isinstance(kind, T.ArrayType) and "items" in node:
            return logical_type(element=self.of(node["items"], kind.elementType, namespace))
        if isinstance(kind, T.MapType) and "values" in node:
            return logical_type(value=self.of(node["values"], kind.valueType, namespace))
        if isinstance(node.get("type"), (dict, list)):
            return self.of(node["type"], kind, namespace, optional)
        return logical_type()


def _full_name(node: dict[str, Any], namespace: str) -> tuple[str, str]:
    name = node["name"]
    if "." in name:
        return name, name.rpartition(".")[0]
    own = node.get("namespace", namespace)
    return (f"{own}.{name}" if own else name), own
