"""Records of every format, decoded to one form: a JSON payload, what is to be done with it, or why it can't be read."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from icecdc_core.ingest.settings import FormatSettings

__all__ = ["FormatSettings", "decoded", "field"]

_KEPT = ("topic", "partition", "offset", "timestamp", "key", "headers", "value")


def decoded(records: DataFrame, settings: FormatSettings) -> DataFrame:
    """Decode the records of a batch.

    Args:
        records: Spark's Kafka columns; `headers` may be absent. Not a streaming frame.
        settings: Their format, and where the schemas are.

    Returns:
        `topic`, `partition`, `offset`, `timestamp`, `key`, `headers` (if given) and `value` as they came, then
        `payload` (the row's fields as JSON text), `payload_type` (the Spark schema of the payload as JSON where its
        writer tells, else null), `op` (``upsert``, ``delete`` or null: the table's mode decides) and `problem` (why
        the record cannot be used, else null). JSON is not parsed yet: what is wrong in it is found by `fitted`.
    """
    value = F.col("value").cast("string")
    problem = F.when(value.isNull(), F.lit("the record has no value")).when(
        ~F.is_valid_utf8(value), F.lit("the value is not valid UTF-8")
    )
    nothing = F.lit(None).cast("string")
    kept = [name for name in _KEPT if name in records.columns]
    return records.select(
        *kept,
        value.alias("payload"),
        nothing.alias("payload_type"),
        nothing.alias("op"),
        problem.alias("problem"),
    )


def field(payload: Column, name: str) -> Column:
    """Return one field of a payload as text; null where it is not there.

    Args:
        payload: The column `payload` of `decoded`.
        name: The field; dotted for fields of objects.
    """
    path = name.split(".")
    kind: T.DataType = T.StringType()
    for part in reversed(path):
        kind = T.StructType([T.StructField(part, kind)])
    assert isinstance(kind, T.StructType)
    column: Column = F.from_json(payload, kind, {"allowSingleQuotes": "false"})
    for part in path:
        column = column.getField(part)
    return column
