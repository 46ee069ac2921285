"""A document's id and content, and the search that a query becomes."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import types as T

from icecdc_core.errors import ConfigError
from icecdc_core.explore.documents import identifier_values, is_same, search_body

SCHEMA = T.StructType().add("id", T.LongType()).add("place", T.StructType().add("city", T.StringType()))
ROW = {"id": 1, "place": {"city": "Rome"}}
ALL, MATCH = {"match_all": {}}, {"match": {"name": "x"}}
DIGEST = "a1" * 32


class DescribeIdentifierValues:
    @pytest.mark.parametrize(
        ("document_id", "names", "expected"),
        [
            ("7", "id", ["7"]),
            ("a|b", "name", ["a|b"]),
            ("7|x", "id name", ["7", "x"]),
            ("7|a\\|b\\\\c\nd", "id name", ["7", "a|b\\c\nd"]),
            ("|", "a b", ["", ""]),
            (DIGEST, "name", []),
        ],
    )
    def it_is_a_text_for_each_column(self, document_id, names, expected):
        assert list(identifier_values(document_id, names.split()).values()) == expected

    @pytest.mark.parametrize("document_id", ["7", "7|a|b"])
    def it_refuses_another_number_of_parts(self, document_id):
        with pytest.raises(ConfigError, match=r"Remedy: give the _id as the index has it: id\|name"):
            identifier_values(document_id, ["id", "name"])


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
