"""Each field has a query that suits its type."""

import pytest

from icecdc_core.documents.example_queries import example_queries

KEYWORD = {"keyword": {"type": "keyword"}}
EXACT = "exact text"


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ({"type": "keyword"}, [{"term": {"v": EXACT}}]),
        ({"type": "text", "fields": KEYWORD}, [{"match": {"v": "some words"}}, {"term": {"v.keyword": EXACT}}]),
        ({"type": "long"}, [{"range": {"v": {"gte": 1, "lt": 100}}}]),
        ({"type": "boolean"}, [{"term": {"v": True}}]),
        ({"type": "ip"}, [{"term": {"v": "10.0.0.0/8"}}]),
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
