"""What users of other tools ask their trackers for, as fields of one index, tried against a real server.

The index is exported, each query that a request is about finds document 1, and the validation passes. Then row 2 gets
the values of row 1, and the same queries find it by them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from icecdc_core import export_table, sync_changes, validate_table
from icecdc_core.errors import ConfigError

HTML = {"html": {"tokenizer": "standard", "char_filter": ["html_strip"], "filter": ["lowercase", "stop"]}}
SETTINGS = {
    "analysis": {"analyzer": HTML, "normalizer": {"low": {"type": "custom", "filter": ["lowercase"]}}},
    "refresh_interval": "2s",
    "mapping": {"total_fields": {"limit": 2500}},
}
DATES = "yyyy-MM-dd HH:mm:ss||yyyy-MM-dd||epoch_millis"
RAW = {"fields": {"raw": {"type": "keyword"}}}
PERSON, TOWN = {"name": "Ann", "age": 41}, "Old Town"
ANN = {"bool": {"must": [{"match": {"people.name": "ann"}}, {"term": {"people.age": 41}}]}}


class Request(NamedTuple):
    """A request, the expression and the mapping that answer it, a query that finds only document 1, and its value."""

    request: str
    select: str
    mapping: Any
    query: dict[str, Any]
    value: Any


def near(field: str) -> dict[str, Any]:
    return {"geo_distance": {"distance": "10km", field: {"lat": 48.21, "lon": 16.37}}}


def term(field: str, value: Any) -> dict[str, Any]:
    return {"term": {field: value}}


POINT = {"type": "geo_point"}
REQUESTS = {
    "email": Request("pgsync 170, 582", "city AS email", {"type": "keyword"}, term("email", TOWN), TOWN),
    "city": Request("kafka-connect 188", "city", None, term("city.keyword", TOWN), TOWN),
    "homeTown": Request("kafka-connect 211, 385", "city AS homeTown", None, {"match": {"homeTown": "old"}}, TOWN),
    "place": Request(
        "pgsync 388",
        "named_struct('lat', lat, 'lon', lon) AS place",
        POINT,
        near("place"),
        {"lat": 48.2, "lon": 16.4},
    ),
    "point": Request(
        "pgsync 43, kafka-connect 57", "concat_ws(',', lat, lon) AS point", POINT, near("point"), "48.2,16.4"
    ),
    "location": Request(
        "pgsync 85",
        "named_struct('coordinates', array(lon, lat)) AS location",
        {"properties": {"coordinates": POINT}},
        near("location.coordinates"),
        {"coordinates": [16.4, 48.2]},
    ),
    "html": Request(
        "pgsync 206", "html", {"type": "text", "analyzer": "html"}, {"match": {"html": "bold"}}, "<b>Bold</b> words"
    ),
    "lower": Request(
        "pgsync 589", "city AS lower", {"type": "keyword", "normalizer": "low"}, term("lower", "OLD TOWN"), TOWN
    ),
    "descriptor": Request(
        "pgsync 286",
        "named_struct('title', person.name) AS descriptor",
        None,
        {"match": {"descriptor.title": "ann"}},
        {"title": "Ann"},
    ),
    "name": Request("data-prepper 2511", "person.*", None, {"match": {"name": "ann"}}, "Ann"),
    "day": Request(
        "data-prepper 3365",
        "day",
        {"type": "date", "format": DATES},
        {"range": {"day": {"lte": "2026-01-01"}}},
        "2025-12-31",
    ),
    "maybe": Request(
        "estuary/flow 2402",
        "if(price < 10, city, string(day)) AS maybe",
        {"type": "date", "ignore_malformed": True, **RAW},
        {"bool": {"must_not": {"exists": {"field": "maybe"}}, "filter": term("maybe.raw", TOWN)}},
        TOWN,
    ),
    "price": Request(
        "kafka-connect 382", "price", {"type": "scaled_float", "scaling_factor": 100}, term("price", 9.99), "9.99"
    ),
    "v": Request(
        "risingwave 12464", "from_json(json, 'a int, b array<int>') AS v", None, term("v.b", 11), {"a": 1, "b": [11]}
    ),
    "typing": Request(
        "pgsync 168",
        "city AS typing",
        {"type": "search_as_you_type"},
        {"multi_match": {"query": "old to", "type": "bool_prefix", "fields": ["typing", "typing._2gram"]}},
        TOWN,
    ),
    "suggested": Request(
        "pgsync 417", "city AS suggested", {"type": "completion", **RAW}, term("suggested.raw", TOWN), TOWN
    ),
    "people": Request(
        "pgsync 170",
        "array(person) AS people",
        {"type": "nested"},
        {"nested": {"path": "people", "query": ANN}},
        [PERSON],
    ),
}


@pytest.fixture
def fill(sql):
    """A table of two rows that differ; the statement that makes them equal."""
    sql(
        "CREATE TABLE {t} (id BIGINT NOT NULL, city STRING, html STRING, lat DOUBLE, lon DOUBLE, day DATE, "
        "price DECIMAL(9,2), json STRING, person STRUCT<name: STRING, age: INT>) USING iceberg"
    )
    ann, bob = "named_struct('name', 'Ann', 'age', 41)", "named_struct('name', 'Bob', 'age', 42)"
    sql(
        f"""INSERT INTO {{t}} VALUES
        (1, 'Old Town', '<b>Bold</b> words', 48.2, 16.4, DATE '2025-12-31', 9.99, '{{"a": 1, "b": [11]}}', {ann}),
        (2, 'New City', '<i>thin</i> bolder', 40.7, -74.0, DATE '2026-03-01', 19.9, '{{"a": 2, "b": [2]}}', {bob})"""
    )
    return f"""UPDATE {{t}} SET city = 'Old Town', html = '<b>Bold</b> words', lat = 48.2, lon = 16.4,
        day = DATE '2025-12-31', price = 9.99, json = '{{"a": 1, "b": [11]}}', person = {ann} WHERE id = 2"""


class DescribeRequests:
    def it_is_one_spec_that_answers_them(self, spark, sql, fill, make_config, opensearch, indexed):
        mapping = {name: each.mapping for name, each in REQUESTS.items() if each.mapping}
        config = make_config(select=[each.select for each in REQUESTS.values()], mapping=mapping, settings=SETTINGS)
        expected = {name: each.value for name, each in REQUESTS.items()} | {"age": 41}

        def found():
            return {
                name: sorted(
                    hit["_id"]
                    for hit in opensearch.search(index=config.index, body={"query": each.query})["hits"]["hits"]
                )
                for name, each in REQUESTS.items()
            }

        assert export_table(spark, config).upserts == 2
        assert (indexed()["1"], found()) == (expected, {name: ["1"] for name in REQUESTS})
        assert validate_table(spark, config).ok
        sql(fill)
        assert sync_changes(spark, config).upserts == 1
        assert (indexed(), found()) == ({"1": expected, "2": expected}, {name: ["1", "2"] for name in REQUESTS})
        assert validate_table(spark, config).ok

    def it_leaves_columns_out_by_name(self, spark, fill, make_config, indexed):
        export_table(spark, make_config(select=["* EXCEPT (html, lat, lon)"]))
        assert set(indexed()["1"]) == {"id", "city", "day", "price", "json", "person"}

    def it_needs_a_server_that_has_the_type_of_a_field(self, spark, fill, make_config):
        with pytest.raises(ConfigError, match="semantic"):
            export_table(spark, make_config(mapping={"city": {"type": "semantic", "model_id": "m"}}))

    def it_finds_the_nearest_vectors(self, spark, sql, fill, make_config, opensearch):
        if "KNNPlugin" not in opensearch.cat.plugins():
            pytest.skip("this OpenSearch has no k-NN plugin")
        vector = {"type": "knn_vector", "dimension": 2, "method": {"name": "hnsw", "engine": "lucene"}}
        config = make_config(
            select=["array(float(lat), float(lon)) AS v"], mapping={"v": vector}, settings={"knn": True}
        )

        def nearest(lat, lon):
            query = {"knn": {"v": {"vector": [lat, lon], "k": 1}}}
            return opensearch.search(index=config.index, body={"query": query})["hits"]["hits"][0]["_id"]

        export_table(spark, config)
        assert [nearest(48, 16), nearest(41, -70)] == ["1", "2"]
        sql("UPDATE {t} SET lat = 48, lon = 16 WHERE id = 2")
        sync_changes(spark, config)
        assert nearest(48, 16) == "2"
        assert validate_table(spark, config).ok
