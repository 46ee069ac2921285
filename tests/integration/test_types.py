"""Every type against a real server: the mapping takes the documents, `_source` is the row, queries find it."""

import json
import os

import pytest
from opensearchpy import OpenSearch
from opensearchpy.exceptions import RequestError
from pyspark.sql import functions as F
from pyspark.sql import types as T

from icecdc_core.documents import to_actions
from icecdc_core.mapping import METADATA_FIELDS, index_mapping

COLUMNS = {
    "id": ("7L", 7),
    "flag": ("true", True),
    "i": ("2147483647", 2147483647),
    "l": ("-9223372036854775808", -9223372036854775808),
    "f": ("1.5F", 1.5),
    "d": ("1.7976931348623157E308D", 1.7976931348623157e308),
    "price": ("cast(19.90 as decimal(9,2))", "19.90"),
    "huge": (
        "cast('12345678901234567890123456789.012345678' as decimal(38,9))",
        "12345678901234567890123456789.012345678",
    ),
    "s": ("'Hello World'", "Hello World"),
    "long_text": ("repeat('x', 40000)", "x" * 40000),
    "day": ("date'2026-01-31'", "2026-01-31"),
    "early": ("date'-0001-01-31'", "-0001-01-31"),
    "late": ("date'+10000-01-31'", "+10000-01-31"),
    "at": ("timestamp_micros(1769860800123456)", "2026-01-31T12:00:00.123456Z"),
    "at_end": ("timestamp_micros(9223372036854775807)", "+294247-01-10T04:00:54.775807Z"),
    "local": ("timestamp_ntz'2026-01-31 12:00:00.5'", "2026-01-31T12:00:00.500000"),
    "bytes": ("X'00FF'", "AP8="),
    "nothing": ("cast(null as string)", None),
    "list": ("array('a', null, 'b')", ["a", None, "b"]),
    "lists": ("array(array(1), null)", [[1], None]),
    "decimals": ("array(1.5BD, null)", ["1.5", None]),
    "struct": ("named_struct('A', 1, 'b', named_struct('c.d', cast(null as int)))", {"A": 1, "b": {"c.d": None}}),
    "structs": ("array(named_struct('x', 1), null)", [{"x": 1}, None]),
    "empty": ("struct()", {}),
    "map": ("map('k', 'v', 'a.b', null, '', 'e', '.', 'p')", {"k": "v", "a.b": None, "": "e", ".": "p"}),
    "map_of_days": ("map(date'2026-01-31', 1.5BD)", {"2026-01-31": "1.5"}),
    "map_of_structs": ("map('k', named_struct('x', array(1, null)))", {"k": {"x": [1, None]}}),
    "maps": ("array(map('k', 1), null)", [{"k": 1}, None]),
    "struct_of_map": ("named_struct('m', map('k', map('l', 1)))", {"m": {"k": {"l": 1}}}),
    "Odd name é": ("1", 1),
    "dotted.name": ("1", 1),
    "_own": ("1", 1),
}


@pytest.fixture(scope="module")
def typed_index(spark, opensearch_url):
    """An index with one document of every type."""
    df = spark.range(1).select(*(F.expr(sql).alias(column) for column, (sql, _) in COLUMNS.items()))
    client, index = OpenSearch(opensearch_url), f"types-{os.getpid()}"
    client.indices.create(index=index, body={"mappings": index_mapping(df.schema)})
    action = to_actions(df.withColumn("_change_type", F.lit("INSERT")), ["id"], 1).first().action
    answer = client.bulk(body=action, index=index, refresh=True)
    assert [item["index"].get("error") for item in answer["items"]] == [None]
    yield index
    client.indices.delete(index=index)
    client.close()


class DescribeTypes:
    def it_gives_back_the_row_as_source(self, opensearch, typed_index):
        actual = opensearch.get(index=typed_index, id="7")["_source"]
        assert actual == {column: value for column, (_, value) in COLUMNS.items()}

    @pytest.mark.parametrize(
        "query",
        [
            {"term": {"flag": True}},
            {"range": {"price": {"gte": 19.5, "lt": 20}}},
            {"range": {"huge": {"gte": 1e28}}},
            {"match": {"s": "hello"}},
            {"term": {"s.keyword": "Hello World"}},
            {"range": {"day": {"gte": "2026-01-01", "lte": "2026-01-31"}}},
            {"range": {"at": {"gte": "2026-01-31T12:00:00Z", "lt": "2026-01-31T12:00:01Z"}}},
            {"range": {"local": {"gte": "2026-01-31T12:00:00"}}},
            {"range": {"late": {"gt": "9999-12-31"}}},
            {"range": {"early": {"lt": "0001-01-01"}}},
            {"match": {"list": "b"}},
            {"term": {"lists": 1}},
            {"term": {"struct.A": 1}},
            {"term": {"structs.x": 1}},
            {"term": {"map.k": "v"}},
            {"term": {"map": "v"}},
            {"term": {"struct_of_map.m.k.l": "1"}},
            {"term": {"Odd name é": 1}},
            {"term": {"dotted.name": 1}},
            {"bool": {"must_not": {"exists": {"field": "nothing"}}}},
        ],
        ids=json.dumps,
    )
    def it_is_found_by_queries(self, opensearch, typed_index, query):
        assert opensearch.count(index=typed_index, body={"query": query})["count"] == 1

    def it_never_maps_a_field_by_guessing(self, opensearch, typed_index):
        before = opensearch.indices.get_mapping(index=typed_index)
        for stray in ({"stray": 1}, {"struct": {"stray": 1}}):
            with pytest.raises(RequestError, match="strict_dynamic_mapping_exception"):
                opensearch.index(index=typed_index, id="8", body=stray)
        assert opensearch.indices.get_mapping(index=typed_index) == before

    def it_takes_the_mapping_of_added_columns(self, opensearch, typed_index):
        added = T.StructType([T.StructField("more", T.StructType([T.StructField("x", T.DecimalType(9, 2))]))])
        opensearch.indices.put_mapping(index=typed_index, body={"properties": index_mapping(added)["properties"]})
        assert opensearch.index(index=typed_index, id="8", body={"more": {"x": "1.50"}})["result"] == "created"
        opensearch.delete(index=typed_index, id="8", refresh=True)


class DescribeNames:
    @pytest.mark.parametrize("column", [*sorted(METADATA_FIELDS), "", ".", "..", ".a", "a..b"])
    def it_refuses_only_names_the_server_refuses(self, opensearch, name, column):
        body = {"mappings": {"dynamic": "strict", "properties": {column: {"type": "long"}}}}
        with pytest.raises(RequestError):
            _create_and_index(opensearch, name, body, {column: 1})


def _create_and_index(opensearch, index, body, document):
    opensearch.indices.create(index=index, body=body)
    try:
        opensearch.index(index=index, id="1", body=document)
    finally:
        opensearch.indices.delete(index=index)
