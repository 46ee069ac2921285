"""The user's mapping is merged over the generated one; a field that nothing makes or accepts is refused."""

import pytest
from pyspark.sql import types as T

from icecdc_core.documents.mapping import index_mapping
from icecdc_core.errors import ConfigError

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


def merged(mapping, *pipeline_fields):
    return index_mapping(SCHEMA, mapping, pipeline_fields)["properties"]


def changed(mapping, *pipeline_fields):
    """The fields that differ from the generated ones."""
    generated = index_mapping(SCHEMA)["properties"]
    return {name: field for name, field in merged(mapping, *pipeline_fields).items() if field != generated.get(name)}


class DescribeMerging:
    @pytest.mark.parametrize(
        ("mapping", "expected"),
        [
            ({}, {}),
            ({"title": {"type": "keyword"}}, {"title": {"type": "keyword"}}),
            ({"title": {"type": "text", "analyzer": "english"}}, {"title": {**TEXT, "analyzer": "english"}}),
            ({"title": {"analyzer": "english"}}, {"title": {**TEXT, "analyzer": "english"}}),
            (
                {"title": {"fields": {"raw": {"type": "wildcard"}}}},
                {"title": {"type": "text", "fields": {**KEYWORD, "raw": {"type": "wildcard"}}}},
            ),
            (
                {"title": {"fields": {"keyword": {"normalizer": "lowercase"}}}},
                {"title": {"type": "text", "fields": {"keyword": {**KEYWORD["keyword"], "normalizer": "lowercase"}}}},
            ),
            ({"title.keyword": {"type": "keyword"}}, {}),
            (
                {"title.keyword": {"type": "wildcard"}},
                {"title": {"type": "text", "fields": {"keyword": {"type": "wildcard"}}}},
            ),
            ({"price": {"type": "scaled_float", "scaling_factor": 100}},) * 2,
            ({"scores": {"type": "rank_features"}},) * 2,
            ({"vector": {"type": "knn_vector", "dimension": 3}},) * 2,
            ({"a.b": {"type": "keyword"}},) * 2,
            ({"a": {"properties": {"b": {"type": "keyword"}}}}, {"a.b": {"type": "keyword"}}),
            ({"day": {"type": "date"}}, {}),
            ({"day": {"store": True}}, {"day": {"type": "date", "format": "strict_date", "store": True}}),
            ({"nick": {"type": "alias", "path": "title"}},) * 2,
            (
                {"any": {"type": "object", "dynamic": True, "properties": {"x": {"type": "long"}}}},
                {"any": {"type": "object", "dynamic": True, "properties": {"x": {"type": "long"}}}},
            ),
            ({"place": {"enabled": False}}, {"place": {"type": "object", "enabled": False}}),
        ],
    )  # fmt: skip
    def it_replaces_a_field_by_one_of_another_type_and_adds_options_otherwise(self, mapping, expected):
        assert changed(mapping) == expected

    @pytest.mark.parametrize(
        "mapping",
        [
            {"place.city": {"type": "keyword"}},
            {"place": {"properties": {"city": {"type": "keyword"}}}},
            {"place": {"type": "object", "properties": {"city": {"type": "keyword"}}}},
        ],
    )
    def it_merges_fields_inside_a_struct_by_path_and_by_properties(self, mapping):
        place = merged(mapping)["place"]
        assert (place["type"], place["dynamic"], place["properties"]["city"]) == (
            "object",
            "strict",
            {"type": "keyword"},
        )
        assert set(place["properties"]) == {"city", "pin", "tags"}

    def it_keeps_the_fields_of_a_struct_that_becomes_nested(self):
        people = merged({"people": {"type": "nested"}, "people.age": {"type": "short"}})["people"]
        assert people == {
            "type": "nested",
            "dynamic": "strict",
            "properties": {"name": TEXT, "age": {"type": "short"}},
        }

    def it_leaves_nothing_of_a_struct_that_becomes_one_value(self):
        pin = {"type": "geo_point", "ignore_z_value": True}
        assert merged({"place.pin": pin})["place"]["properties"]["pin"] == pin

    def it_adds_the_targets_of_copy_to_and_the_fields_of_a_pipeline(self):
        mapping = {
            "title": {"copy_to": "all"},
            "place.city": {"copy_to": ["all"]},
            "all": {"type": "text"},
            "tags": {"properties": {"source": {"type": "keyword"}}},
            "place.hash": {"type": "keyword"},
        }
        found = merged(mapping, "tags", "place.hash")
        assert (found["all"], found["tags.source"]) == ({"type": "text"}, {"type": "keyword"})
        assert found["place"]["properties"]["hash"] == {"type": "keyword"}

    def it_does_not_change_what_it_is_given(self):
        mapping = {"people": {"type": "nested", "properties": {"age": {"type": "short"}}}}
        merged(mapping)
        assert mapping == {"people": {"type": "nested", "properties": {"age": {"type": "short"}}}}


