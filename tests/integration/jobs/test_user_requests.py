"""What users of other tools ask their trackers for, each as the spec of an index, tried against a real server.

One table serves all of them. Every test exports it with its spec, compares a document, asks the query that the request
is about, and validates. Then row 2 gets the values of row 1, and the same query finds it by them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from icecdc_core import export_table, sync_changes, validate_table
from icecdc_core.errors import ConfigError

PGSYNC, CONNECT, PREPPER = (
    "toluaina/pgsync",
    "confluentinc/kafka-connect-elasticsearch",
    "opensearch-project/data-prepper",
)
HTML = {"analyzer": {"html": {"tokenizer": "standard", "char_filter": ["html_strip"], "filter": ["lowercase", "stop"]}}}
NEAR = {"distance": "10km", "place": {"lat": 48.21, "lon": 16.37}}


class Request(NamedTuple):
    """A request, the spec that answers it, a query that finds only document 1, and that document."""

    tracker: str
    number: int
    select: list[str]
    mapping: dict[str, Any]
    settings: dict[str, Any]
    query: dict[str, Any]
    document: dict[str, Any]


def term(field: str, value: Any) -> dict[str, Any]:
    return {"term": {field: value}}


PERSON = {"name": "Ann", "age": 41}
ROW = {
    "id": 1,
    "city": "Old Town",
    "html": "<b>Bold</b> words",
    "lat": 48.2,
    "lon": 16.4,
    "day": "2025-12-31",
    "price": "9.99",
    "json": '{"a": 1, "b": [11]}',
    "person": PERSON,
}
POINT = {"lat": 48.2, "lon": 16.4}
TEXT_POINT = "48.2,16.4"
ARRAY_POINT = {"coordinates": [16.4, 48.2]}
NARROW = {name: value for name, value in ROW.items() if name not in ("html", "lat", "lon")}
CITY = {"city": "Old Town"}

REQUESTS = [
    # A field is a keyword, so that `term` finds its exact text.
    Request(PGSYNC, 170, ["*"], {"city": {"type": "keyword"}}, {}, term("city", "Old Town"), ROW),
    Request(
        PGSYNC,
        582,
        ["city AS email"],
        {"email": {"type": "keyword"}},
        {},
        term("email", "Old Town"),
        {"email": "Old Town"},
    ),
    # A text can be searched and aggregated.
    Request(CONNECT, 188, ["*"], {}, {}, term("city.keyword", "Old Town"), ROW),
    Request(CONNECT, 211, ["*"], {}, {}, {"match": {"city": "town"}}, ROW),
    # Points, from two columns, from a text, and from an array as PostGIS has it.
    Request(
        PGSYNC,
        388,
        ["named_struct('lat', lat, 'lon', lon) AS place"],
        {"place": {"type": "geo_point"}},
        {},
        {"geo_distance": NEAR},
        {"place": POINT},
    ),
    Request(
        PGSYNC,
        43,
        ["concat(lat, ',', lon) AS place"],
        {"place": {"type": "geo_point"}},
        {},
        {"geo_distance": NEAR},
        {"place": TEXT_POINT},
    ),
    Request(
        PGSYNC,
        85,
        ["named_struct('coordinates', array(lon, lat)) AS location"],
        {"location": {"properties": {"coordinates": {"type": "geo_point"}}}},
        {},
        {"geo_distance": {"distance": "10km", "location.coordinates": {"lat": 48.21, "lon": 16.37}}},
        {"location": ARRAY_POINT},
    ),
    Request(
        CONNECT,
        57,
        ["id", "concat_ws(',', lat, lon) AS place"],
        {"place": {"type": "geo_point"}},
        {},
        {"geo_distance": NEAR},
        {"id": 1, "place": TEXT_POINT},
    ),
    # Analyzers and normalizers of one's own.
    Request(
        PGSYNC,
        206,
        ["html"],
        {"html": {"type": "text", "analyzer": "html"}},
        {"analysis": HTML},
        {"match": {"html": "bold"}},
        {"html": "<b>Bold</b> words"},
    ),
    Request(
        PGSYNC,
        589,
        ["city"],
        {"city": {"type": "keyword", "normalizer": "low"}},
        {"analysis": {"normalizer": {"low": {"type": "custom", "filter": ["lowercase"]}}}},
        term("city", "OLD TOWN"),
        CITY,
    ),
    # Names of fields, at the top and inside.
    Request(
        PGSYNC,
        286,
        ["named_struct('title', person.name) AS descriptor"],
        {},
        {},
        {"match": {"descriptor.title": "ann"}},
        {"descriptor": {"title": "Ann"}},
    ),
    Request(
        CONNECT,
        385,
        ["city AS homeTown", "id AS customerId"],
        {},
        {},
        {"match": {"homeTown": "old"}},
        {"homeTown": "Old Town", "customerId": 1},
    ),
    # Which columns, and which part of the row.
    Request(PREPPER, 2975, ["* EXCEPT (html, lat, lon)"], {}, {}, {"match": {"city": "old"}}, NARROW),
    Request(PREPPER, 2511, ["person.*"], {}, {}, {"match": {"name": "ann"}}, PERSON),
    # Settings beside the table, in one file.
    Request(
        PREPPER,
        3365,
        ["id", "day"],
        {"day": {"type": "date", "format": "yyyy-MM-dd HH:mm:ss||yyyy-MM-dd||epoch_millis"}},
        {"refresh_interval": "2s"},
        {"range": {"day": {"lte": "2026-01-01"}}},
        {"id": 1, "day": "2025-12-31"},
    ),
    Request(PREPPER, 2779, ["*"], {}, {"mapping": {"total_fields": {"limit": 2500}}}, {"match": {"city": "old"}}, ROW),
    # A text that is not always a date, and how fresh a search is.
    Request(
        "estuary/flow",
        2402,
        ["if(price < 10, city, string(day)) AS maybe"],
        {"maybe": {"type": "date", "ignore_malformed": True, "fields": {"raw": {"type": "keyword"}}}},
        {"refresh_interval": "5s"},
        {"bool": {"must_not": {"exists": {"field": "maybe"}}, "filter": term("maybe.raw", "Old Town")}},
        {"maybe": "Old Town"},
    ),
    # Numbers with decimals, and JSON.
    Request(
        CONNECT,
        382,
        ["price"],
        {"price": {"type": "scaled_float", "scaling_factor": 100}},
        {},
        term("price", 9.99),
        {"price": "9.99"},
    ),
    Request(
        "risingwavelabs/risingwave",
        12464,
        ["from_json(json, 'a int, b array<int>') AS v"],
        {},
        {},
        term("v.b", 11),
        {"v": {"a": 1, "b": [11]}},
    ),
    # Suggestions while typing, and objects that are searched as one.
    Request(
        PGSYNC,
        168,
        ["city"],
        {"city": {"type": "search_as_you_type"}},
        {},
        {"multi_match": {"query": "old to", "type": "bool_prefix", "fields": ["city", "city._2gram"]}},
        CITY,
    ),
    Request(
        PGSYNC,
        417,
        ["city"],
        {"city": {"type": "completion", "fields": {"raw": {"type": "keyword"}}}},
        {},
        term("city.raw", "Old Town"),
        CITY,
    ),
    Request(
        "toluaina/pgsync (nested)",
        170,
        ["array(person) AS people"],
        {"people": {"type": "nested"}},
        {},
        {
            "nested": {
                "path": "people",
                "query": {"bool": {"must": [{"match": {"people.name": "ann"}}, term("people.age", 41)]}},
            }
        },
        {"people": [PERSON]},
    ),
]


class Table(NamedTuple):
    """The table that all requests export, and its snapshots: with two rows that differ, and with two equal ones."""

    name: str
    different: int
    equal: int

    def show(self, spark, snapshot_id):
        """Make a snapshot the current one, which costs less than another UPDATE for each request."""
        spark.sql(f"CALL lake.system.set_current_snapshot('{self.name.removeprefix('lake.')}', {snapshot_id})")


@pytest.fixture(scope="module")
def table(spark):
    name = "lake.ns.requests"
    spark.sql(f"DROP TABLE IF EXISTS {name}")
    spark.sql(
        f"CREATE TABLE {name} (id BIGINT, city STRING, html STRING, lat DOUBLE, lon DOUBLE, day DATE, "
        "price DECIMAL(9,2), json STRING, person STRUCT<name: STRING, age: INT>) USING iceberg"
    )
    ann, bob = "named_struct('name', 'Ann', 'age', 41)", "named_struct('name', 'Bob', 'age', 42)"
    spark.sql(
        f"""INSERT INTO {name} VALUES
        (1, 'Old Town', '<b>Bold</b> words', 48.2, 16.4, DATE '2025-12-31', 9.99, '{{"a": 1, "b": [11]}}', {ann}),
        (2, 'New City', '<i>thin</i> bolder', 40.7, -74.0, DATE '2026-03-01', 19.9, '{{"a": 2, "b": [2]}}', {bob})"""
    )
    spark.sql(
        f"""UPDATE {name} SET city = 'Old Town', html = '<b>Bold</b> words', lat = 48.2, lon = 16.4,
        day = DATE '2025-12-31', price = 9.99, json = '{{"a": 1, "b": [11]}}', person = {ann} WHERE id = 2"""
    )
    snapshots = spark.sql(f"SELECT snapshot_id FROM {name}.snapshots ORDER BY committed_at").collect()
    yield Table(name, *(row[0] for row in snapshots))
    spark.sql(f"DROP TABLE {name}")


class DescribeARequest:
    @pytest.mark.parametrize("request_", REQUESTS, ids=lambda each: f"{each.tracker}-{each.number}")
    def it_is_a_spec(self, spark, table, make_config, opensearch, indexed, request_):
        select, mapping, settings = request_.select, request_.mapping, request_.settings
        config = make_config(table=table.name, select=select, mapping=mapping, settings=settings)

        def found():
            return sorted(hit["_id"] for hit in opensearch.search(index=config.index, body=query)["hits"]["hits"])

        query = {"query": request_.query}
        table.show(spark, table.different)
        assert export_table(spark, config).upserts == 2
        assert (indexed()["1"], found()) == (request_.document, ["1"])
        assert validate_table(spark, config).ok
        table.show(spark, table.equal)
        assert sync_changes(spark, config).upserts == 1
        changed = {name: 2 if name in ("id", "customerId") else value for name, value in request_.document.items()}
        assert (indexed(), found()) == ({"1": request_.document, "2": changed}, ["1", "2"])
        assert validate_table(spark, config).ok

    def it_of_a_vector_needs_a_server_that_has_the_type(self, spark, table, make_config):
        mapping = {"vector": {"type": "knn_vector", "dimension": 2}}
        config = make_config(table=table.name, select=["array(float(lat), float(lon)) AS vector"], mapping=mapping)
        with pytest.raises(ConfigError, match="knn_vector"):
            export_table(spark, config)
