"""A document's id and content, and the search that a query becomes."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import types as T

from icecdc_core.errors import ConfigError
from icecdc_core.explore.documents import is_same, search_body

SCHEMA = T.StructType().add("id", T.LongType()).add("place", T.StructType().add("city", T.StringType()))
ROW = {"id": 1, "place": {"city": "Rome"}}
ALL, MATCH = {"match_all": {}}, {"match": {"name": "x"}}


class DescribeIsSame:
    @pytest.mark.parametrize(
        ("indexed", "expected"),
        [
            (ROW, True),
            ({**ROW, "name": None}, True),
            ({**ROW, "meta": {"model": "m"}}, True),
            ({**ROW, "meta.model": "m"}, True),
            ({"id": 1, "place": {"city": "Rome", "country": "IT"}}, True),
            ({**ROW, "meta": {"model": "m", "other": 1}}, False),
            ({**ROW, "id": 2}, False),
        ],
    )
    def it_leaves_out_what_an_ingest_pipeline_makes(self, indexed, expected):
        assert is_same(indexed, ROW, ["meta.model", "place.country"], SCHEMA) is expected


@pytest.mark.parametrize(
    ("given", "query", "size"),
    [
        ("", ALL, 20),
        ("name:x", {"query_string": {"query": "name:x", "lenient": True}}, 20),
        (json.dumps(MATCH), MATCH, 20),
        (json.dumps({"query": MATCH, "size": 5, "sort": ["name"]}), MATCH, 5),
        (json.dumps({"query": MATCH, "size": 500}), MATCH, 20),
        (json.dumps({"sort": ["name"]}), ALL, 20),
    ],
)
def it_searches_by_a_query_string_a_query_or_a_body(given, query, size):
    actual = search_body(given, 20)
    assert (actual["query"], actual["size"], actual["track_total_hits"]) == (query, size, True)
    assert actual.get("sort") == (["name"] if "sort" in given else None)


def it_refuses_a_query_that_begins_like_json():
    with pytest.raises(ConfigError, match=r"The query is not valid JSON.*query=.*Remedy: give a query string"):
        search_body('{"match": ', 20)
