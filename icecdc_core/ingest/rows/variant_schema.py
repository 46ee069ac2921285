"""Reads the schema text of Spark's ``schema_of_variant`` functions as a Spark type."""

from __future__ import annotations

import re

from pyspark.sql import types as T

GUESSED = "icecdc.guessed"
"""Metadata key of a field whose type was guessed from values, so that nobody knows whether it is optional."""

_TOKEN = re.compile(r"`((?:[^`]|``)*)`|(\w+)(?:\((\d+),\s*(\d+)\))?|([<>:,])|\s+")
_SCALARS: dict[str, T.DataType] = {
    "BOOLEAN": T.BooleanType(),
    "BIGINT": T.LongType(),
    "DOUBLE": T.DoubleType(),
    "FLOAT": T.DoubleType(),
}
_LONG_DIGITS = 18


def variant_schema(text: str) -> T.StructType:
    """Return the schema that Spark's ``schema_of_variant`` functions wrote, by the rules of `infer_schema`.

    Example:
        >>> variant_schema("OBJECT<a: BIGINT, `b c`: ARRAY<DECIMAL(2,1)>, d: VOID>").simpleString()
        'struct<a:bigint,b c:array<double>>'
    """
    kind = _Parser(text).kind()
    return kind if isinstance(kind, T.StructType) else T.StructType()


class _Parser:
    """A recursive descent parser for Spark's text; an unknown type is None."""

    def __init__(self, text: str) -> None:
        self._tokens = [match for match in _TOKEN.finditer(text) if not match[0].isspace()]
        self._position = 0

    def kind(self) -> T.DataType | None:
        token = self._next()
        name = token[2].upper()
        if name == "OBJECT":
            return self._object()
        if name == "ARRAY":
            self._next()
            element = self.kind()
            self._next()
            return None if element is None else T.ArrayType(element)
        if name == "DECIMAL":
            whole = token[4] == "0" and int(token[3]) > _LONG_DIGITS
            return T.DecimalType(38, 0) if whole else T.DoubleType()
        return None if name == "VOID" else _SCALARS.get(name, T.StringType())

    def _object(self) -> T.DataType | None:
        fields = []
        self._next()
        while self._tokens[self._position][0] != ">":
            token = self._next()
            name = token[2] if token[1] is None else token[1].replace("``", "`")
            self._next()
            kind = self.kind()
            if kind is not None:
                fields.append(T.StructField(name, kind, True, {GUESSED: True}))
            if self._tokens[self._position][0] == ",":
                self._next()
        self._next()
        return T.StructType(fields) if fields else None

    def _next(self) -> re.Match[str]:
        self._position += 1
        return self._tokens[self._position - 1]
