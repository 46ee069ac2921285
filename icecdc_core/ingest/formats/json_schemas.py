"""Converts a JSON Schema to a Spark schema: types and required fields; other rules have no counterpart in Spark."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import unquote

from pyspark.sql import types as T

from icecdc_core.ingest.formats.registry import RegisteredSchema

_INTEGERS = {"int8": T.IntegerType(), "int16": T.IntegerType(), "int32": T.IntegerType()}
_DEPTH = 50


def spark_struct(schema: RegisteredSchema) -> T.StructType | None:
    """Return the columns of an object with this schema; None if the schema does not describe an object.

    - ``integer`` is ``bigint``, or ``int`` by Connect's ``connect.type``; ``number`` is ``double``
    - ``string`` with the format ``date`` or ``date-time`` is a date or timestamp
    - an object with ``properties`` is a struct, an object with only ``additionalProperties`` is a map
    - a ``required`` field that cannot be null is required
    - ``$ref`` is followed, within the schema and to its references
    - a value of several types, or of any type, is text

    Ranges, lengths, patterns, ``enum``, ``additionalProperties: false`` and conditions are ignored.
    """
    kind, _ = _Reader(schema).of(json.loads(schema.text), json.loads(schema.text), 0)
    return kind if isinstance(kind, T.StructType) else None


class _Reader:
    def __init__(self, schema: RegisteredSchema) -> None:
        self._references = {name: json.loads(other.text) for name, other in schema.references.items()}

    def of(self, node: Any, root: Any, depth: int) -> tuple[T.DataType, bool]:
        """The type of a node, and whether it allows null."""
        if not isinstance(node, dict) or depth > _DEPTH:
            return T.StringType(), True
        if "$ref" in node:
            return self.of(*self._target(node["$ref"], root), depth + 1)
        kinds = node.get("type")
        if isinstance(kinds, list):
            others = [kind for kind in kinds if kind != "null"]
            kind = self._single({**node, "type": others[0]}, root, depth) if len(others) == 1 else T.StringType()
            return kind, "null" in kinds
        for keyword in ("oneOf", "anyOf"):
            if keyword in node:
                choices = [choice for choice in node[keyword] if choice != {"type": "null"}]
                kind = self.of(choices[0], root, depth + 1)[0] if len(choices) == 1 else T.StringType()
                return kind, len(choices) < len(node[keyword])
        return self._single(node, root, depth), kinds == "null" or (kinds is None and "properties" not in node)

    def _single(self, node: dict[str, Any], root: Any, depth: int) -> T.DataType:
        kind = node.get("type")
        if kind == "object" or "properties" in node:
            return self._object(node, root, depth)
        if kind == "array":
            items = node.get("items")
            element, nullable = self.of(items, root, depth + 1) if isinstance(items, dict) else (T.StringType(), True)
            return T.ArrayType(element, nullable)
        if kind == "integer":
            return _INTEGERS.get(node.get("connect.type", ""), T.LongType())
        if kind == "string":
            formats: dict[str, T.DataType] = {"date": T.DateType(), "date-time": T.TimestampType()}
            return formats.get(node.get("format", ""), T.StringType())
        simple: dict[Any, T.DataType] = {"number": T.DoubleType(), "boolean": T.BooleanType()}
        return simple.get(kind, T.StringType())

    def _object(self, node: dict[str, Any], root: Any, depth: int) -> T.DataType:
        required = set(node.get("required", ()))
        fields = []
        for name, property_ in node.get("properties", {}).items():
            kind, nullable = self.of(property_, root, depth + 1)
            fields.append(T.StructField(name, kind, nullable or name not in required))
        if fields:
            return T.StructType(fields)
        values = node.get("additionalProperties")
        if isinstance(values, dict):
            return T.MapType(T.StringType(), *self.of(values, root, depth + 1))
        return T.StringType()

    def _target(self, reference: str, root: Any) -> tuple[Any, Any]:
        name, _, pointer = reference.partition("#")
        root = self._references.get(name) if name else root
        node = root
        for part in filter(None, unquote(pointer).split("/")):
            key = part.replace("~1", "/").replace("~0", "~")
            node = node.get(key) if isinstance(node, dict) else None
        return node, root