class DescribeRefusals:
    @pytest.mark.parametrize(
        ("mapping", "message"),
        [
            ({"titel": {"type": "keyword"}}, r"'titel', which no document has.*did you mean 'title'"),
            ({"place.town": {"type": "keyword"}}, r"'place\.town', which no document has"),
            ({"title.raw": {"type": "keyword"}}, r"'title\.raw', which no document has.*with `fields`"),
            ({"properties": {"title": {"type": "keyword"}}}, "give the fields directly"),
            ({"_source": {"enabled": False}}, "the whole document in `_source`"),
            ({"dynamic": True}, "set `dynamic` on an object"),
            ({"dynamic_templates": []}, "no template is needed"),
            ({"_routing": {"required": True}}, "documents have no routing"),
            ({"title": "keyword"}, "mapping of 'title' is not an object"),
            ({"place": {"properties": []}}, "mapping of 'place' is not an object"),
            ({"place..city": {"type": "keyword"}}, "empty part"),
            ({"place.city": {}, "place": {"properties": {"city": {}}}}, r"'place\.city' twice"),
            ({"title": {"copy_to": "all"}}, r"copied to 'all', which has no mapping.*\"type\": \"text\""),
            ({"title": {"copy_to": "all"}, "all": {"analyzer": "english"}}, "'all' has no type"),
            ({"nick": {"type": "alias", "path": "titel"}}, "alias 'nick' is for 'titel', which is no field"),
            ({"title": {"type": "alias", "path": "id"}}, "'title' of the type string cannot be .* alias"),
            ({"scores.x": {"type": "long"}}, "inside 'scores', which is a field of the type flat_object"),
            ({"any.x": {"type": "long"}}, "inside 'any'"),
            ({"id": {"type": "geo_point"}}, r"'id' of the type bigint cannot be a field of the type geo_point"),
            ({"place": {"type": "geo_point"}}, "needs the fields lat and lon"),
            ({"place.pin": {"type": "integer_range"}}, "gte, gt, lte and lt"),
            ({"flag": {"type": "long"}}, "'flag' of the type boolean"),
            ({"title": {"type": "nested"}}, "'title' of the type string"),
            ({"place": {"type": "keyword"}}, "'place' of the type struct"),
            ({"people.age": {"type": "ip"}}, r"'people\.age' of the type int"),
            ({"id": {"type": "knn_vector", "dimension": 3}}, "array of number"),
            ({"vector": {"type": "knn_vector"}}, "no valid dimension"),
            ({"vector": {"type": "knn_vector", "dimension": 0}}, "no valid dimension"),
            ({"vector": {"type": "knn_vector", "dimension": "three"}}, "no valid dimension"),
            ({"vector": {"type": "knn_vector", "dimension": True}}, "no valid dimension"),
            ({"matrix": {"type": "knn_vector", "dimension": 3}}, r"'matrix' of the type array<array<float>>"),
            ({"vector": {"fields": {"v": {"type": "knn_vector", "dimension": 3}}}}, r"'vector\.v' is a multi-field"),
            ({"high": {"type": "geo_point"}}, "the fields lat and lon, and no others"),
            ({"scores": {"type": "object"}}, "'scores' of the type map.*keys have no mapping"),
            ({"scores": {"type": "nested", "dynamic": "strict"}}, "'scores' of the type map.*keys have no mapping"),
            ({"place.tags": {"type": "object"}}, r"'place\.tags' of the type map"),
            ({"vector": {"type": "geo_shape"}}, "'vector' of the type array<float>"),
            ({"day": {"format": "epoch_millis"}}, r"cannot read strings such as 2026-01-31.*date_format\(\)"),
            ({"at": {"type": "date", "format": "yyyy-MM-dd"}}, r"cannot read strings such as 2026-01-31T12"),
        ],
    )  # fmt: skip
    def it_names_the_field_and_the_remedy(self, mapping, message):
        with pytest.raises(ConfigError, match=message) as raised:
            merged(mapping)
        assert (raised.value.subject, bool(raised.value.remedy)) == ("mapping", True)

    @pytest.mark.parametrize(
        ("mapping", "field", "message"),
        [
            ({}, "embedding", "'embedding' has no mapping"),
            ({"tags.other": {"type": "keyword"}}, "tags.source", "'tags.other', which no document has"),
            ({}, "title", "'title' is a column"),
            ({}, "place.city", "'place.city' is a column"),
            ({}, "a", "'a' is a column"),
            ({}, "scores.x", "'scores.x' is inside the column 'scores'"),
            ({}, "any.x", "'any.x' is inside the column 'any'"),
        ],
    )
    def it_refuses_pipeline_fields_that_no_mapping_accepts_or_that_are_columns(self, mapping, field, message):
        with pytest.raises(ConfigError, match=message):
            merged(mapping, field)


class DescribeFieldsThatFit:
    @pytest.mark.parametrize(
        "mapping",
        [
            {"title": {"type": "geo_point"}},
            {"vector": {"type": "geo_point"}},
            {"title": {"type": "geo_shape"}},
            {"title": {"type": "date", "format": "dd/MM/yyyy"}},
            {"at": {"type": "date_nanos"}},
            {"at": {"format": "strict_date_optional_time||epoch_millis"}},
            {"at": {"format": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'"}},
            {"day": {"format": "yyyy-MM-dd"}},
            {"price": {"type": "keyword"}},
            {"vector": {"type": "knn_vector", "model_id": "m"}},
            {"vector": {"type": "knn_vector", "dimension": "384"}},
            {"matrix": {"type": "geo_point"}},
            {"scores": {"type": "object", "dynamic": False}},
            {"scores": {"type": "object", "properties": {"red": {"type": "float"}}}},
            {"place": {"dynamic": True}, "place.tags": {"type": "object"}},
            {"scores": {"type": "object", "enabled": False}},
            {"title": {"type": "a_type_of_a_plugin", "option": 1}},
            {"people": {"type": "flat_object"}},
            {"any": {"type": "geo_shape"}},
        ],
    )
    def it_leaves_the_rest_to_the_server(self, mapping):
        merged(mapping)
