"""Digests of documents: of those the table's rows would be, and of those the index holds."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pyarrow as pa
from opensearchpy.exceptions import OpenSearchException
from opensearchpy.serializer import JSONSerializer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from icecdc_core.cluster import Connection, typed
from icecdc_core.runs import KEEP_ALIVE

if TYPE_CHECKING:
    from icecdc_core.config import SyncConfig

# A digest travels as two numbers, because Spark groups those by a hash map, and binary values by sorting.
_SOURCE_COLUMNS = "id string, high long, low long"
_INDEX_COLUMNS = "id string, high long, low long, version long"
_PAGE = 2000
_NESTED = (ArrayType, MapType, StructType)


class _FastSerializer(JSONSerializer):
    """Reads answers several times faster than the client's own."""

    def loads(self, s: str) -> Any:
        return orjson.loads(s)


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


def source_digests(documents: DataFrame, schema: StructType) -> DataFrame:
    """Turn (id, document JSON) into (id, high, low), the last two being the halves of the digest."""

    def digest_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        digest_one = _digester(schema)
        for batch in batches:
            halves = _halves([digest_one(orjson.loads(text)) for text in batch.column("doc").to_pylist()])
            yield pa.RecordBatch.from_arrays([batch.column("id"), *halves], names=["id", "high", "low"])

    return documents.select("id", "doc").mapInArrow(digest_batches, _SOURCE_COLUMNS)


def index_digests(spark: SparkSession, config: SyncConfig, schema: StructType, pit: str, shards: int) -> DataFrame:
    """Read an index at a point in time as (id, high, low, version), in slices side by side, some for each shard."""
    slices = shards * max(1, -(-spark.sparkContext.defaultParallelism // shards))
    connection, patience = Connection.of(config), config.retry_timeout_seconds

    def read_slices(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from _read_slice(connection, schema, pit, number, slices, patience)

    numbers = spark.range(0, slices, 1, slices)
    return numbers.mapInArrow(read_slices, _INDEX_COLUMNS)


def _read_slice(
    connection: Connection, schema: StructType, pit: str, number: int, slices: int, patience: float = 0.0
) -> Iterator[pa.RecordBatch]:
    digest_one = _digester(schema)
    client = connection.client(1, patience_seconds=patience)
    client.transport.deserializer.serializers["application/json"] = _FastSerializer()
    query: dict[str, Any] = {
        "size": _PAGE,
        "pit": {"id": pit, "keep_alive": KEEP_ALIVE},
        # With at least as many slices as shards no slice spans two shards, so that a position within the shard is
        # an order without ties. Slicing by sequence number needs no field data of the ids on the heap.
        # One slice is no slice for the server.
        **({"slice": {"field": "_seq_no", "id": number, "max": slices}} if slices > 1 else {}),
        "sort": ["_doc"],
        "version": True,
        "track_total_hits": False,
    }
    try:
        while True:
            answer = client.search(body=query, params={"filter_path": "hits.hits"})
            hits = answer.get("hits", {}).get("hits", [])
            if not hits:
                return
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array([hit["_id"] for hit in hits], pa.string()),
                    *_halves([digest_one(hit["_source"]) for hit in hits]),
                    pa.array([hit["_version"] for hit in hits], pa.int64()),
                ],
                names=["id", "high", "low", "version"],
            )
            query["search_after"] = hits[-1]["sort"]
    except OpenSearchException as error:
        raise typed(error, connection.url, "reading the index") from error
    finally:
        client.close()


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
        return {
            key: fields[key].present(inner) if key in fields else inner
            for key, inner in value.items()
            if inner is not None
        }
