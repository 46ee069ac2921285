"""The search that a query becomes."""

from __future__ import annotations

import json

import pytest

from icecdc_core.explore.queries import search_body

ALL, MATCH = {"match_all": {}}, {"match": {"name": "x"}}


class DescribeASearch:
    @pytest.mark.parametrize(
        ("given", "query", "size"),
        [
            ("", ALL, 20),
            ("name:x", {"query_string": {"query": "name:x", "lenient": True}}, 20),
            (json.dumps(MATCH), MATCH, 20),
            (json.dumps({"query": MATCH, "size": 5}), MATCH, 5),
            (json.dumps({"query": MATCH, "size": 500}), MATCH, 20),
            (json.dumps({"sort": ["name"]}), ALL, 20),
        ],
    )
    def it_is_a_query_string_a_query_or_a_body(self, given, query, size):
        actual = search_body(given, 20)
        assert (actual["query"], actual["size"], actual["track_total_hits"]) == (query, size, True)

    def it_keeps_what_else_a_body_says(self):
        assert search_body('{"query": {"match_all": {}}, "sort": ["name"]}', 20)["sort"] == ["name"]
