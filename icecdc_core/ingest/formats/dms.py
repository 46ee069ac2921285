"""Change records of the AWS Database Migration Service, in its two forms.

With `data` and `metadata`, as its Kafka target writes them (its documentation, "Using Apache Kafka as a target"), and
flat with `Op` beside the columns, as its S3 target writes them ("Indicating source DB operations").
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from icecdc_core.ingest.formats.decode_results import IGNORED, bound, outcome, told
from icecdc_core.ingest.formats.json_text import JSON_READ_OPTIONS, MALFORMED, SHOWN, unreadable
from icecdc_core.ingest.formats.record_keys import deleted_by
from icecdc_core.ingest.formats.settings import FormatSettings

OP = "Op"
"""The field of flat records; it needs no column."""

_SHAPE = f"data variant, metadata struct<operation string, `record-type` string>, {OP} string, {MALFORMED} string"


def change(text: Column, tombstone: Column, settings: FormatSettings) -> Column:
    """Return the outcome of a record: load, insert and update (I, U) upsert the row, delete (D) deletes it.

    Control records (of tables being made or changed) are ignored.

    Args:
        text: The value, or the key of a record without a value.
        tombstone: Whether it is the key.
        settings: See `FormatSettings`.
    """
    read = F.from_json(text, _SHAPE, JSON_READ_OPTIONS)
    return F.when(tombstone, deleted_by(text, settings)).otherwise(bound(read, lambda found: _outcome(found, text)))


def _outcome(read: Column, text: Column) -> Column:
    metadata = read["metadata"]
    nested_op, nested_problem = told(metadata["operation"], "the operation (metadata.operation)")
    flat_op, flat_problem = told(read[OP], f"the operation ({OP})")
    data = F.when(~F.is_variant_null(read["data"]), F.to_json(read["data"]))
    missing = F.when(data.isNull(), F.lit("the record has no data"))
    neither = unreadable(text, F.concat(F.lit("not a DMS record: '"), F.left(text, F.lit(SHOWN)), F.lit("'")))
    return (
        F.when(read.isNull() | read[MALFORMED].isNotNull(), outcome(problem=neither))
        .when(F.lower(metadata["record-type"]) == "control", outcome(op=F.lit(IGNORED)))
        .when(metadata.isNotNull(), outcome(data, None, nested_op, F.coalesce(nested_problem, missing)))
        .when(read[OP].isNotNull(), outcome(text, None, flat_op, flat_problem))
        .otherwise(outcome(problem=neither))
    )
