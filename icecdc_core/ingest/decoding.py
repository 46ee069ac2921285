"""Decodes records of every format into one form: a JSON payload with its operation, or the problem of the record."""

from functools import partial

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, functions as F, types as T

from icecdc_core.errors import ConfigError
from icecdc_core.ingest.config import OWN_TABLES, IngestConfig, quoted_table
from icecdc_core.ingest.formats.change_events import (
    decode_debezium_envelope,
    decode_debezium_json,
    decode_dms,
    decode_without_rows,
    delete_by_key,
    delete_by_typed_key,
    unavailable_problem,
)
from icecdc_core.ingest.formats.decode_results import (
    LONE_SURROGATE,
    decode_by_schema,
    decode_result,
    evaluate_once,
    expand_results,
    has_lone_surrogate,
    has_long_number,
    has_too_big_number,
    json_field,
    parse_operation,
)
from icecdc_core.ingest.formats.logical_types import LogicalType, column_type, payload_json
from icecdc_core.ingest.formats.schemas import (
    RegisteredSchema,
    SchemaRegistry,
    json_schema_struct,
    read_avro,
    require_avro,
)
from icecdc_core.ingest.rows import schema_problem
from icecdc_core.session.jvm import java_class
from icecdc_core.table.catalogs import describe_failure

_RECORD_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "headers", "value")
_NOT_UTF8 = "the value is not valid UTF-8"
_NO_VALUE = "the record has no value"


def decode_records(
    records: DataFrame, settings: IngestConfig, known_schemas: dict[int, RegisteredSchema] | None = None
) -> DataFrame:
    """Decode the records of a batch; plain JSON is not parsed yet: `parse_rows` finds what is wrong in it."""
    columns = [name for name in _RECORD_COLUMNS if name in records.columns]
    if settings.tombstones == "ignore":
        records = records.where(F.col("value").isNotNull())
    body, tombstone = F.coalesce(F.col("value"), F.col("key")), F.col("value").isNull()
    if settings.tombstones == "reject":
        body, tombstone = F.col("value"), F.lit(False)
    if settings.format == "json":
        decoded = records.select(*columns, *_decode_plain(body.cast("string"), tombstone, settings))
        return _with_operation(decoded, settings.op_field)
    if settings.format in ("debezium_json", "dms"):
        text = body.cast("string")
        decode = partial(decode_debezium_json, records) if settings.format == "debezium_json" else decode_dms
        result = evaluate_once(
            decode(text, tombstone, settings), lambda decoded: _with_lost_values(decoded, text, tombstone)
        )
        result = F.when(~F.is_valid_utf8(text), decode_result(problem=_NOT_UTF8)).otherwise(result)
    else:
        schemas = {} if known_schemas is None else known_schemas
        result = _decode_wire_format(records, body, tombstone, settings, schemas)
    missing = decode_result(problem=_NO_VALUE, op=F.when(tombstone, F.lit("delete")))
    decoded = expand_results(records, F.when(body.isNull(), missing).otherwise(result), columns)
    return _with_operation(decoded, settings.op_field)


def _decode_plain(text: Column, tombstone: Column, settings: IngestConfig) -> list[Column]:
    key = delete_by_key(text, settings)
    problem = F.when(text.isNull(), F.lit(_NO_VALUE)).when(~F.is_valid_utf8(text), F.lit(_NOT_UTF8))
    payload = F.when(tombstone, key["payload"]).otherwise(text)
    problem = problem.when(has_lone_surrogate(payload), F.lit(LONE_SURROGATE)).when(tombstone, key["problem"])
    payload_type, before = F.when(tombstone, key["payload_type"]), F.lit(None).cast("string")
    op = F.when(tombstone, F.lit("delete"))
    columns = {"payload": payload, "payload_type": payload_type, "op": op, "problem": problem, "before": before}
    return [column.alias(name) for name, column in columns.items()]


def _with_operation(decoded: DataFrame, op_field: str) -> DataFrame:
    """Take the operation from a field of the record; a tombstone has one."""
    if not op_field:
        return decoded
    op, unknown = parse_operation(json_field(F.col("payload"), op_field), f"the operation (field {op_field})")
    lost = F.when(op == "upsert", unavailable_problem(F.col("payload")))  # plain records may be Debezium's
    problem = F.coalesce("problem", F.when(F.col("op").isNull(), F.coalesce(unknown, lost)))
    return decoded.withColumns({"op": F.coalesce("op", op), "problem": problem})


