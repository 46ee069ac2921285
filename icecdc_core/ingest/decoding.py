"""Decodes records of every format into one form: a JSON payload with its operation, or the problem of the record."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from icecdc_core.columns import OWN_PREFIX
from icecdc_core.ingest.formats import debezium, dms
from icecdc_core.ingest.formats.confluent_wire import WireFormat
from icecdc_core.ingest.formats.decode_results import (
    LONE_SURROGATE,
    NOT_ONE_OBJECT,
    FormatSettings,
    decode_result,
    evaluate_once,
    expand_results,
    has_lone_surrogate,
    has_too_big_number,
    is_one_object,
    json_field,
    parse_operation,
    quoted_start,
)
from icecdc_core.ingest.formats.record_keys import delete_by_key
from icecdc_core.ingest.formats.registry import RegisteredSchema
from icecdc_core.ingest.rows import check_records

__all__ = ["FormatSettings", "decode_records"]

_RECORD_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "headers", "value")
_SCHEMA_ID = f"{OWN_PREFIX}schema_id"
_NOT_UTF8 = "the value is not valid UTF-8"
_NO_VALUE = "the record has no value"


def decode_records(
    records: DataFrame, settings: FormatSettings, known_schemas: dict[int, RegisteredSchema] | None = None
) -> DataFrame:
    """Decode the records of a batch.

    Plain JSON is not parsed yet: `parse_rows` finds what is wrong in it. The formats with a schema registry, and
    Debezium's JSON, read the frame once to collect the schemas of its records.
    """
    columns = [name for name in _RECORD_COLUMNS if name in records.columns]
    if settings.tombstones == "ignore":
        records = records.where(F.col("value").isNotNull())
    tombstone = F.col("value").isNull()
    if settings.tombstones == "reject":
        body, tombstone = F.col("value"), F.lit(False)
    else:
        body = F.coalesce(F.col("value"), F.col("key"))
    if settings.format == "json":
        return _decode_plain(records, columns, body.cast("string"), tombstone, settings)
    missing = decode_result(problem=F.lit(_NO_VALUE), op=F.when(tombstone, F.lit("delete")))
    if settings.format in ("debezium_json", "dms"):
        result = F.when(body.isNull(), missing).otherwise(_decode_json(records, body, tombstone, settings))
        return expand_results(records, result, columns)

    def check_json(kind: T.StructType) -> None:
        check_records(expand_results(records, decode_result(), columns), kind, F.lit(True))

    wire = WireFormat(records, body, tombstone, settings, {} if known_schemas is None else known_schemas, check_json)
    result = F.when(body.isNull(), missing).otherwise(wire.decode())
    if settings.format != "json_schema":
        return expand_results(records, result, columns)
    rows = expand_results(records.withColumn(_SCHEMA_ID, wire.schema_id), result, [*columns, _SCHEMA_ID])
    lone = F.when(has_lone_surrogate(F.col("payload")), F.lit(LONE_SURROGATE))
    rows = rows.withColumn("problem", F.coalesce("problem", lone))
    for schema_id, kind in wire.json_types.items():
        rows = check_records(rows, kind, (F.col(_SCHEMA_ID) == schema_id) & ~F.col("op").eqNullSafe("delete"))
    return rows.drop(_SCHEMA_ID)


def _decode_plain(
    records: DataFrame, columns: Sequence[str], text: Column, tombstone: Column, settings: FormatSettings
) -> DataFrame:
    key = delete_by_key(text, settings)
    problem = F.when(text.isNull(), F.lit(_NO_VALUE)).when(~F.is_valid_utf8(text), F.lit(_NOT_UTF8))
    payload = F.when(tombstone, key["payload"]).otherwise(text)
    problem = problem.when(has_lone_surrogate(payload), F.lit(LONE_SURROGATE)).when(tombstone, key["problem"])
    op = F.when(tombstone, F.lit("delete"))
    if settings.op_field:
        row_op, unknown = parse_operation(
            json_field(text, settings.op_field), f"the operation (field {settings.op_field})"
        )
        op = op.otherwise(row_op)
        problem = problem.when(~tombstone, unknown)
    result = {
        "payload": payload,
        "payload_type": F.when(tombstone, key["payload_type"]),
        "op": op,
        "problem": problem,
        "before": F.lit(None).cast("string"),
    }
    return records.select(*columns, *(column.alias(name) for name, column in result.items()))


def _decode_json(records: DataFrame, body: Column, tombstone: Column, settings: FormatSettings) -> Column:
    text = body.cast("string")
    if settings.format == "dms":
        result = dms.decode_json(text, tombstone, settings)
    else:
        result = debezium.decode_json(records, text, tombstone, settings)
    result = evaluate_once(result, lambda decoded: _with_lost_values(decoded, text, tombstone))
    return F.when(~F.is_valid_utf8(text), decode_result(problem=F.lit(_NOT_UTF8))).otherwise(result)


def _with_lost_values(decoded: Column, text: Column, tombstone: Column) -> Column:
    """The decode result, with a problem if the text has more than the payload that was made of it."""
    payload = decoded["payload"]
    # A key without a schema is the payload, or plain text.
    is_parsed = ~tombstone | F.coalesce(decoded["payload_type"].startswith("{"), F.lit(False))
    infinite = payload.contains('Infinity"') & has_too_big_number(text, T.DoubleType())
    problem = (
        F.when(has_lone_surrogate(F.when(is_parsed, text).otherwise(payload)), F.lit(LONE_SURROGATE))
        .when(is_parsed & ~is_one_object(text), F.concat(F.lit(NOT_ONE_OBJECT), quoted_start(text)))
        .when(is_parsed & infinite, F.lit("a number in it is too big for double"))
    )
    is_usable = decoded["problem"].isNotNull() | problem.isNull()
    return F.when(is_usable, decoded).otherwise(decode_result(problem=problem))
