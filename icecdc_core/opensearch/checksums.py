"""Checksums of documents: those computed from the rows of a table, and those of an index at a point in time."""

from __future__ import annotations

import gc
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
from opensearchpy.exceptions import OpenSearchException
from pyspark.sql import DataFrame, SparkSession, functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from icecdc_core.columns import RESERVED
from icecdc_core.dependencies import keep_archive_caches
from icecdc_core.errors import UnknownSlicesError
from icecdc_core.opensearch.client import AnswerReader, Connection, reading, typed_error, unusable_answer_error
from icecdc_core.opensearch.id_slices import EVERYTHING, Part

if TYPE_CHECKING:
    from opensearchpy import OpenSearch

    from icecdc_core.config import SyncConfig


FOREIGN_ROUTING = "\trouting "  # between the id and the routing of a document whose index needs none

_ROUTING = re.compile(r'"_routing":"((?:[^"\\]|\\.)*)"')


def as_numbers(digests: DataFrame) -> DataFrame:
    """Turn a ``digest`` of 64 hexadecimal digits into two numbers, because Spark groups those by a hash map."""
    # Each is a hash of one half. Two hashes of the whole digest would not be safer than one: somebody could search for
    # texts whose digests have the same xxhash64, even for every seed.
    if "place" in digests.columns:
        digests = digests.withColumn("digest", F.sha2(F.concat("digest", F.coalesce("place", F.lit(""))), 256))
    numbers = {name: F.xxhash64(F.substring("digest", at, 32)) for name, at in (("high", 1), ("low", 33))}
    return digests.withColumns(numbers).drop("digest")


def source_checksums(documents: DataFrame, schema: StructType | None = None) -> DataFrame:
    """Return the checksums of the table's rows: of their texts, or with a schema of their contents."""
    if schema is None:
        return as_numbers(documents.withColumn("digest", F.sha2("doc", 256)).drop("doc"))

    def digest_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep_archive_caches()
        digest_of = content_digests(schema)
        for batch in batches:
            digests = pa.array([digest_of(orjson.loads(text)) for text in batch.column("doc").to_pylist()], pa.string())
            yield batch.set_column(batch.schema.get_field_index("doc"), "digest", digests)

    names = ", ".join(f"{name} string" for name in documents.columns).replace("doc string", "digest string")
    return as_numbers(documents.mapInArrow(digest_batches, names))


def texts_are_comparable(client: OpenSearch, pit: str, schema: StructType, most: int) -> bool:
    """Whether the oldest documents of an index have the fields that rows have now, so that texts can be equal."""
    query = {**part_of_index(pit), "size": min(FIRST_DOCUMENTS, most), "sort": ["_doc"]}
    hits = client.search(body=query, params=WHOLE)["hits"]["hits"]
    names = [name for name in schema.names if name not in RESERVED]
    with reading(hits):
        return all(list(hit["_source"]) == names for hit in hits)


def index_checksums(
    spark: SparkSession,
    config: SyncConfig,
    parts: list[dict[str, Any]],
    most: int,
    index: str,
    suffix: str = "",
    schema: StructType | None = None,
) -> DataFrame:
    """Return the checksums of documents: of their texts, or with a schema of their contents without pipeline fields."""
    if schema is None:
        return as_numbers(read_index(spark, config, parts, most, partial(text_page, index=index), suffix))
    pipeline_fields, digest_of = config.pipeline_fields, content_digests(schema)

    def content_page(answer: str) -> Page:
        hits, rows = AnswerReader(True).loads(answer)["hits"]["hits"], []
        for hit in hits:
            digest = digest_of(without_fields(hit["_source"], pipeline_fields, schema))
            rows.append((hit["_id"], digest, hit["_version"], hit.get("_routing")))
        return rows, hits and hits[-1]["sort"]

    return as_numbers(read_index(spark, config, parts, most, content_page, suffix))


