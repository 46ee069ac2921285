"""The entries of `embed`, and the mapping of their fields."""

import pytest

from icecdc_core.config import SyncConfig
from icecdc_core.errors import ConfigError

ENTRY = {"text": "title", "function": "models.small:embed", "model": "small-1", "dimension": "3"}


def config(entry=None, field="vector", **parameters):
    return SyncConfig(table="lake.shop.film", embed={field: {**ENTRY, **(entry or {})}}, **parameters)


class DescribeEmbed:
    def it_refuses_a_wrong_entry_and_field(self):
        wrong = (
            {"text": " "},
            {"function": "a.b"},
            {"function": "a b:c"},
            {"dimension": 0},
            {"model": None},
            {"batch": 3},
        )
        for entry, field in (*((each, "vector") for each in wrong), ({}, "a.vector"), ({}, " ")):
            with pytest.raises(ConfigError, match="embed"):
                config(entry, field)

    def it_keeps_vectors_beside_the_table_unless_another_is_named(self):
        assert config().embed_parts == ("lake", "shop", "icecdc_embeddings")
        assert config(embed_table="lake.a.b").embed_parts == ("lake", "a", "b")

    @pytest.mark.parametrize(
        ("given", "expected"),
        [
            ({}, {}),
            ({"method": {"engine": "lucene"}}, {"method": {"engine": "lucene"}}),
            ({"type": "float", "dimension": 4}, {}),
        ],
    )
    def it_maps_a_vector_over_the_mapping(self, given, expected):
        found = config(mapping={"title": {"type": "keyword"}, "vector": given}).full_mapping
        vector = {"type": "knn_vector", "dimension": 3, **expected}
        assert found == {"title": {"type": "keyword"}, "vector": vector}
