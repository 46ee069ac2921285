"""A document's id and content, and the search that a query becomes."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import types as T

from icecdc_core.errors import ConfigError
from icecdc_core.explore.documents import is_same, search_query

SCHEMA = T.StructType().add("id", T.LongType()).add("place", T.StructType().add("city", T.StringType()))
ROW = {"id": 1, "place": {"city": "Rome"}}
MATCH = {"match": {"name": "x"}}


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
    ("given", "expected"),
    [
        ("", {"match_all": {}}),
        ("name:x", {"query_string": {"query": "name:x", "lenient": True}}),
        (json.dumps(MATCH), MATCH),
        (json.dumps({"query": MATCH, "sort": ["name"]}), MATCH),
    ],
)
def it_searches_by_a_query_string_a_query_or_the_query_of_a_body(given, expected):
    assert search_query(given) == expected


def it_refuses_a_query_that_begins_like_json():
    with pytest.raises(ConfigError, match=r"The query is not valid JSON.*query=.*Remedy: give a query string"):
        search_query('{"match": ')
