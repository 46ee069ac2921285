"""Change records of the AWS Database Migration Service (DMS), in its two forms.

The nested form has `data` and `metadata`, as the Kafka target writes it (AWS DMS documentation, "Using Apache Kafka as
a target"). The flat form has `Op` beside the columns, as the S3 target writes it ("Indicating source DB operations").
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from icecdc_core.ingest.formats.decode_results import (
    IGNORED,
    JSON_READ_OPTIONS,
    MALFORMED,
    FormatSettings,
    decode_result,
    evaluate_once,
    parse_operation,
    quoted_start,
    unreadable_reason,
)
from icecdc_core.ingest.formats.record_keys import delete_by_key

OP = "Op"
"""The field of flat records with the operation; it needs no column."""

_SHAPE = f"data variant, metadata struct<operation string, `record-type` string>, {OP} string, {MALFORMED} string"


def decode_json(text: Column, tombstone: Column, settings: FormatSettings) -> Column:
    """Return the decode result of a record.

    Load, insert (I) and update (U) upsert the row, delete (D) deletes it. Control records, which report that a table
    was created or changed, are ignored.
    """
    change = evaluate_once(F.from_json(text, _SHAPE, JSON_READ_OPTIONS), lambda parsed: _decode_change(parsed, text))
    return F.when(tombstone, delete_by_key(text, settings)).otherwise(change)


def _decode_change(parsed: Column, text: Column) -> Column:
    metadata = parsed["metadata"]
    nested_op, nested_problem = parse_operation(metadata["operation"], "the operation (metadata.operation)")
    flat_op, flat_problem = parse_operation(parsed[OP], f"the operation ({OP})")
    data = F.when(~F.is_variant_null(parsed["data"]), F.to_json(parsed["data"]))
    no_data = F.when(data.isNull(), F.lit("the record has no data"))
    other = F.concat(F.lit("not a DMS record: "), quoted_start(text))
    return (
        F.when(parsed.isNull() | parsed[MALFORMED].isNotNull(), decode_result(problem=unreadable_reason(text, other)))
        .when(F.lower(metadata["record-type"]) == "control", decode_result(op=F.lit(IGNORED)))
        .when(metadata.isNotNull(), decode_result(data, None, nested_op, F.coalesce(nested_problem, no_data)))
        .when(parsed[OP].isNotNull(), decode_result(text, None, flat_op, flat_problem))
        .otherwise(decode_result(problem=other))
    )
