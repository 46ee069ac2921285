"""Checksums of documents: those computed from the rows of a table, and those of an index.

In: a frame of documents, or an index at a point in time. Out: frames of document id and checksum.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from icecdc_core.dependencies import keep_archive_caches
from icecdc_core.opensearch.client import FastAnswers
from icecdc_core.opensearch.index_pages import WHOLE, IndexPart, read_index, record_batch

if TYPE_CHECKING:
    from opensearchpy import OpenSearch
    from pyspark import Accumulator

    from icecdc_core.config import SyncConfig


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
        columns = (
            {field.name: field.dataType for field in data_type.fields} if isinstance(data_type, StructType) else {}
        )
        value.pop(".".join(parts), None)
        for count in range(1, len(parts)):
            name = ".".join(parts[:count])
            if name in value:
                _remove(value[name], parts[count:], columns.get(name))
                if value[name] == {} and name not in columns:
                    del value[name]


# A checksum travels as two numbers, because Spark groups those by a hash map, and binary values by sorting.
_SOURCE_COLUMNS = "id string, high long, low long"
_INDEX_COLUMNS = "id string, high long, low long, version long"
_NESTED_TYPES = (ArrayType, MapType, StructType)


def checksum(document: dict[str, Any], schema: StructType) -> bytes:
    """Return 16 bytes that are equal for equal documents of a table.

    A field that is null equals an absent one: a column that was added later is null in the old rows of the table and
    absent from their documents. But an entry of a map whose value is null is an entry.
    """
    return _checksums_of(schema)(document)


def _checksums_of(schema: StructType) -> Callable[[dict[str, Any]], bytes]:
    present = _NestedType(schema).present

    def checksum_of(document: dict[str, Any]) -> bytes:
        content = present(document)
        try:
            text = orjson.dumps(content, option=orjson.OPT_SORT_KEYS)
        except TypeError:
            # Somebody else wrote a lone surrogate, which orjson refuses and no row of a table has.
            text = json.dumps(content, sort_keys=True).encode()
        return hashlib.blake2b(text, digest_size=16).digest()

    return checksum_of


def source_checksums(documents: DataFrame, schema: StructType) -> DataFrame:
    """Return the checksums of the table's rows."""

    def checksum_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep_archive_caches()
        checksum_of = _checksums_of(schema)
        for batch in batches:
            halves = _halves([checksum_of(orjson.loads(text)) for text in batch.column("doc").to_pylist()])
            yield pa.RecordBatch.from_arrays([batch.column("id"), *halves], names=["id", "high", "low"])

    return documents.select("id", "doc").mapInArrow(checksum_batches, _SOURCE_COLUMNS)


def index_checksums(
    spark: SparkSession,
    config: SyncConfig,
    schema: StructType,
    pit: str,
    parts: list[IndexPart],
    read: Accumulator[int] | None = None,
) -> DataFrame:
    """Return the checksums of the documents of an index, without the fields that an ingest pipeline makes."""
    pipeline_fields = config.pipeline_fields

    def pages(client: OpenSearch, query: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        checksum_of = _checksums_of(schema)
        # With a filter_path the server would parse each document instead of passing its bytes on.
        while hits := client.search(body=query, params=WHOLE)["hits"]["hits"]:
            sources = [without_fields(hit["_source"], pipeline_fields, schema) for hit in hits]
            digests = _halves([checksum_of(source) for source in sources])
            yield record_batch(
                _INDEX_COLUMNS, [hit["_id"] for hit in hits], *digests, [hit["_version"] for hit in hits]
            )
            query["search_after"] = hits[-1]["sort"]

    return read_index(spark, config, pit, parts, FastAnswers(), pages, _INDEX_COLUMNS, read)


def _halves(digests: list[bytes]) -> list[pa.Array]:
    numbers = np.frombuffer(b"".join(digests), dtype="<i8").reshape(-1, 2)
    return [pa.array(np.ascontiguousarray(numbers[:, half])) for half in (0, 1)]


class _NestedType:
    """Which values of a document are structs, lists and maps; built once for all documents."""

    def __init__(self, data_type: DataType) -> None:
        self.is_map = isinstance(data_type, MapType)
        self.element: _NestedType | None = None
        self.fields: dict[str, _NestedType] = {}
        if isinstance(data_type, StructType):
            nested = {
                field.name: field.dataType for field in data_type.fields if isinstance(field.dataType, _NESTED_TYPES)
            }
            self.fields = {name: _NestedType(inner) for name, inner in nested.items()}
            return
        inner = data_type.valueType if isinstance(data_type, MapType) else getattr(data_type, "elementType", None)
        if isinstance(inner, _NESTED_TYPES):
            self.element = _NestedType(inner)

    def present(self, value: Any) -> Any:
        """Return the value without the fields of structs that are null."""
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
