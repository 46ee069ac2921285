"""What an ingest pipeline made is removed from a document, wherever it is, and nothing else."""

import pytest
from pyspark.sql.types import ArrayType, LongType, MapType, StringType, StructType

from icecdc_core.opensearch.checksums import without_fields

ITEM = StructType().add("price", LongType())
SCHEMA = (
    StructType()
    .add("id", LongType())
    .add("place", StructType().add("city", StringType()))
    .add("items", ArrayType(ITEM))
    .add("labels", MapType(StringType(), StringType()))
    .add("a.b", StructType().add("c", LongType()))
)


@pytest.mark.parametrize(
    ("paths", "document", "expected"),
    [
        ([], {"id": 1}, {"id": 1}),
        (["embedding"], {"id": 1}, {"id": 1}),
        (["embedding"], {"id": 1, "embedding": [1.0]}, {"id": 1}),
        (["embedding"], {"id": 1, "embedding": {"x": 1}}, {"id": 1}),
        (["tags.source"], {"id": 1, "tags": {"source": "x"}}, {"id": 1}),
        (["tags.source"], {"id": 1, "tags.source": "x"}, {"id": 1}),
        (["tags.source"], {"id": 1, "tags": {"source": "x", "other": 1}}, {"id": 1, "tags": {"other": 1}}),
        (["tags.a", "tags.b"], {"tags": {"a": 1, "b": {"c": 2}}}, {}),
        (["tags.a.b"], {"tags": {"a": {"b": 1}}}, {}),
        (["place.pin"], {"place": {"city": "x", "pin": "1,2"}}, {"place": {"city": "x"}}),
        (["place.pin"], {"place": {"pin": "1,2"}}, {"place": {}}),
        (["place.pin"], {"place": None}, {"place": None}),
        (["items.total"], {"items": [{"price": 1, "total": 2}, None]}, {"items": [{"price": 1}, None]}),
        (["a.b.d"], {"a.b": {"c": 1}, "a": {"b": {"d": 2}}}, {"a.b": {"c": 1}}),
        (["a.b.d"], {"a.b": {"c": 1, "d": 2}}, {"a.b": {"c": 1}}),
        (["x"], {"labels": {"x": "y"}}, {"labels": {"x": "y"}}),
    ],
)
def it_leaves_the_row(paths, document, expected):
    assert without_fields(document, paths, SCHEMA) == expected
