"""Which changes of the schema change documents whose rows stay."""

from dataclasses import replace

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, LongType, NestedField, StructType
from pyspark.sql import types as T

from icecdc_core.table.schema import schema_change
from icecdc_core.table.select import Projection, UsedColumns
from icecdc_core.table.source import Selection, Source


def it_fits_the_position_of_a_row_into_an_id_however_long_the_path_of_the_file_is(spark):
    rows = spark.sql("SELECT 1 AS a, repeat('x', 600) AS _file, explode(array(1L, 2L)) AS _pos")
    found = {row[1] for row in Selection(("a",), with_row_position=True).select(rows).collect()}
    assert [len(each) for each in found] == [64, 64]


def of_schema(was, now):
    """The changes between two schemas of a column `s`."""
    one, other = (Schema(NestedField(1, "s", kind), schema_id=0).model_dump_json() for kind in (was, now))
    return schema_change(one, other)


INNER, LATER = NestedField(3, "a", LongType()), NestedField(4, "b", LongType())
ADDED_INSIDE = of_schema(
    StructType(NestedField(2, "inner", StructType(INNER))),
    StructType(NestedField(2, "inner", StructType(INNER, LATER))),
)


class DescribeRecomputes:
    @pytest.mark.parametrize(
        ("computed_from", "expected"),
        [({"s"}, True), ({"s.inner"}, True), ({"s.inner.a"}, False), ({"s.other"}, False), (set(), False)],
    )
    @pytest.mark.parametrize("where", ["select", "row_filter"])
    def it_is_so_when_a_struct_that_a_result_is_computed_from_gets_a_field(self, where, computed_from, expected):
        paths = frozenset(computed_from)
        projection = Projection(lambda rows: rows, T.StructType(), (), frozenset(), ("x",), paths)
        source = Source(None, None, None, ["s"], ["id"], T.StructType(), "", "main", [])
        if where == "select":
            source = replace(source, projection=projection)
        else:
            source = replace(source, row_filter="x", condition=UsedColumns(computed_from=paths))
        assert source.recomputes(ADDED_INSIDE) is expected

    def it_is_not_so_for_a_condition_on_a_decimal_that_gets_wider(self):
        wider = of_schema(DecimalType(5, 2), DecimalType(7, 2))
        source = Source(None, None, None, ["s"], ["id"], T.StructType(), "s > 1", "main", [])
        assert not replace(source, condition=UsedColumns(computed_from=frozenset({"s"}))).recomputes(wider)
