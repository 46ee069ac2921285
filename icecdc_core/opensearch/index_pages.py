"""Reading all documents of an index on the executors: in parts, page by page, at one point in time."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from opensearchpy.exceptions import OpenSearchException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from icecdc_core.dependencies import keep_archive_caches
from icecdc_core.opensearch.client import Connection, typed_error

if TYPE_CHECKING:
    from opensearchpy import OpenSearch

    from icecdc_core.config import SyncConfig


WHOLE = {"allow_partial_search_results": "false", "search_pipeline": "_none"}
"""Parameters of a search that reads every document as it is stored.

It fails if a shard does not answer; by default the others would answer alone. And it uses no search pipeline, because
the default one of an index may hide documents or fields.
"""

PAGE_DOCUMENTS = 5000
# Documents that one task reads, approximately. Each page searches its range again, so the range must be short.
RANGE_DOCUMENTS = 200_000

Page = tuple[list[tuple[str, str, int | None, str | None]], Any]
"""Id, digest, version and routing of each document of an answer, and what the next page is searched after."""


class IndexPart(NamedTuple):
    """A part of an index: the documents of one shard with sequence numbers from ``low`` to below ``high``."""

    shard: int
    shards: int
    low: int
    high: int

    def query(self, pit: str) -> dict[str, Any]:
        """Return the search for the part at a point in time."""
        return {
            "pit": {"id": pit},
            # With as many slices as shards, each slice is a shard. More slices would examine all documents of a shard
            # for each page. The server refuses a single slice.
            **({"slice": {"field": "_seq_no", "id": self.shard, "max": self.shards}} if self.shards > 1 else {}),
            "query": {"range": {"_seq_no": {"gte": self.low, "lt": self.high}}},
            "track_total_hits": False,
        }


def index_parts(client: OpenSearch, pit: str, shards: int, parallelism: int) -> list[IndexPart]:
    """Cut an index at a point in time into parts that are read in parallel; every document is in exactly one part."""
    parts = []
    for shard in range(shards):
        query = IndexPart(shard, shards, 0, 1 << 62).query(pit)
        newest = {"aggs": {"newest": {"max": {"field": "_seq_no"}}}, "size": 0}
        found = client.search(body={**query, **newest}, params=WHOLE)["aggregations"]["newest"]["value"]
        end = int(found or 0) + 1
        pieces = max(-(-end // RANGE_DOCUMENTS), -(-parallelism // shards))
        ends = [end * piece // pieces for piece in range(pieces + 1)]
        parts += [IndexPart(shard, shards, low, high) for low, high in pairwise(ends) if low < high]
    return parts


def read_index(
    spark: SparkSession,
    config: SyncConfig,
    pit: str,
    parts: list[IndexPart],
    page_of: Callable[[Any], Page],
    parses: bool,
    suffix: str,
) -> DataFrame:
    """Read the parts of an index page by page, one task for each part; return id, digest, version and place, if any."""
    connection, retry_seconds = Connection.of(config), config.retry_timeout_seconds

    def read_part(part: IndexPart) -> Iterator[pa.RecordBatch]:
        # Within one shard, `_doc` is an order without ties. With a filter_path the server would parse each document
        # instead of passing its bytes on.
        query: dict[str, Any] = {**part.query(pit), "size": PAGE_DOCUMENTS, "sort": ["_doc"], "version": True}
        with closing(connection.client(1, retry_seconds=retry_seconds, parses=parses)) as client:
            while True:
                rows, query["search_after"] = page_of(client.search(body=query, params=WHOLE))
                if not rows:
                    return
                columns = zip(*rows, strict=True)
                types = (pa.string(), pa.string(), pa.int64(), pa.string())
                arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, names=["id", "digest", "version", "place"])

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

    schema = "id string, digest string, version long, place string"
    found = spark.range(0, len(parts), 1, len(parts)).mapInArrow(read_parts, schema)
    if config.index_column:
        return found.withColumn("place", F.concat(F.lit(f"{suffix}/"), F.coalesce("place", F.lit(""))))
    return found if config.routing else found.drop("place")
