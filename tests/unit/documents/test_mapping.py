"""Each type has one explicit field, over which the user's mapping is merged; what cannot be a field is refused."""

import pytest
from pyspark.sql import types as T

from icecdc_core.documents.mapping import METADATA_FIELDS, check_supported, index_limits, index_mapping
from icecdc_core.errors import ConfigError, UnsupportedTypeError

KEYWORD = {"keyword": {"type": "keyword", "ignore_above": 8191}}
TEXT = {"type": "text", "fields": KEYWORD}
POINT = T.StructType().add("lat", T.DoubleType()).add("lon", T.DoubleType())
TAGS = T.MapType(T.StringType(), T.StringType())
SCHEMA = (
    T.StructType()
    .add("id", T.LongType())
    .add("title", T.StringType())
    .add("day", T.DateType())
    .add("at", T.TimestampType())
    .add("price", T.DecimalType(9, 2))
    .add("flag", T.BooleanType())
    .add("place", T.StructType().add("city", T.StringType()).add("pin", POINT).add("tags", TAGS))
    .add("people", T.ArrayType(T.StructType().add("name", T.StringType()).add("age", T.IntegerType())))
    .add("vector", T.ArrayType(T.FloatType()))
    .add("matrix", T.ArrayType(T.ArrayType(T.FloatType())))
    .add("high", T.StructType([*POINT.fields, T.StructField("alt", T.DoubleType())]))
    .add("scores", T.MapType(T.StringType(), T.FloatType()))
    .add("any", T.VariantType())
    .add("a.b", T.LongType())
)


def merged(mapping):
    return index_mapping(SCHEMA, mapping)["properties"]


def changed(mapping):
    generated = index_mapping(SCHEMA)["properties"]
    return {name: field for name, field in merged(mapping).items() if field != generated.get(name)}


class DescribeMerging:
    @pytest.mark.parametrize(
        ("mapping", "expected"),
        [
            ({}, {}),
            ({"title": {"type": "keyword"}}, {"title": {"type": "keyword"}}),
            ({"title": {"analyzer": "english"}}, {"title": {**TEXT, "analyzer": "english"}}),
            ({"title": {"fields": {"raw": {"type": "wildcard"}}}},
                {"title": {"type": "text", "fields": {**KEYWORD, "raw": {"type": "wildcard"}}}}),
            ({"title": {"fields": {"keyword": {"normalizer": "lowercase"}}}},
                {"title": {"type": "text", "fields": {"keyword": {**KEYWORD["keyword"], "normalizer": "lowercase"}}}}),
            ({"title.keyword": {"type": "keyword"}}, {}),
            ({"title.keyword": {"type": "wildcard"}},
                {"title": {"type": "text", "fields": {"keyword": {"type": "wildcard"}}}}),
            ({"scores": {"type": "rank_features"}},) * 2,
            ({"a.b": {"type": "keyword"}},) * 2,
            ({"a": {"properties": {"b": {"type": "keyword"}}}}, {"a.b": {"type": "keyword"}}),
            ({"day": {"type": "date"}}, {}),
            ({"day": {"store": True}}, {"day": {"type": "date", "format": "strict_date", "store": True}}),
            ({"any": {"type": "object", "dynamic": True, "properties": {"x": {"type": "long"}}}},) * 2,
            ({"place": {"enabled": False}}, {"place": {"type": "object", "enabled": False}}),
        ],
    )  # fmt: skip
    def it_replaces_a_field_by_one_of_another_type_and_adds_options_otherwise(self, mapping, expected):
        assert changed(mapping) == expected

    def it_keeps_the_fields_of_a_struct_that_becomes_nested_and_none_if_it_becomes_one_value(self):
        mapping = {"people": {"type": "nested", "properties": {"age": {"type": "short"}}}}
        people = merged(mapping)["people"]
        assert mapping == {"people": {"type": "nested", "properties": {"age": {"type": "short"}}}}  # as it was given
        assert people == {"type": "nested", "dynamic": "strict", "properties": {"name": TEXT, "age": {"type": "short"}}}
        pin = {"type": "geo_point", "ignore_z_value": True}
        assert merged({"place.pin": pin})["place"]["properties"]["pin"] == pin


class DescribeRefusals:
    """What no server would refuse; tests/integration/documents/test_types.py has the rest."""

    @pytest.mark.parametrize(
        ("mapping", "message"),
        [
            ({"place.town": {"type": "keyword"}}, r"'place\.town', which no document has"),
            ({"title.raw": {"type": "keyword"}}, r"'title\.raw', which no document has.*with `fields`"),
            ({"properties": {"title": {"type": "keyword"}}}, "'properties', which no document has"),
            ({"title": "keyword"}, "of 'title' is not an object"),
            ({"place": {"properties": []}}, "of 'place' is not an object"),
            ({"title": {"fields": None}}, "of 'title' is not an object"),
            ({"title": {"fields": {"raw": 5}}}, "of 'title' is not an object"),
            ({"title": {"copy_to": 5}, "titel": {}}, "'titel', which no document has"),
            ({"place.city": {}, "place": {"properties": {"city": {}}}}, r"'place\.city' twice"),
        ],
    )
    def it_names_the_field(self, mapping, message):
        with pytest.raises(ConfigError, match=message) as raised:
            merged(mapping)
        assert (raised.value.subject, bool(raised.value.remedy)) == ("mapping", True)


def struct(**fields):
    return T.StructType([T.StructField(name, data_type) for name, data_type in fields.items()])


class DescribeCheckSupported:
    def it_names_the_column_whose_type_a_document_cannot_have(self):
        for data_type, column in (
            (T.ArrayType(T.CalendarIntervalType()), "v"),
            (struct(a=struct(b=T.CalendarIntervalType())), "v.a.b"),
            (T.MapType(T.StringType(), T.CalendarIntervalType()), "v.value"),
            (T.MapType(T.DayTimeIntervalType(), T.LongType()), "v.key"),
        ):
            with pytest.raises(UnsupportedTypeError) as raised:
                check_supported(struct(v=data_type))
            assert raised.value.value == column
            assert "columns parameter" in raised.value.remedy

    def it_accepts_and_refuses_names_as_opensearch_does(self):
        def of(names):
            return T.StructType([T.StructField(name, T.LongType()) for name in names])

        accepted = [" "], ["A", "a"], ["properties"], ["_tier"], ["@timestamp"], ["a.b", "a.c"]
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
