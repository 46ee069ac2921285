"""Digests of documents: of those the table's rows would be, and of those the index holds.

Two kinds. Of a document's text: the index keeps the bytes it was sent, so that as a rule these are equal where
documents are, and nothing has to be parsed; the table's side is worked out in the JVM alone. Of what the text says,
which also takes documents for equal that others wrote, or that were written before a column was added. Where digests of
texts all agree, those of contents would too.
"""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
from opensearchpy.exceptions import OpenSearchException
from opensearchpy.serializer import JSONSerializer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from icecdc_core.columns import RESERVED
from icecdc_core.opensearch.client import Connection, typed
from icecdc_core.session.python_workers import map_batches

if TYPE_CHECKING:
    from opensearchpy import OpenSearch

    from icecdc_core.config import SyncConfig

# A digest travels as two numbers, because Spark groups those by a hash map, and binary values by sorting.
_SOURCE_COLUMNS = "id string, high long, low long"
_INDEX_COLUMNS = "id string, high long, low long, version long"
_TEXT_COLUMNS = "id string, digest string"
PAGE_DOCUMENTS = 5000
# Documents, about, that one task reads. Each page looks its range up anew, so a range is to be short.
RANGE_DOCUMENTS = 200_000
# Documents that tell in which form an index holds them.
_SAMPLE = 100
# Where a shard does not answer, the server would by default answer with what the others have.
_WHOLE = {"allow_partial_search_results": "false"}
_NESTED = (ArrayType, MapType, StructType)


class _FastSerializer(JSONSerializer):
    """Reads answers several times faster than the client's own."""

    def loads(self, s: str) -> Any:
        return orjson.loads(s)


class _AsItCame(JSONSerializer):
    """Leaves answers text, when they end as they should."""

    def loads(self, s: str) -> Any:
        return s if s.endswith("]}}") else super().loads(s) and s


def digest(document: dict[str, Any], schema: StructType) -> bytes:
    """Return 16 bytes that are equal for equal documents of a table.

    Key order and white space do not matter, and a field that is null equals an absent one: a column that was
    added to the table later is null in its old rows and absent from their documents. An entry of a map that is null
    is an entry.
    """
    return _digester(schema)(document)


def _digester(schema: StructType) -> Callable[[dict[str, Any]], bytes]:
    present = _Nested(schema).present

    def digest_one(document: dict[str, Any]) -> bytes:
        text = orjson.dumps(present(document), option=orjson.OPT_SORT_KEYS)
        return hashlib.blake2b(text, digest_size=16).digest()

    return digest_one


def source_checksums(documents: DataFrame, schema: StructType) -> DataFrame:
    """Turn (id, document JSON) into (id, high, low), the last two being the halves of the digest."""

    def digest_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        digest_one = _digester(schema)
        for batch in batches:
            halves = _halves([digest_one(orjson.loads(text)) for text in batch.column("doc").to_pylist()])
            yield pa.RecordBatch.from_arrays([batch.column("id"), *halves], names=["id", "high", "low"])

    return map_batches(documents.select("id", "doc"), digest_batches, _SOURCE_COLUMNS)


def source_text_checksums(documents: DataFrame) -> DataFrame:
    """As `source_checksums`, of the texts."""
    return _as_numbers(documents.select("id", F.sha2("doc", 256).alias("digest")))


def _as_numbers(texts: DataFrame) -> DataFrame:
    """A text ``digest`` of 64 digits as ``high`` and ``low``, a hash of each half.

    Of two hashes of the whole the second would say no more than the first, whatever its seed: somebody could try texts
    until two agree in 64 bits.
    """
    halves = {"high": 1, "low": 33}
    return texts.select("id", *(F.xxhash64(F.substring("digest", at, 32)).alias(half) for half, at in halves.items()))


class _Part(NamedTuple):
    """A part of an index: of one shard, the sequence numbers from ``low`` to below ``high``."""

    shard: int
    shards: int
    low: int
    high: int

    def query(self, pit: str) -> dict[str, Any]:
        return {
            "pit": {"id": pit},
            # As many slices as shards are the shards themselves, without a look at any document; slices within a shard
            # would look at all of its documents for each page. One slice is no slice for the server.
            **({"slice": {"field": "_seq_no", "id": self.shard, "max": self.shards}} if self.shards > 1 else {}),
            "query": {"range": {"_seq_no": {"gte": self.low, "lt": self.high}}},
            "track_total_hits": False,
        }


