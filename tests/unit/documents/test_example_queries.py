"""Each field has a query that suits its type."""

import pytest

from icecdc_core.documents.example_queries import as_text, example_queries

KEYWORD = {"keyword": {"type": "keyword"}}
EXACT = "exact text"


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ({"type": "keyword"}, [{"term": {"v": EXACT}}]),
        ({"type": "text"}, [{"match": {"v": "some words"}}]),
        ({"type": "text", "fields": KEYWORD}, [{"match": {"v": "some words"}}, {"term": {"v.keyword": EXACT}}]),
        ({"type": "long"}, [{"range": {"v": {"gte": 1, "lt": 100}}}]),
        ({"type": "boolean"}, [{"term": {"v": True}}]),
        ({"type": "date", "format": "strict_date"}, [{"range": {"v": {"gte": "now-7d/d"}}}]),
        ({"type": "ip"}, [{"term": {"v": "10.0.0.0/8"}}]),
        ({"type": "geo_point"}, [{"exists": {"field": "v"}}]),
        ({"type": "knn_vector", "dimension": 3}, [{"knn": {"v": {"vector": "<3 numbers>", "k": 10}}}]),
        ({"properties": {"b": {"type": "binary"}, "k": {"type": "keyword"}}}, [{"term": {"v.k": EXACT}}]),
        (
            {"type": "nested", "properties": {"k": {"type": "keyword"}}},
            [{"nested": {"path": "v", "query": {"term": {"v.k": EXACT}}}}],
        ),
        ({"type": "alias", "path": "other"}, [{"range": {"v": {"gte": 1, "lt": 100}}}]),
        ({"type": "binary"}, []),
        ({"type": "binary", "doc_values": True}, [{"exists": {"field": "v"}}]),
        ({"type": "object", "enabled": False}, []),
        ({"type": "keyword", "index": False}, []),
        ({"type": "a_type_of_a_plugin"}, [{"exists": {"field": "v"}}]),
    ],
)
def it_suits_the_type_of_the_field(field, expected):
    assert example_queries({"v": field, "other": {"type": "long"}}, "v") == expected


def it_is_json_one_query_a_line():
    assert as_text([{"term": {"v": True}}, {"exists": {"field": "v"}}]) == (
        '{"term": {"v": true}}\n{"exists": {"field": "v"}}'
    )
