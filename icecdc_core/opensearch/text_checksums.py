"""Checksums of the JSON of documents as text: OpenSearch returns the bytes that it was sent, so nothing is parsed.

A validation of 300,000 equal documents takes about a quarter less time than with checksums of contents.
If the texts of a row and its document are equal, so are their contents. If not, only the contents show whether the
documents differ: somebody else may have written one, or a column was added after it was written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
from opensearchpy.serializer import JSONSerializer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from icecdc_core.columns import RESERVED
from icecdc_core.opensearch.index_pages import WHOLE, IndexPart, read_index, record_batch

if TYPE_CHECKING:
    from opensearchpy import OpenSearch
    from pyspark import Accumulator

    from icecdc_core.config import SyncConfig


_COLUMNS = "id string, digest string"
# Documents that show in which form an index stores them.
_SAMPLE = 100


class _UnparsedAnswers(JSONSerializer):
    """Leaves complete answers as texts."""

    def loads(self, s: str) -> Any:
        return s if s.endswith("]}}") else super().loads(s) and s


def source_text_checksums(documents: DataFrame) -> DataFrame:
    """Return the checksums of the texts of the table's rows."""
    return as_numbers(documents.select("id", F.sha2("doc", 256).alias("digest")))


def texts_are_comparable(client: OpenSearch, pit: str, schema: StructType) -> bool:
    """Whether the oldest documents of an index have the fields that rows have now, so that texts can be equal."""
    query = {**IndexPart(0, 1, 0, 1 << 62).query(pit), "size": _SAMPLE, "sort": ["_doc"]}
    hits = client.search(body=query, params=WHOLE)["hits"]["hits"]
    names = [name for name in schema.names if name not in RESERVED]
    return all(list(hit["_source"]) == names for hit in hits)


def index_text_checksums(
    spark: SparkSession,
    config: SyncConfig,
    pit: str,
    parts: list[IndexPart],
    index: str,
    read: Accumulator[int] | None = None,
) -> DataFrame:
    """Return the checksums of the texts of the documents of an index."""

    def pages(client: OpenSearch, query: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        while hits := split_hits(str(client.search(body=query, params=WHOLE)), index):
            yield record_batch(_COLUMNS, *zip(*(hit[:2] for hit in hits), strict=True))
            query["search_after"] = orjson.loads(hits[-1][2])

    texts = read_index(spark, config, pit, parts, _UnparsedAnswers(), pages, _COLUMNS, read)
    return as_numbers(texts).withColumn("version", F.lit(None).cast("long"))


def split_hits(answer: str, index: str) -> list[tuple[str, str, str]]:
    """Split an answer at the texts around its documents.

    A document that contains these texts is split in the wrong place; the parts then differ from every row.
    """
    hits = []
    for hit in answer.split('{"_index":"' + index + '","_id":"')[1:]:
        identifier, _, rest = hit.partition('","_version":')
        before, _, after = rest.rpartition(',"sort":')
        text = before.partition('"_source":')[2]
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        hits.append((_unescaped(identifier), digest, after.partition("]")[0] + "]"))
    return hits


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    try:
        return str(orjson.loads(f'"{text}"'))
    except orjson.JSONDecodeError:
        return text  # a hit that was split in the wrong place


def as_numbers(texts: DataFrame) -> DataFrame:
    """Turn a ``digest`` of 64 hexadecimal digits into two numbers, ``high`` and ``low``: a hash of each half.

    Two hashes of the whole digest would not be safer than one: somebody could search for texts whose digests have the
    same xxhash64, even for every seed.
    """
    halves = {"high": 1, "low": 33}
    return texts.select("id", *(F.xxhash64(F.substring("digest", at, 32)).alias(half) for half, at in halves.items()))
