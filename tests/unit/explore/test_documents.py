"""A document's id and content, and the search that a query becomes."""

import pytest
from pyspark.sql import types as T

from icecdc_core.explore.documents import is_same

SCHEMA = T.StructType().add("id", T.LongType()).add("place", T.StructType().add("city", T.StringType()))
ROW = {"id": 1, "place": {"city": "Rome"}}


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