def text_page(answer: str, index: str) -> Page:
    """Split an answer at the texts around its documents."""
    # A document that contains these texts is split wrongly; the parts then differ from every row, and contents decide.
    rows: list[tuple[str, str, int | None, str | None]] = []
    after = ""
    for hit in answer.split('{"_index":"' + index + '","_id":"')[1:]:
        identifier, _, rest = hit.partition('","_version":')
        before, _, after = rest.rpartition(',"sort":')
        head, _, text = before.partition('"_source":')
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        routed = _ROUTING.search(head) if "_routing" in head else None
        rows.append((_unescaped(identifier), digest, None, _unescaped(routed[1]) if routed else None))
    return rows, after and orjson.loads(after.partition("]")[0] + "]")


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    try:
        return str(orjson.loads(f'"{text}"'))
    except orjson.JSONDecodeError:
        return text  # a hit that was split wrongly


def content_digests(schema: StructType) -> Callable[[dict[str, Any]], str]:
    """Return a function of documents; its digests are equal for equal documents of a table."""
    # A field that is null equals an absent one: a column that was added later is null in the old rows of the table and
    # absent from their documents. But an entry of a map whose value is null is an entry.
    present = _present_fields(schema)
    assert present is not None, "the type of a document is a struct"

    def digest_of(document: dict[str, Any]) -> str:
        content = present(document)
        try:
            text = orjson.dumps(content, option=orjson.OPT_SORT_KEYS)
        except TypeError:
            # Somebody else wrote a lone surrogate, which orjson refuses and no row of a table has.
            text = json.dumps(content, sort_keys=True).encode()
        return hashlib.sha256(text).hexdigest()

    return digest_of


def _present_fields(data_type: DataType) -> Callable[[Any], Any] | None:
    """How to leave the null fields out of the structs in a value; None if its type has no structs."""
    if isinstance(data_type, StructType):
        found = {field.name: _present_fields(field.dataType) for field in data_type.fields}
        nested = {name: inner for name, inner in found.items() if inner}
        return lambda value: (
            {
                name: nested[name](inner) if name in nested else inner
                for name, inner in value.items()
                if inner is not None
            }
            if isinstance(value, dict)
            else value
        )
    if isinstance(data_type, MapType) and (of_value := _present_fields(data_type.valueType)):
        return lambda value: {key: of_value(each) for key, each in value.items()} if isinstance(value, dict) else value
    if isinstance(data_type, ArrayType) and (of_element := _present_fields(data_type.elementType)):
        return lambda value: [of_element(each) for each in value] if isinstance(value, list) else value
    return None


def without_fields(document: dict[str, Any], paths: Iterable[str], schema: StructType) -> dict[str, Any]:
    """Remove fields from a document, and the objects around them that no column makes; changes the document."""
    for path in paths:
        _remove(document, path.split("."), schema)
    return document


def _remove(value: Any, parts: list[str], data_type: DataType | None) -> None:
    if isinstance(value, list):
        element = data_type.elementType if isinstance(data_type, ArrayType) else None
        for each in value:
            _remove(each, parts, element)
    elif isinstance(value, dict):
        columns = {each.name: each.dataType for each in data_type.fields} if isinstance(data_type, StructType) else {}
        value.pop(".".join(parts), None)
        for count in range(1, len(parts)):
            name = ".".join(parts[:count])
            if name in value:
                _remove(value[name], parts[count:], columns.get(name))
                if value[name] == {} and name not in columns:
                    del value[name]


# Of a search for every document as it is stored: all shards must answer, and no search pipeline hides anything.
WHOLE = {"allow_partial_search_results": "false", "search_pipeline": "_none"}

# Documents of a page: at first, at most, and as many as make about so many bytes, since the server holds each whole.
FIRST_DOCUMENTS, PAGE_DOCUMENTS, PAGE_BYTES = 100, 5000, 16 * 1024 * 1024
# Documents that one task reads, approximately. Each page searches its range again, so the range must be short.
RANGE_DOCUMENTS = 200_000

# Id, digest, version and routing of each document of an answer, and what the next page is searched after.
Page = tuple[list[tuple[str, str, int | None, str | None]], Any]


_HITS = pa.schema({"id": pa.string(), "digest": pa.string(), "version": pa.int64(), "place": pa.string()})


