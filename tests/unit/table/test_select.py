"""Which columns are used, which fields of a document are new, and what a change of the schema means for an index."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, ListType, LongType, MapType, NestedField, StringType, StructType
from pyspark.sql import types as T

from icecdc_core.table.schema_changes import SchemaChange, schema_change
from icecdc_core.table.select import Projection, UsedColumns, condition_columns, new_document_fields
from icecdc_core.table.source import Embeddings, Selection, Source
from icecdc_core.table.vectors import checked_vectors

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


def projection(stored=(), computed_from=frozenset(), **repeated):
    return Projection(lambda rows: rows, T.StructType(), (), frozenset(), stored, computed_from, repeated)


def it_finds_new_fields_of_documents_by_their_path_and_those_that_a_projection_takes_as_they_are():
    was, now = (Schema(*fields).model_dump_json() for fields in (WAS, NOW))
    for made, expected in (
        (None, {*TABLE, "place.zip"}),
        (projection(id="id", place="place"), {"place.zip"}),
        (projection(p="place"), {"p.zip"}),
        (projection(**{"a.b": "a.b", "people": "people"}), TABLE - {"scores"}),
        (projection(), set()),
    ):
        assert new_document_fields(was, now, made) == expected


SCHEMA = T.StructType(
    [
        T.StructField("id", T.LongType()),
        T.StructField("b.c", T.StringType()),
        T.StructField("s", T.StructType([T.StructField("x", T.LongType())])),
        T.StructField('q`"\\uo%', T.DateType()),
        T.StructField("seen", T.TimestampType()),
    ]
)


def it_finds_the_columns_that_a_row_filter_looks_at_and_the_fields_within_them(spark):
    for condition, names, computed_from in (
        ("id > 5", {"id"}, {"id"}), ("ID > 5", {"id"}, None), ("s.x > 1", {"s"}, {"s.x"}),
        ("cast(s AS string) = '{1}'", {"s"}, {"s"}), ("to_json(struct(s.*)) = '{}'", {"s"}, {"s.x"}),
        ("`b.c` = 'id' and s.x in (1, 2, 3)", {"b.c", "s"}, None),
        ("`q``\"\\uo%` > '2020-01-01' or id is null", {'q`"\\uo%', "id"}, None),
        ("exists(array(id, 1), v -> v > s.x)", {"id", "s"}, None),
        ("case when id = 1 then `b.c` like '%x' else true end", {"id", "b.c"}, None), ("true", set(), None),
    ):  # fmt: skip
        found = condition_columns(spark, SCHEMA, condition)
        assert (found.names, computed_from in (None, found.computed_from)) == (names, True), condition


def it_fits_the_position_of_a_row_into_an_id_however_long_the_path_of_the_file_is(spark):
    rows = spark.sql("SELECT 1 AS a, repeat('x', 600) AS _file, explode(array(1L, 2L)) AS _pos")
    found = {row[1] for row in Selection(("a",), with_row_position=True).select(rows).collect()}
    assert [len(each) for each in found] == [64, 64]


def of_schema(was, now):
    """The changes between two schemas of a column `s`."""
    one, other = (Schema(NestedField(1, "s", kind), schema_id=0).model_dump_json() for kind in (was, now))
    return list(schema_change(one, other))


INNER, LATER = NestedField(3, "a", LongType()), NestedField(4, "b", LongType())
ADDED_INSIDE = of_schema(
    StructType(NestedField(2, "inner", StructType(INNER))),
    StructType(NestedField(2, "inner", StructType(INNER, LATER))),
)


SOURCE = Source(None, None, None, ["a", "s"], ["a"], T.StructType(), "", "main", [])


class DescribeRecomputes:
    @pytest.mark.parametrize(
        ("computed_from", "expected"),
        [({"s"}, True), ({"s.inner"}, True), ({"s.inner.a"}, False), ({"s.other"}, False), (set(), False)],
    )
    @pytest.mark.parametrize("where", ["select", "row_filter"])
    def it_is_so_when_a_struct_that_a_result_is_computed_from_gets_a_field(self, where, computed_from, expected):
        paths = frozenset(computed_from)
        given = {"row_filter": "x", "condition": UsedColumns(computed_from=paths)}
        if where == "select":
            given = {"projection": projection(("x",), paths)}
        assert replace(SOURCE, **given).recomputes(ADDED_INSIDE) is expected

    def it_is_so_when_columns_move_that_a_star_in_a_text_takes_in(self):
        moved = SchemaChange("reordered", "a", "was moved", additive=True)
        stars = {"to_json(struct(*))": True, "hash(a, `a-b`.*)": True, "(*, 1)": True, "a * 2": False, "(a*b)": False}
        stars |= {"*": False, "* EXCEPT (b)": False}
        for text, expected in stars.items():
            texts = Embeddings("t", {"v": SimpleNamespace(text=text)}, {}, frozenset({"a", "b"}))
            assert replace(SOURCE, embeddings=texts).recomputes([moved]) is expected

    def it_is_not_so_for_a_condition_on_a_decimal_that_gets_wider(self):
        wider = of_schema(DecimalType(5, 2), DecimalType(7, 2))
        condition = UsedColumns(computed_from=frozenset({"s"}))
        assert not replace(SOURCE, row_filter="s > 1", condition=condition).recomputes(wider)


def field(key, name, kind="long", required=False, **more):
    return {"id": key, "name": name, "required": required, "type": kind, **more}


def schema(*fields):
    return json.dumps({"type": "struct", "schema-id": 0, "identifier-field-ids": [], "fields": list(fields)})


def struct(*fields):
    return {"type": "struct", "fields": list(fields)}


A, B = field(1, "a"), field(2, "b")


@pytest.mark.parametrize(
    ("old", "new", "expected", "additive"),
    [
        ([A], [A, field(2, "b", **{"initial-default": 5})],
            ["column 'b' was added with the default 5 for old rows"], False),
        ([A], [A, field(2, "b", **{"write-default": 5})], ["column 'b' was added"], True),
        ([A, B], [A, field(3, "b")], ["column 'b' was dropped and another column took its name",
            "column 'b' was added"], False),
        ([A, B], [field(1, "b"), field(2, "a")], ["column 'a' was renamed to 'b'", "column 'b' was renamed to 'a'"],
            False),
        ([A], [field(1, "A")], ["column 'a' was renamed to 'A'"], False),
        ([A, B], [A, field(3, "c"), B], ["column 'c' was added"], True),
        ([field(1, "a", "int")], [A], ["column 'a' was widened from int to long"], False),
        ([field(1, "a", "decimal(9, 2)")], [field(1, "a", "decimal(12,2)")],
            ["column 'a' was widened from decimal(9,2) to decimal(12,2)"], True),
        ([field(1, "a", "decimal(9,2)")], [field(1, "a", "decimal(9,3)")],
            ["column 'a' changed from decimal(9,2) to decimal(9,3)"], False),
        ([field(1, "s", struct(field(2, "x")))], [field(1, "t", struct(field(2, "x")))],
            ["column 's' was renamed to 't'"], False),
    ],
)  # fmt: skip
def it_says_what_changed_and_whether_an_index_can_follow(old, new, expected, additive):
    changes = list(schema_change(schema(*old), schema(*new)))
    assert [str(change) for change in changes] == expected
    assert all(change.additive for change in changes) is additive


@pytest.mark.filterwarnings("ignore:overflow")
def it_takes_lists_and_arrays_and_refuses_anything_else():
    lists, arrays = [[1, 2], [3.5, 4]], [np.array([1, 2]), np.array([3.5, 4], dtype="float32")]
    for found in (pd.Series(lists), pd.Series(arrays), np.array(lists)):
        assert checked_vectors(found, 2, 2).to_pylist() == [[1.0, 2.0], [3.5, 4.0]]
    for second, problem in (
        *(([], "1 vectors of 2 texts"), ([[1, 2, 3]], "of 3 numbers, not 2"), ([["a", 2]], "could not convert")),
        *(([[1, number]], "not finite") for number in (float("nan"), 1e300, None)),
    ):
        with pytest.raises(ValueError, match=problem):
            checked_vectors(pd.Series([[1, 2], *second]), 2, 2)
