"""Checksums are equal for equal documents, however they are written, and differ for different ones."""

import hashlib
import json

import pytest
from pyspark.sql.types import ArrayType, IntegerType, LongType, MapType, StringType, StructType

from icecdc_core.opensearch.checksums import as_numbers, content_digests, text_page, without_fields

A = StructType().add("a", IntegerType())
SCHEMA = (
    StructType()
    .add("id", IntegerType())
    .add("s", StructType().add("a", IntegerType()).add("b", StringType()))
    .add("m", MapType(StringType(), IntegerType()))
    .add("l", ArrayType(A))
    .add("d", MapType(StringType(), A))
)
DIGEST = content_digests(SCHEMA)
EQUAL = [
    ({"id": 1, "s": {"a": 1, "b": "x"}}, {"s": {"b": "x", "a": 1}, "id": 1}),
    ({"id": 1, "s": None}, {"id": 1}),
    ({"s": {"a": 1, "b": None}}, {"s": {"a": 1}}),
    ({"l": [{"a": None}]}, {"l": [{}]}),
    ({"d": {"k": {"a": None}}}, {"d": {"k": {}}}),
]
DIFFERENT = [
    ({"id": 1}, {"id": 2}), ({"m": {"k": None}}, {"m": {}}), ({"m": {}}, {"m": None}), ({"d": {"k": None}}, {"d": {}}),
    ({"l": [None]}, {"l": []}), ({"l": [{"a": 1}, {"a": 2}]}, {"l": [{"a": 2}, {"a": 1}]}), ({"s": {}}, {"s": None}),
    ({"unknown": {"k": None}}, {"unknown": {}}), ({"name": "\ud800"}, {"name": "?"}),
    ({"name": "\ud800"}, {"name": "\ud801"}),
]  # fmt: skip


def it_has_the_same_checksum_for_equal_documents_alone():
    assert [pair for pair in EQUAL if DIGEST(pair[0]) != DIGEST(pair[1])] == []
    assert [pair for pair in DIFFERENT if DIGEST(pair[0]) == DIGEST(pair[1])] == []


def it_distinguishes_digests_whose_hash_is_equal(spark):
    starts = "a text like any other, and as good as it is", "00000224ike any other, and as gobqnUSJ]Q is"
    digests = [("1", f"{start}, with much in it....") for start in starts]
    rows = spark.createDataFrame(digests, "id string, digest string")
    agreeing = rows.selectExpr("count(DISTINCT xxhash64(digest))").first()[0]
    assert (agreeing, as_numbers(rows).distinct().count()) == (1, 2)


def answer(*hits):
    texts = (
        f'{{"_index":"i-1","_id":{json.dumps(i)},"_version":{v},"_score":null,"_source":{text},"sort":[{at}]}}'
        for at, (i, v, text) in enumerate(hits)
    )
    return '{"pit_id":"x","took":1,"hits":{"max_score":null,"hits":[' + ",".join(texts) + "]}}"


def it_splits_answers_into_documents():
    texts = ['{"a":1,"sort":[7]}', '{"_source":{"b":"\\",\\"sort\\":[1]"}}', "{}"]
    found = text_page(answer(("x", 1, texts[0]), ('"\\ü', 12, texts[1]), ("z", 3, texts[2])), "i-1")
    digests = [hashlib.sha256(text.encode()).hexdigest() for text in texts]
    names = ("x", '"\\ü', "z")
    assert found == ([(*each, None, None) for each in zip(names, digests, strict=True)], [2])


@pytest.mark.parametrize("routing", ["a", 'a","_source":{"', "\\", '_routing":"x"'])
def it_finds_the_routing_of_a_document(routing):
    routed = f'"_score":null,"_routing":{json.dumps(routing)},"_source":'
    text = answer(("x", 1, '{"_routing":"b"}')).replace('"_score":null,"_source":', routed)
    digest = hashlib.sha256(b'{"_routing":"b"}').hexdigest()
    assert text_page(text, "i-1") == ([("x", digest, None, routing)], [0])


def it_continues_after_a_document_that_contains_an_answer():
    inner = answer(("y\\", 1, "{}"))
    found, after = text_page(answer(("x", 1, inner), ("z", 1, '{"_index":"i-1","_id":"'), ("u", 1, "{}")), "i-1")
    assert (found[-1][:2], after) == (("u", hashlib.sha256(b"{}").hexdigest()), [2])
    assert hashlib.sha256(inner.encode()).hexdigest() not in [text for _, text, *_ in found]
    assert text_page(answer(), "i-1") == ([], "")


PIPED = (
    StructType()
    .add("id", LongType())
    .add("place", StructType().add("city", StringType()))
    .add("items", ArrayType(StructType().add("price", LongType())))
    .add("labels", MapType(StringType(), StringType()))
    .add("a.b", StructType().add("c", LongType()))
)


@pytest.mark.parametrize(
    ("paths", "document", "expected"),
    [
        (["x"], {"id": 1, "x": {"y": 1}}, {"id": 1}), (["x"], {"labels": {"x": "y"}}, {"labels": {"x": "y"}}),
        (["tags.source"], {"id": 1, "tags.source": "x"}, {"id": 1}),
        (["tags.source"], {"id": 1, "tags": {"source": "x", "other": 1}}, {"id": 1, "tags": {"other": 1}}),
        (["tags.a", "tags.b"], {"tags": {"a": 1, "b": {"c": 2}}}, {}), (["tags.a.b"], {"tags": {"a": {"b": 1}}}, {}),
        (["place.pin"], {"place": {"pin": "1,2"}}, {"place": {}}), (["place.pin"], {"place": None}, {"place": None}),
        (["items.total"], {"items": [{"price": 1, "total": 2}, None]}, {"items": [{"price": 1}, None]}),
        (["a.b.d"], {"a.b": {"c": 1}, "a": {"b": {"d": 2}}}, {"a.b": {"c": 1}}),
        (["a.b.d"], {"a.b": {"c": 1, "d": 2}}, {"a.b": {"c": 1}}),
    ],
)  # fmt: skip
def it_leaves_the_row(paths, document, expected):
    assert without_fields(document, paths, PIPED) == expected
