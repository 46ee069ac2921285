"""Every type has one explicit field; what a document cannot hold is refused with its name."""

import pytest
from pyspark.sql import types as T

from icecdc_core.documents.mapping import METADATA_FIELDS, check_supported, index_limits, index_mapping
from icecdc_core.errors import UnsupportedTypeError

TEXT = {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 8191}}}
KEPT = {"type": "object", "enabled": False}
TIME = {"type": "date", "format": "strict_date_optional_time_nanos"}


def struct(**fields):
    return T.StructType([T.StructField(name, data_type) for name, data_type in fields.items()])


@pytest.mark.parametrize(
    ("data_type", "expected"),
    [
        *((each, {"type": "integer"}) for each in (T.ByteType(), T.ShortType(), T.IntegerType())),
        (T.BooleanType(), {"type": "boolean"}),
        (T.LongType(), {"type": "long"}),
        (T.FloatType(), {"type": "float"}),
        *((each, {"type": "double"}) for each in (T.DoubleType(), T.DecimalType(38, 10))),
        (T.StringType(), TEXT),
        (T.DateType(), {"type": "date", "format": "strict_date"}),
        *((each, TIME) for each in (T.TimestampType(), T.TimestampNTZType())),
        (T.BinaryType(), {"type": "binary"}),
        *((each, KEPT) for each in (T.VariantType(), T.ArrayType(T.VariantType()), T.NullType())),
        (T.ArrayType(T.ArrayType(T.LongType())), {"type": "long"}),
        (T.MapType(T.DateType(), struct(a=T.LongType())), {"type": "flat_object"}),
        (struct(), {"type": "object", "dynamic": "strict", "properties": {}}),
        (T.ArrayType(struct(a=T.LongType(), b=struct(c=T.DateType()))),
            {"type": "object", "dynamic": "strict", "properties": {"a": {"type": "long"},
            "b": {"type": "object", "dynamic": "strict",
            "properties": {"c": {"type": "date", "format": "strict_date"}}}}}),
    ],
)  # fmt: skip
def it_maps_every_type_explicitly(data_type, expected):
    assert index_mapping(struct(v=data_type)) == {"dynamic": "strict", "properties": {"v": expected}}


class DescribeCheckSupported:
    @pytest.mark.parametrize(
        ("data_type", "column"),
        [
            (T.CalendarIntervalType(), "v"),
            (T.ArrayType(T.CalendarIntervalType()), "v"),
            (struct(a=struct(b=T.CalendarIntervalType())), "v.a.b"),
            (T.MapType(T.StringType(), T.CalendarIntervalType()), "v.value"),
            (T.MapType(T.DayTimeIntervalType(), T.LongType()), "v.key"),
        ],
    )
    def it_names_the_column_whose_type_a_document_cannot_have(self, data_type, column):
        with pytest.raises(UnsupportedTypeError) as raised:
            check_supported(struct(v=data_type))
        assert raised.value.value == column
        assert "columns parameter" in raised.value.remedy

    def it_accepts_and_refuses_names_as_opensearch_does(self):
        def of(names):
            return T.StructType([T.StructField(name, T.LongType()) for name in names])

        accepted = [
            [" "], ["a b"], [" a"], ["é"], ["A", "a"], ["a`b"], ['a"b'], ["a\\b"], ["a*b"], ["a\nb"], ["type"],
            ["properties"], ["_type"], ["_tier"], ["_foo"], ["@timestamp"], ["a.b"], ["a.b", "a.c"], ["a.b.c", "d"],
        ]  # fmt: skip
        refused = [
            [""], ["."], [".."], [".a"], ["a."], ["a..b"], ["a. "], ["a", "a.b"], ["a.b", "a"], ["a.b.c", "a.b"],
            ["_change_type"], ["_change_ordinal"], ["_commit_snapshot_id"], ["_row_position"], ["_icecdc_hash"],
            ["_id.a"], *([name] for name in sorted(METADATA_FIELDS)),
        ]  # fmt: skip
        # Metadata names are fine inside a struct.
        for schema in (*map(of, accepted), *(struct(v=of([name])) for name in ("_id", "_source", "_change_type"))):
            check_supported(schema)
        for names in refused:
            with pytest.raises(UnsupportedTypeError):
                check_supported(of(names))
        for names in ([""], ["a", "a.b"], ["a."]):
            with pytest.raises(UnsupportedTypeError, match="'v\\."):
                check_supported(struct(v=T.ArrayType(of(names))))


def it_makes_room_for_a_wide_or_deep_table():
    wide = T.StructType([T.StructField(f"c{number}", T.StringType()) for number in range(600)])
    assert (index_limits(wide), index_limits(wide[:300])) == ({"mapping.total_fields.limit": 2400}, {})
    deep = T.LongType()
    for _ in range(24):
        deep = struct(s=deep)
    assert index_limits(deep) == {"mapping.depth.limit": 48}
