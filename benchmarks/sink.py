"""Documents per second into OpenSearch, against what the client itself offers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson
from opensearchpy import OpenSearch, helpers
from pyspark.sql import SparkSession, functions as F

from benchmarks.tables import rows_of
from icecdc_core.config import SyncConfig
from icecdc_core.documents.bulk_lines import to_actions
from icecdc_core.opensearch.bulk import BulkWriter, write_actions

PHYSICAL, ALIAS = "bench--000001", "bench--WRITE"
DOCUMENTS_PER_REQUEST = 2000


class SinkBenchmark:
    """Rows of ten columns as documents."""

    def __init__(self, spark: SparkSession, config: SyncConfig, documents: int) -> None:
        self._config, self._documents = config, documents
        self._client = OpenSearch(config.opensearch_url, maxsize=8, timeout=120)
        rows = rows_of(spark, 0, documents).select("*", F.lit("INSERT").alias("_change_type"))
        self._rows = rows.repartition(2).persist()
        self._rows.count()
        self._bodies = self._prebuilt()

    def contestants(self) -> dict[str, Callable[[], float]]:
        """Name to a run that returns its seconds; icecdc first."""
        return {
            "icecdc, from the executors": lambda: self._timed(self._icecdc),
            "prebuilt NDJSON, 2 connections": lambda: self._timed(lambda: self._post(2)),
            "prebuilt NDJSON, 4 connections": lambda: self._timed(lambda: self._post(4)),
            "helpers.parallel_bulk from the driver": lambda: self._timed(self._parallel_bulk),
            "helpers.streaming_bulk from the driver": lambda: self._timed(self._streaming_bulk),
        }

    def _icecdc(self) -> None:
        with write_actions(to_actions(self._rows, ["id"], 1), BulkWriter.of(self._config, ALIAS)):
            pass

    def _post(self, connections: int) -> None:
        with ThreadPoolExecutor(connections) as pool:
            list(
                pool.map(lambda body: self._client.bulk(body=body, index=PHYSICAL, filter_path="errors"), self._bodies)
            )

    def _parallel_bulk(self) -> None:
        for _ in helpers.parallel_bulk(self._client, self._operations(), 4, DOCUMENTS_PER_REQUEST):
            pass

    def _streaming_bulk(self) -> None:
        for _ in helpers.streaming_bulk(self._client, self._operations(), DOCUMENTS_PER_REQUEST):
            pass

    def _operations(self) -> Iterable[dict[str, Any]]:
        for body in self._bodies:
            lines = body.splitlines()
            for header, document in zip(lines[::2], lines[1::2], strict=True):
                identity = orjson.loads(header)["index"]["_id"]
                yield {"_op_type": "index", "_index": PHYSICAL, "_id": identity, "_source": orjson.loads(document)}

    def _prebuilt(self) -> list[bytes]:
        actions = [row.action for row in to_actions(self._rows, ["id"], 1).toLocalIterator()]
        size = DOCUMENTS_PER_REQUEST
        return ["".join(actions[start : start + size]).encode() for start in range(0, len(actions), size)]

    def _timed(self, write: Callable[[], None]) -> float:
        self._client.indices.delete(index=PHYSICAL, ignore_unavailable=True)
        settings = {"number_of_shards": 1, "number_of_replicas": 0, "refresh_interval": "-1"}
        self._client.indices.create(index=PHYSICAL, body={"settings": settings, "aliases": {ALIAS: {}}})
        begin = time.perf_counter()
        write()
        seconds = time.perf_counter() - begin
        self._client.indices.refresh(index=PHYSICAL)
        found = self._client.count(index=PHYSICAL)["count"]
        if found != self._documents:
            raise SystemExit(f"{found} documents were written, expected {self._documents}")
        return seconds
