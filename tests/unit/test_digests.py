"""Digests are equal for equal documents, whatever their writing, and differ for different ones."""

from __future__ import annotations

import pytest
from pyspark.sql.types import ArrayType, IntegerType, MapType, StringType, StructType

from icecdc_core.digests import digest

A = StructType().add("a", IntegerType())
SCHEMA = (
    StructType()
    .add("id", IntegerType())
    .add("s", StructType().add("a", IntegerType()).add("b", StringType()))
    .add("m", MapType(StringType(), IntegerType()))
    .add("l", ArrayType(A))
    .add("d", MapType(StringType(), A))
)
EQUAL = [
    ({"id": 1, "s": {"a": 1, "b": "x"}}, {"s": {"b": "x", "a": 1}, "id": 1}),
    ({"id": 1, "s": None}, {"id": 1}),
    ({"s": {"a": 1, "b": None}}, {"s": {"a": 1}}),
    ({"l": [{"a": None}]}, {"l": [{}]}),
    ({"d": {"k": {"a": None}}}, {"d": {"k": {}}}),
]
DIFFERENT = [
    ({"id": 1}, {"id": 2}),
    ({"m": {"k": None}}, {"m": {}}),
    ({"m": {}}, {"m": None}),
    ({"d": {"k": None}}, {"d": {}}),
    ({"l": [None]}, {"l": []}),
    ({"l": [{"a": 1}, {"a": 2}]}, {"l": [{"a": 2}, {"a": 1}]}),
    ({"s": {}}, {"s": None}),
    ({"unknown": {"k": None}}, {"unknown": {}}),
]


class DescribeDigest:
    @pytest.mark.parametrize(("one", "other"), EQUAL)
    def it_is_equal_for_equal_documents(self, one, other):
        assert digest(one, SCHEMA) == digest(other, SCHEMA)

    @pytest.mark.parametrize(("one", "other"), DIFFERENT)
    def it_differs_for_different_documents(self, one, other):
        assert digest(one, SCHEMA) != digest(other, SCHEMA)
