"""A document's id and content, and the search that a query becomes."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import types as T

from icecdc_core.errors import ConfigError
from icecdc_core.explore.documents import identifier_texts, is_same, search_body

SCHEMA = T.StructType().add("id", T.LongType()).add("place", T.StructType().add("city", T.StringType()))
ROW = {"id": 1, "place": {"city": "Rome"}}
ALL, MATCH = {"match_all": {}}, {"match": {"name": "x"}}
DIGEST = "a1" * 32


class DescribeIdentifierTexts:
    @pytest.mark.parametrize(
        ("given", "names", "expected"),
        [
            ("7", "id", ["7"]),
            ("a|b", "name", ["a|b"]),
            ("7|x", "id name", ["7", "x"]),
            ("7|a\\|b\\\\c\nd", "id name", ["7", "a|b\\c\nd"]),
            ("|", "a b", ["", ""]),
            ('{"name": "a|b", "id": 7}', "id name", ["7", "a|b"]),
            ('{"on": true}', "on", ["true"]),
            ('{"price": 1.50}', "price", ["1.50"]),
            (DIGEST, "name", []),
        ],
    )
    def it_is_a_text_for_each_column(self, given, names, expected):
        assert list(identifier_texts(given, names.split()).values()) == expected

    def it_may_begin_like_json(self):
        given = "{6F9619FF-8B86-D011-B42D-00CF4FC964FF}"
        assert identifier_texts(given, ["id"], is_id=True) == {"id": given}

    @pytest.mark.parametrize("given", ["7", "7|a|b", '{"id": 7}', '{"id": 7, "name": null}', '{"id": 7'])
    def it_refuses_others_with_an_example(self, given):
        with pytest.raises(ConfigError) as caught:
            identifier_texts(given, ["id", "name"])
        expected = [f"document_id={given!r}", 'such as id|name, or {"id": "...", "name": "..."}']
        assert [text for text in expected if text not in str(caught.value)] == []


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
