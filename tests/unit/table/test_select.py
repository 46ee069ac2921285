"""Which columns a row filter uses, and which fields of a document are new when the table got columns."""

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, MapType, NestedField, StringType, StructType
from pyspark.sql import types as T

from icecdc_core.table.select import Projection, condition_columns, new_document_fields

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
    was, now = (Schema(*fields).model_dump_json() for fields in (WAS, NOW))
    return new_document_fields(was, now, projection)


def projection(**repeated):
    return Projection(lambda rows: rows, T.StructType(), (), frozenset(), (), repeated=repeated)


class DescribeNewDocumentFields:
    def it_has_columns_and_fields_inside_them_by_their_path(self):
        assert new_fields() == {*TABLE, "place.zip"}

    @pytest.mark.parametrize(
        ("made", "expected"),
        [
            (projection(id="id", place="place"), {"place.zip"}),
            (projection(p="place"), {"p.zip"}),
            (projection(**{"a.b": "a.b", "people": "people"}), TABLE - {"scores"}),
            (projection(), set()),
        ],
    )
    def it_has_those_that_a_projection_takes_as_they_are(self, made, expected):
        assert new_fields(made) == expected


SCHEMA = T.StructType(
    [
        T.StructField("id", T.LongType()),
        T.StructField("b.c", T.StringType()),
        T.StructField("s", T.StructType([T.StructField("x", T.LongType())])),
        T.StructField('q`"\\uo%', T.DateType()),
        T.StructField("seen", T.TimestampType()),
    ]
)


@pytest.mark.parametrize(
    ("condition", "names", "computed_from"),
    [
        ("id > 5", {"id"}, {"id"}), ("ID > 5", {"id"}, None), ("s.x > 1", {"s"}, {"s.x"}),
        ("cast(s AS string) = '{1}'", {"s"}, {"s"}), ("to_json(struct(s.*)) = '{}'", {"s"}, {"s.x"}),
        ("`b.c` = 'id' and s.x in (1, 2, 3)", {"b.c", "s"}, None),
        ("`q``\"\\uo%` > '2020-01-01' or id is null", {'q`"\\uo%', "id"}, None),
        ("exists(array(id, 1), v -> v > s.x)", {"id", "s"}, None),
        ("case when id = 1 then `b.c` like '%x' else true end", {"id", "b.c"}, None), ("true", set(), None),
    ],
)  # fmt: skip
def it_finds_the_columns_that_a_row_filter_looks_at_and_the_fields_within_them(spark, condition, names, computed_from):
    found = condition_columns(spark, SCHEMA, condition)
    assert found.names == names
    assert computed_from in (None, found.computed_from)