def _with_lost_values(decoded: Column, text: Column, tombstone: Column) -> Column:
    """The decode result, with a problem if the text has a value that the payload made of it has not."""
    payload = decoded["payload"]
    # A key without a schema is the payload, or plain text.
    is_parsed = ~tombstone | F.coalesce(decoded["payload_type"].startswith("{"), F.lit(False))
    infinite = payload.contains('Infinity"') & has_too_big_number(text, T.DoubleType())
    problem = F.when(has_lone_surrogate(F.when(is_parsed, text).otherwise(payload)), F.lit(LONE_SURROGATE)).when(
        is_parsed & infinite, F.lit("a number in it is too big for double")
    )
    # Without a schema, such a number is a double in the payload, unless that is the record itself.
    is_variant = is_parsed & decoded["payload_type"].isNull() & (payload != text)
    problem = problem.when(is_variant & has_long_number(text), F.lit("a number in it has more digits than a double"))
    is_usable = decoded["problem"].isNotNull() | problem.isNull()
    return F.when(is_usable, decoded).otherwise(decode_result(problem=problem))


def _decode_wire_format(
    records: DataFrame,
    body: Column,
    tombstone: Column,
    settings: IngestConfig,
    known_schemas: dict[int, RegisteredSchema],
) -> Column:
    """Decode Confluent's wire format: a zero byte, the ID of the writer's schema in four bytes, the data."""
    spark, wanted = records.sparkSession, "JSON" if settings.format == "json_schema" else "AVRO"
    if wanted == "AVRO":
        require_avro(spark)
    registry = SchemaRegistry(settings.schema_registry_url, settings.schema_registry_auth, known_schemas)
    data = F.substring(body, 6, (1 << 31) - 1)

    def by_schema(number: int, schema: RegisteredSchema | str) -> Column:
        if isinstance(schema, str):
            return decode_result(problem=schema)
        if schema.kind != wanted:
            return decode_result(problem=f"schema {number} is {schema.kind}, not {wanted}")
        if wanted == "JSON":
            return _decode_json(number, schema, data.cast("string"), tombstone, settings)
        value, logical_type = read_avro(spark, schema, data)
        return evaluate_once(value, lambda row: _decode_avro(number, row, data, logical_type, tombstone, settings))

    has_header = (F.octet_length(body) >= 5) & (F.substring(body, 1, 1) == F.lit(b"\0"))
    schema_id = F.when(has_header, F.conv(F.hex(F.substring(body, 2, 4)), 16, 10).cast("bigint"))
    ids = records.select(schema_id).where(schema_id.isNotNull()).distinct().collect()
    head = F.concat(F.lit("0x"), F.hex(F.substring(body, 1, 5)))
    problem = F.concat(F.lit("does not start with a zero byte and a four-byte schema ID, but with "), head)
    # Keys are often plain texts or numbers, whatever the format of the values.
    text = body.cast("string")
    deleted = delete_by_key(F.when(F.is_valid_utf8(text), text), settings)
    result = F.when(~has_header, F.when(tombstone, deleted).otherwise(decode_result(problem=problem)))
    for number in sorted(int(row[0]) for row in ids):
        schema = registry.schema(number)
        shown = schema if isinstance(schema, str) else schema.text
        decode = partial(by_schema, number, schema)
        result = result.when(schema_id == number, decode_by_schema(records, f"schema {number}", shown, decode))
    return result


def _decode_avro(
    number: int, row: Column, data: Column, logical_type: LogicalType, tombstone: Column, settings: IngestConfig
) -> Column:
    what, result = "a record", None
    if settings.format == "debezium_avro":
        what, result = "a change event", decode_debezium_envelope(row, logical_type, settings)
    elif logical_type.fields:
        result = decode_result(payload_json(row, logical_type), column_type(logical_type).json())
    if result is None:
        result = decode_without_rows(row, logical_type, f"schema {number} does not describe {what}")
    result = F.when(tombstone, delete_by_typed_key(row, logical_type, settings)).otherwise(result)
    invalid = decode_result(problem="a text in it is not valid UTF-8")
    result = evaluate_once(result, lambda it: F.when(_gained_marks(it["payload"], data), invalid).otherwise(it))
    unreadable = decode_result(problem=f"the bytes do not fit schema {number}")
    return F.when(row.isNull(), unreadable).otherwise(result)


