"""Which fields of a document are new when the table got columns or fields inside them."""

from __future__ import annotations

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, MapType, NestedField, StringType, StructType
from pyspark.sql import types as T

from icecdc_core.table.select import FieldOrigin, Projection, new_document_fields

CITY, ZIP = NestedField(11, "city", StringType()), NestedField(12, "zip", StringType())
NAME = NestedField(22, "name", StringType())
MAP = MapType(31, StringType(), 32, StructType(NestedField(33, "inner", LongType())))
WAS = [NestedField(1, "id", LongType()), NestedField(2, "place", StructType(CITY))]
NOW = [
    WAS[0],
    NestedField(2, "place", StructType(CITY, ZIP)),
    NestedField(3, "a.b", LongType()),
    NestedField(4, "people", ListType(21, StructType(NAME))),
    NestedField(5, "scores", MAP),
]
TABLE = {"a.b", "people", "people.name", "scores"}


def new_fields(projection=None):
    was, now = ([field.model_dump() for field in Schema(*fields).fields] for fields in (WAS, NOW))
    return new_document_fields(was, now, projection)


def identity(column):
    return FieldOrigin(frozenset({column}), is_identity=True)


def projection(*stored, **origins):
    return Projection(lambda rows: rows, T.StructType(), (), frozenset(), stored, origins=origins)


class DescribeNewDocumentFields:
    def it_has_columns_and_fields_inside_them_by_their_path(self):
        assert new_fields() == {*TABLE, "place.zip"}

    @pytest.mark.parametrize(
        ("made", "expected"),
        [
            (projection("*", id=identity("id"), place=identity("place")), {"place.zip"}),
            (projection("place AS p", p=identity("place")), {"p.zip"}),
            (projection("*", **{"a.b": identity("a.b"), "people": identity("people")}), TABLE - {"scores"}),
            (projection("place.*", city=FieldOrigin(frozenset({"place"}))), {"zip"}),
            (projection("place.city AS zip", zip=FieldOrigin(frozenset({"place"}))), set()),
            (projection("lower(name) AS people", people=FieldOrigin(frozenset({"name"}))), set()),
        ],
    )
    def it_has_those_that_a_projection_takes_as_they_are(self, made, expected):
        assert new_fields(made) == expected