def part_of_index(
    pit: str, shard: int = 0, shards: int = 1, low: int = 0, high: int = 1 << 62, part: Part = EVERYTHING
) -> dict[str, Any]:
    """Return the search for the documents of one shard with sequence numbers from ``low`` to below ``high``."""
    # With as many slices as shards, each slice is a shard. More slices by a number would examine all documents of a
    # shard for each page; those by the id, which is no field, examine all ids until the server caches what it found.
    found = {"field": "_seq_no", "id": shard, "max": shards}
    if part.parts > 1:
        found = {"id": part.number * shards + shard, "max": part.parts * shards}
    return {
        "pit": {"id": pit},
        **({"slice": found} if found["max"] != 1 else {}),  # the server refuses a single slice
        "query": {"range": {"_seq_no": {"gte": low, "lt": high}}},
        "track_total_hits": False,
    }


def documents_of_page(largest: int) -> int:
    """Return how many documents a page may have, given the bytes of the largest one."""
    return max(1, min(PAGE_DOCUMENTS, 2 * PAGE_BYTES // max(largest, 1)))


def index_parts(
    client: OpenSearch, pit: str, shards: int, parallelism: int, part: Part = EVERYTHING
) -> list[dict[str, Any]]:
    """Cut an index at a point in time into parts that are read in parallel; every document is in exactly one part."""
    parts: list[dict[str, Any]] = []
    for shard in range(shards):
        query = part_of_index(pit, shard, shards)
        query |= {"aggs": {"newest": {"max": {"field": "_seq_no"}}}, "size": 0}
        answer = client.search(body=query, params=WHOLE)
        with reading(answer):
            end = int(answer["aggregations"]["newest"]["value"] or 0) + 1
        pieces = max(-(-end // (RANGE_DOCUMENTS * part.parts)), -(-parallelism // (shards * part.parts)))
        ends = [end * piece // pieces for piece in range(pieces + 1)]
        parts += [part_of_index(pit, shard, shards, *each, part) for each in pairwise(ends) if each[0] < each[1]]
    return parts


def read_index(
    spark: SparkSession,
    config: SyncConfig,
    parts: list[dict[str, Any]],
    most: int,
    page_of: Callable[[str], Page],
    suffix: str,
) -> DataFrame:
    """Read the parts of an index page by page, one task for each part; return id, digest, version and place, if any."""
    connection, retry_seconds = Connection.of(config), config.retry_timeout_seconds

    def read_part(part: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        # Within one shard, `_doc` is an order without ties. With a filter_path the server would parse each document.
        query = {**part, "size": min(FIRST_DOCUMENTS, most), "sort": ["_doc"], "version": True}
        with closing(connection.client(1, retry_seconds=retry_seconds, parses=False)) as client:
            while True:
                answer: Any = client.search(body=query, params=WHOLE)
                if not isinstance(answer, str):
                    raise unusable_answer_error("the answer does not end with its hits", answer)
                with reading(answer):
                    rows, query["search_after"] = page_of(answer)
                if not rows:
                    return
                query["size"] = min(max(PAGE_BYTES * len(rows) // len(answer), 1), most)
                yield pa.RecordBatch.from_pydict(dict(zip(_HITS.names, zip(*rows, strict=True), strict=True)), _HITS)

    def read_parts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep_archive_caches()
        gc.disable()  # parsed JSON is many objects without cycles
        try:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from read_part(parts[number])
        except OpenSearchException as error:
            raise typed_error(error, connection.url, "reading the index", connection.username) from error
        finally:
            gc.enable()

    found = spark.range(0, len(parts), 1, len(parts)).mapInArrow(
        read_parts, "id string, digest string, version long, place string"
    )
    if config.index_column:
        return found.withColumn("place", F.concat(F.lit(f"{suffix}/"), F.coalesce("place", F.lit(""))))
    if config.routing:
        return found
    # Somebody else wrote it, perhaps in another shard, so it is the document of no row.
    return found.withColumn("id", F.concat_ws(FOREIGN_ROUTING, "id", "place")).drop("place")


def unknown_slices_error(why: str) -> UnknownSlicesError:
    return UnknownSlicesError(
        f"This OpenSearch slices a search by another function than icecdc knows: {why}",
        subject="part",
        remedy="leave part out, which compares everything, and set audit_seconds to 0; please report the version of "
        "OpenSearch",
    )