def _gained_marks(payload: Column, data: Column) -> Column:
    """Whether the JSON of Avro's bytes has more U+FFFD than these: as JSON, each byte that is no character is one."""
    mark = F.lit("\ufffd")

    def bytes_of_marks(text: Column) -> Column:
        return F.octet_length(text) - F.octet_length(F.replace(text, mark))

    gained = bytes_of_marks(payload) > bytes_of_marks(data.cast("string"))
    return F.coalesce(F.contains(payload, mark) & gained, F.lit(False))


def _decode_json(
    number: int, schema: RegisteredSchema, text: Column, tombstone: Column, settings: IngestConfig
) -> Column:
    kind = json_schema_struct(schema)
    if kind is None:
        other = decode_result(problem=f"schema {number} does not describe an object")
        return F.when(tombstone, delete_by_key(text, settings, is_json=True)).otherwise(other)
    problem = F.when(~F.is_valid_utf8(text), F.lit(_NOT_UTF8)).when(has_lone_surrogate(text), F.lit(LONE_SURROGATE))
    problem = problem.when(~tombstone, schema_problem(text, kind))
    return decode_result(text, kind.json(), F.when(tombstone, F.lit("delete")), problem)


TABLE = "_icecdc_table"
"""Column with the name of the record's table, every part quoted; null if it has none, with the reason in `problem`."""

_VALUE = "_icecdc_route"

# Table names that records may use: they must not reach other namespaces, and every catalog must accept them. In Java,
# "$" also matches before a final line break.
_NAME = "[A-Za-z0-9_][A-Za-z0-9_-]{0,127}"
_NOT_IN_A_NAME = "[^A-Za-z0-9_-]"


def route_records(
    decoded: DataFrame, config: IngestConfig, any_case: bool = False, named_by: Column | None = None
) -> DataFrame:
    """Add the table of each record; one that goes to several tables becomes several rows."""
    value, what = F.col("topic"), "the topic"
    if config.route_field:
        # Spark repeats a deterministic expression wherever its column is used, and would parse the record each time.
        named = json_field(F.col("payload"), config.route_field) if named_by is None else named_by
        once = F.when(F.monotonically_increasing_id() >= 0, named)
        decoded, value, what = decoded.withColumn(_VALUE, once), F.col(_VALUE), f"the field {config.route_field}"
    # A record that could not be decoded has no table, so it is one dead letter, however many expressions match.
    is_decoded, shown = F.col("problem").isNull(), F.substring(value, 1, 200)
    if config.route_by == "regex":
        found = [
            F.when(value.rlike(rf"^(?:{each})\z"), F.lit(quoted_table(name))) for name, each in config.routes.items()
        ]
        table = F.explode_outer(F.when(is_decoded, F.array_distinct(F.array_compact(F.array(*found)))))
        shown = F.coalesce(shown, F.lit("nothing"))
        problem = F.concat(F.lit(f"no table: no expression matches {what}: "), shown)
    else:
        name = F.regexp_replace("topic", _NOT_IN_A_NAME, "_") if config.route_by == "topic" else value
        # In a catalog that ignores case, a second spelling of a name would find its batch written.
        table = F.concat(F.lit(f"{config.quoted_namespace}.`"), F.lower(name) if any_case else name, F.lit("`"))
        is_own = F.lower(table).isin([F.lower(F.lit(own)) for own in config.own_tables])
        is_own = is_own | F.lower(name).startswith(OWN_TABLES)
        table = F.when(is_decoded & name.rlike(rf"^{_NAME}\z") & ~is_own, table)
        problem = F.concat(F.lit(f"no table: {what} has "), shown)
        problem = F.coalesce(problem, F.lit(f"no table: {what} is missing"))
    problem = F.coalesce("problem", F.when(F.col(TABLE).isNull(), problem))
    return decoded.withColumn(TABLE, table).withColumn("problem", problem).drop(_VALUE)


def check_expressions(spark: SparkSession, config: IngestConfig) -> None:
    """Check the regular expressions with Java, which Spark and Kafka's client use."""
    pattern = java_class(spark, "java.util.regex.Pattern")
    given = [("topic_pattern", config.topic_pattern), *(("routes", each) for each in config.routes.values())]
    for parameter, expression in given:
        try:
            pattern.compile(rf"^(?:{expression})\z")
        except (Py4JError, PySparkException) as error:
            raise ConfigError(
                f"This is not a Java regular expression: {describe_failure(error)}",
                subject=parameter,
                value=expression,
                remedy="correct it; the documentation of java.util.regex.Pattern describes the syntax",
            ) from error
