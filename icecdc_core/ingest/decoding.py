"""Records of every format, decoded to one form: a JSON payload, what is to be done with it, or why it can't be read."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from icecdc_core.columns import OWN_PREFIX
from icecdc_core.ingest.formats import debezium, dms
from icecdc_core.ingest.formats.confluent_wire import WireFormat
from icecdc_core.ingest.formats.decode_results import outcome, spread, told
from icecdc_core.ingest.formats.json_text import field, unreadable
from icecdc_core.ingest.formats.record_keys import deleted_by
from icecdc_core.ingest.formats.settings import FormatSettings
from icecdc_core.ingest.rows.fitting import checked

__all__ = ["FormatSettings", "decoded", "field"]

_KEPT = ("topic", "partition", "offset", "timestamp", "key", "headers", "value")
_NUMBER = f"{OWN_PREFIX}schema_number"
_NOT_UTF8 = "the value is not valid UTF-8"


def decoded(records: DataFrame, settings: FormatSettings) -> DataFrame:
    """Decode the records of a batch.

    Plain JSON is not parsed yet: what is wrong in it is found by `fitted`. The formats with a schema registry, and
    Debezium's JSON, look through the frame once for the schemas that its records have.

    Args:
        records: Spark's Kafka columns; `headers` may be absent. Not a streaming frame.
        settings: Their format, and where the schemas are.

    Returns:
        `topic`, `partition`, `offset`, `timestamp`, `key`, `headers` (if given) and `value` as they came, then
        `payload` (the row's fields as JSON text), `payload_type` (the Spark schema of the payload as JSON where its
        writer gives one, `KEY_TEXT` for a key that is plain text, else null), `op` (``upsert``, ``delete`` or null:
        the table's mode decides) and `problem` (why the record cannot be used, else null). Records that tell of no row
        (control records, messages, and tombstones if they are to be ignored) are left out.

    Raises:
        SchemaRegistryError: The registry does not answer, or refuses to.
        ConfigError: The format needs a registry, and no URL is given.
        DependencyError: The format is Avro, and the session has no Avro reader.
    """
    kept = [name for name in _KEPT if name in records.columns]
    if settings.tombstones == "ignore":
        records = records.where(F.col("value").isNotNull())
    tombstone = F.col("value").isNull()
    if settings.tombstones == "reject":
        body, tombstone = F.col("value"), F.lit(False)
    else:
        body = F.coalesce(F.col("value"), F.col("key"))
    if settings.format == "json":
        return _plain(records, kept, body.cast("string"), tombstone, settings)
    missing = outcome(problem=F.lit("the record has no value"), op=F.when(tombstone, F.lit("delete")))
    if settings.format in ("debezium_json", "dms"):
        return spread(
            records, F.when(body.isNull(), missing).otherwise(_in_json(records, body, tombstone, settings)), kept
        )
    wire = WireFormat(records, body, tombstone, settings)
    result = F.when(body.isNull(), missing).otherwise(wire.outcome())
    if settings.format != "json_schema":
        return spread(records, result, kept)
    made = spread(records.withColumn(_NUMBER, wire.number), result, [*kept, _NUMBER])
    for number, kind in wire.json_types().items():
        made = checked(made, kind, (F.col(_NUMBER) == number) & ~F.col("op").eqNullSafe("delete"))
    return made.drop(_NUMBER)


def _plain(records: DataFrame, kept: list[str], text: Column, tombstone: Column, settings: FormatSettings) -> DataFrame:
    key = deleted_by(text, settings)
    problem = F.when(text.isNull(), F.lit("the record has no value")).when(~F.is_valid_utf8(text), F.lit(_NOT_UTF8))
    problem = problem.when(tombstone, key["problem"])
    op = F.when(tombstone, F.lit("delete"))
    if settings.op_field:
        done, unknown = told(field(text, settings.op_field), f"the operation (field {settings.op_field})")
        op, problem = op.otherwise(done), problem.when(~tombstone & unknown.isNotNull(), unreadable(text, unknown))
    columns = {
        "payload": F.when(tombstone, key["payload"]).otherwise(text),
        "payload_type": F.when(tombstone, key["payload_type"]),
        "op": op,
        "problem": problem,
    }
    return records.select(*kept, *(column.alias(name) for name, column in columns.items()))


def _in_json(records: DataFrame, body: Column, tombstone: Column, settings: FormatSettings) -> Column:
    text = body.cast("string")
    if settings.format == "dms":
        result = dms.change(text, tombstone, settings)
    else:
        result = debezium.from_json_text(records, text, tombstone, settings)
    return F.when(~F.is_valid_utf8(text), outcome(problem=F.lit(_NOT_UTF8))).otherwise(result)