def index_parts(client: OpenSearch, pit: str, shards: int, parallelism: int) -> list[_Part]:
    """Cut an index at a point in time into parts to be read side by side; every document is in one of them.

    Args:
        client: The client.
        pit: The point in time.
        shards: Number of its primary shards.
        parallelism: So many readers there are at least.
    """
    parts = []
    for shard in range(shards):
        query = _Part(shard, shards, 0, 1 << 62).query(pit)
        newest = {"aggs": {"newest": {"max": {"field": "_seq_no"}}}, "size": 0}
        found = client.search(body={**query, **newest}, params=_WHOLE)["aggregations"]["newest"]["value"]
        end = int(found or 0) + 1
        pieces = max(-(-end // RANGE_DOCUMENTS), -(-parallelism // shards))
        ends = [end * piece // pieces for piece in range(pieces + 1)]
        parts += [_Part(shard, shards, low, high) for low, high in pairwise(ends) if low < high]
    return parts


def holds_texts_of(client: OpenSearch, pit: str, schema: StructType) -> bool:
    """Whether the index's oldest documents are in the form that rows get now, so that texts are worth comparing."""
    query = {**_Part(0, 1, 0, 1 << 62).query(pit), "size": _SAMPLE, "sort": ["_doc"]}
    hits = client.search(body=query, params=_WHOLE)["hits"]["hits"]
    names = [name for name in schema.names if name not in RESERVED]
    return all(list(hit["_source"]) == names for hit in hits)


def index_checksums(
    spark: SparkSession, config: SyncConfig, schema: StructType, pit: str, parts: list[_Part]
) -> DataFrame:
    """Read an index at a point in time as (id, high, low, version), a task for each of the ``index_parts``."""

    def pages(client: OpenSearch, query: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        digest_one = _digester(schema)
        # Any filter_path would have the server parse each document instead of passing its bytes on.
        while hits := client.search(body=query, params=_WHOLE)["hits"]["hits"]:
            digests = _halves([digest_one(hit["_source"]) for hit in hits])
            yield _batch(_INDEX_COLUMNS, [hit["_id"] for hit in hits], *digests, [hit["_version"] for hit in hits])
            query["search_after"] = hits[-1]["sort"]

    return _read(spark, config, pit, parts, _FastSerializer(), pages, _INDEX_COLUMNS)


def index_text_checksums(
    spark: SparkSession, config: SyncConfig, pit: str, parts: list[_Part], index: str
) -> DataFrame:
    """As `index_checksums`, of the texts; ``index`` is the physical index, as it stands in answers.

    ``version`` is null: only where all agree do texts have the last word, and then nobody asks for it.

    Answers are cut at what stands around documents. A document that holds the same itself would be cut in the wrong
    place, and what comes of it agrees with no row.
    """

    def pages(client: OpenSearch, query: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        while hits := _cut(str(client.search(body=query, params=_WHOLE)), index):
            yield _batch(_TEXT_COLUMNS, *zip(*(hit[:2] for hit in hits), strict=True))
            query["search_after"] = orjson.loads(hits[-1][2])

    texts = _read(spark, config, pit, parts, _AsItCame(), pages, _TEXT_COLUMNS)
    return _as_numbers(texts).withColumn("version", F.lit(None).cast("long"))


def _cut(answer: str, index: str) -> list[tuple[str, str, str]]:
    """Id, digest of the document's text and place in the order of each hit of an answer."""
    hits = []
    for hit in answer.split('{"_index":"' + index + '","_id":"')[1:]:
        identifier, _, rest = hit.partition('","_version":')
        before, _, after = rest.rpartition(',"sort":')
        text = before.partition('"_source":')[2]
        hits.append(
            (
                _unescaped(identifier) if "\\" in identifier else identifier,
                hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(),
                after.partition("]")[0] + "]",
            )
        )
    return hits


def _unescaped(text: str) -> str:
    try:
        return str(orjson.loads(f'"{text}"'))
    except orjson.JSONDecodeError:
        return text  # cut in the wrong place


def _read(
    spark: SparkSession,
    config: SyncConfig,
    pit: str,
    parts: list[_Part],
    answers: JSONSerializer,
    pages: Callable[[OpenSearch, dict[str, Any]], Iterator[pa.RecordBatch]],
    columns: str,
) -> DataFrame:
    """Read the parts of an index page by page, a task for each; `pages` gets a client and the first page's query."""
    connection, patience = Connection.of(config), config.retry_timeout_seconds

    def read_part(part: _Part) -> Iterator[pa.RecordBatch]:
        client = connection.client(1, retry_seconds=patience, answers=answers)
        # Within one shard a document's place is an order without ties.
        query: dict[str, Any] = {**part.query(pit), "size": PAGE_DOCUMENTS, "sort": ["_doc"], "version": True}
        try:
            with _no_search_for_cycles():
                yield from pages(client, query)
        except OpenSearchException as error:
            raise typed(error, connection.url, "reading the index") from error
        finally:
            client.close()

    def read_parts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from read_part(parts[number])

    return map_batches(spark.range(0, len(parts), 1, len(parts)), read_parts, columns)


def _batch(columns: str, *values: Any) -> pa.RecordBatch:
    names = [column.split()[0] for column in columns.split(", ")]
    arrays = [each if isinstance(each, pa.Array) else pa.array(each) for each in values]
    return pa.RecordBatch.from_arrays(arrays, names=names)


@contextmanager
def _no_search_for_cycles() -> Iterator[None]:
    """Spare Python's search for cycles in what was just parsed, which has none."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _halves(digests: list[bytes]) -> list[pa.Array]:
    numbers = np.frombuffer(b"".join(digests), dtype="<i8").reshape(-1, 2)
    return [pa.array(np.ascontiguousarray(numbers[:, half])) for half in (0, 1)]


class _Nested:
    """Which parts of a document are structs, lists and maps; made once, as a row may hold thousands of values."""

    def __init__(self, data_type: DataType) -> None:
        self.is_map = isinstance(data_type, MapType)
        self.element: _Nested | None = None
        self.fields: dict[str, _Nested] = {}
        if isinstance(data_type, StructType):
            nested = {field.name: field.dataType for field in data_type.fields if isinstance(field.dataType, _NESTED)}
            self.fields = {name: _Nested(inner) for name, inner in nested.items()}
            return
        inner = data_type.valueType if isinstance(data_type, MapType) else getattr(data_type, "elementType", None)
        if isinstance(inner, _NESTED):
            self.element = _Nested(inner)

    def present(self, value: Any) -> Any:
        """Return the value without those fields of structs that are null."""
        if isinstance(value, list):
            return [self.element.present(inner) for inner in value] if self.element else value
        if not isinstance(value, dict):
            return value
        if self.is_map:
            return {key: self.element.present(inner) for key, inner in value.items()} if self.element else value
        fields = self.fields
        if not fields and None not in value.values():
            return value
        return {
            key: fields[key].present(inner) if key in fields else inner
            for key, inner in value.items()
            if inner is not None
        }
