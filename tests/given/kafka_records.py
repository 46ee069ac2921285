"""Records as Spark reads them from Kafka, and how an ingest is configured for their format, without a broker."""

import json
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from icecdc_core.ingest import IngestConfig
from icecdc_core.ingest.rows import explain_rows, parse_rows

_COLUMNS = {"key": pa.binary(), "value": pa.binary(), "topic": pa.string(), "partition": pa.int32()}
_COLUMNS |= {"offset": pa.int64(), "timestamp": pa.timestamp("us", "UTC")}


def records(spark: SparkSession, pairs: Iterable[tuple[Any, Any]]) -> DataFrame:
    """Pairs of key and value as records; texts and objects, which become JSON, are encoded."""

    def data(value: Any) -> Any:
        value = json.dumps(value) if isinstance(value, dict) else value
        return value.encode() if isinstance(value, str) else value

    rows = [
        {"key": data(key), "value": data(value), "topic": "topic", "partition": 0, "offset": offset}
        for offset, (key, value) in enumerate(pairs)
    ]
    # As Arrow, for which Spark needs no Python worker.
    return spark.createDataFrame(pa.Table.from_pylist(rows, pa.schema(_COLUMNS))).coalesce(1)


def settings(**given: Any) -> SimpleNamespace:
    defaults = {name: field.get_default(call_default_factory=True) for name, field in IngestConfig.model_fields.items()}
    return SimpleNamespace(
        **{**defaults, "schema_registry_auth": "", "mode": "upsert", "keeps_deletes": False, **given}
    )


def parsed(*given: Any) -> DataFrame:
    return explain_rows(*parse_rows(*given))


def people(start: int, end: int) -> list[dict[str, Any]]:
    """The values of records: an id and a name for each number from start to below end."""
    return [{"id": number, "name": f"n{number}"} for number in range(start, end)]
