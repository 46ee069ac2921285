"""Decodes records of every format into one form: a JSON payload with its operation, or the problem of the record."""

import re
from collections.abc import Collection
from functools import cache, partial

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, functions as F, types as T

from icecdc_core.columns import OWN_PREFIX
from icecdc_core.errors import ConfigError
from icecdc_core.ingest.config import OWN_TABLES, IngestConfig, quoted_table
from icecdc_core.ingest.formats import change_events, schemas
from icecdc_core.ingest.formats.decode_results import (
    ENVELOPE,
    IGNORED,
    LONE_SURROGATE,
    LONG_NUMBER,
    PARTIAL,
    SECRET,
    TRUNCATE,
    decode_by_schema,
    decode_result,
    evaluate_once,
    has_lone_surrogate,
    has_long_number,
    has_too_big_number,
    json_field,
    once,
    parse_operation,
)
from icecdc_core.ingest.formats.logical_types import LogicalType, column_type, payload_json
from icecdc_core.ingest.offsets import Routed
from icecdc_core.ingest.rows import schema_problem
from icecdc_core.session.jvm import java_class
from icecdc_core.table.catalogs import describe_failure

_RESULT = f"{OWN_PREFIX}decode_result"
_NOT_UTF8 = "the value is not valid UTF-8"
_NO_VALUE = "the record has no value"


def decode_records(
    records: DataFrame,
    settings: IngestConfig,
    known_schemas: dict[int, schemas.RegisteredSchema] | None = None,
    envelope: Collection[str] = (),
) -> DataFrame:
    """Decode the records of a batch; plain JSON is not parsed yet: `parse_rows` finds what is wrong in it.

    Of a change event in Avro, `envelope` names fields for the column `ENVELOPE`; one in JSON has them in its value.
    """
    columns = [name for name in records.columns if name != "timestampType"]
    if settings.tombstones == "ignore":
        records = records.where(F.col("value").isNotNull())
    body, tombstone = F.coalesce(F.col("value"), F.col("key")), F.col("value").isNull()
    if settings.tombstones == "reject":
        body, tombstone = F.col("value"), F.lit(False)
    if settings.format == "json":
        decoded = records.select(*columns, *_decode_plain(body.cast("string"), tombstone, settings))
    else:
        if settings.format in ("debezium_json", "dms"):
            result = _decode_change_text(records, body.cast("string"), tombstone, settings)
        else:
            known = {} if known_schemas is None else known_schemas
            result = _decode_wire_format(records, body, tombstone, settings, known, envelope)
        missing = decode_result(problem=_NO_VALUE, op=F.when(tombstone, F.lit("delete")))
        result = F.when(body.isNull(), missing).otherwise(result).alias(_RESULT)
        decoded = records.select(*columns, result).select(*columns, f"{_RESULT}.*")
        decoded = decoded if envelope and settings.format == "debezium_avro" else decoded.drop(ENVELOPE)
        unusable = F.when(F.col("payload").contains(SECRET), F.regexp_extract("payload", f'{SECRET}([^"]*)', 1))
        decoded = decoded.withColumns({"problem": F.coalesce("problem", unusable), "op": once(F.col("op"))})
        decoded = decoded.where(~F.col("op").eqNullSafe(IGNORED))
    if not settings.op_field:
        return decoded
    code = json_field(F.col("payload"), settings.op_field.split("."))
    return with_operation(decoded, code, f"the operation (field {settings.op_field})")


def with_operation(decoded: DataFrame, code: Column, what: str) -> DataFrame:
    """Add the operation that a code stands for; a tombstone has its own."""
    op, unknown = parse_operation(code, what)
    is_partial = (op == "upsert") & change_events.is_unavailable(F.col("payload"))  # may be Debezium's
    op = F.when(is_partial, F.lit(PARTIAL)).otherwise(op)
    problem = F.coalesce("problem", F.when(F.col("op").isNull(), unknown))
    return decoded.withColumns({"op": F.coalesce("op", op), "problem": problem})


def _decode_plain(text: Column, tombstone: Column, settings: IngestConfig) -> list[Column]:
    key = change_events.delete_by_key(text, settings)
    problem = F.when(text.isNull(), F.lit(_NO_VALUE)).when(~F.is_valid_utf8(text), F.lit(_NOT_UTF8))
    payload = F.when(tombstone, key["payload"]).otherwise(text)
    problem = problem.when(has_lone_surrogate(payload), F.lit(LONE_SURROGATE)).when(tombstone, key["problem"])
    return [
        payload.alias("payload"),
        F.when(tombstone, key["payload_type"]).alias("payload_type"),
        F.when(tombstone, F.lit("delete")).alias("op"),
        problem.alias("problem"),
        F.lit(None).cast("string").alias("before"),
    ]


def _decode_change_text(records: DataFrame, text: Column, tombstone: Column, settings: IngestConfig) -> Column:
    """Decode change events in JSON; one has a problem if its text has a value that the payload made of it has not."""

    def with_lost_values(decoded: Column) -> Column:
        payload = decoded["payload"]
        # A key without a schema is the payload, or plain text.
        is_parsed = ~tombstone | F.coalesce(decoded["payload_type"].startswith("{"), F.lit(False))
        is_infinite = is_parsed & payload.contains('Infinity"') & has_too_big_number(text, T.DoubleType())
        # Without a schema, a long number is a double in the payload, unless that is the record itself.
        is_variant = is_parsed & decoded["payload_type"].isNull() & (payload != text)
        problem = (
            F.when(has_lone_surrogate(F.when(is_parsed, text).otherwise(payload)), F.lit(LONE_SURROGATE))
            .when(is_infinite, F.lit("a number in it is too big for double"))
            .when(is_variant & has_long_number(text), F.lit(LONG_NUMBER))
        )
        is_usable = decoded["problem"].isNotNull() | problem.isNull()
        return F.when(is_usable, decoded).otherwise(decode_result(problem=problem))

    if settings.format == "dms":
        decoded = change_events.decode_dms(text, tombstone, settings)
    else:
        decoded = change_events.decode_debezium_json(records, text, tombstone, settings)
    result = F.when(~F.is_valid_utf8(text), decode_result(problem=_NOT_UTF8))
    return result.otherwise(evaluate_once(decoded, with_lost_values))


def _decode_wire_format(
    records: DataFrame,
    body: Column,
    tombstone: Column,
    settings: IngestConfig,
    known: dict[int, schemas.RegisteredSchema],
    envelope: Collection[str],
) -> Column:
    """Decode Confluent's wire format: a zero byte, the ID of the writer's schema in four bytes, the data."""
    wanted = {"json_schema": "JSON", "protobuf": "PROTOBUF"}.get(settings.format, "AVRO")
    if wanted == "AVRO":
        schemas.require_avro(records.sparkSession)
    if wanted == "PROTOBUF":
        schemas.require_protoc()
    url, auth = settings.schema_registry_url, settings.schema_registry_auth

    def id_of(body: Column) -> Column:
        has_header = (F.octet_length(body) >= 5) & (F.substring(body, 1, 1) == F.lit(b"\0"))
        return F.when(has_header, F.conv(F.hex(F.substring(body, 2, 4)), 16, 10).cast("bigint"))

    schema_id = id_of(body)
    start = F.substring("value", 6, 2)  # that `before` and `after`, the first fields, are null
    is_bare = (F.lit(settings.format) == "debezium_avro") & (start == F.lit(b"\0\0"))
    key_id = F.when(is_bare, F.coalesce(id_of(F.col("key")), F.lit(-1)))
    found = records.select(schema_id, key_id).distinct().collect()
    ids, key_ids = (sorted({row[place] for row in found} - {None}) for place in (0, 1))
    problem = F.lit("does not start with a zero byte and a four-byte schema ID, but with 0x")
    unframed = decode_result(problem=F.concat(problem, F.hex(F.substring(body, 1, 5))))

    def decode(body: Column, tombstone: Column, ids: list[int]) -> Column:
        # Keys are often plain texts or numbers, whatever the format of the values.
        text, data = body.cast("string"), F.substring(body, 6, (1 << 31) - 1)
        deleted = change_events.delete_by_key(F.when(F.is_valid_utf8(text), text), settings)
        schema_id = id_of(body)
        result = F.when(schema_id.isNull(), F.when(tombstone, deleted).otherwise(unframed))
        for number in ids:
            schema, name = schemas.registered_schema(number, known, url, auth), f"schema {number}"
            if isinstance(schema, str):
                decoded = decode_result(problem=schema)
            elif schema.kind != wanted:
                decoded = decode_result(problem=f"{name} is {schema.kind}, not {wanted}")
            else:
                avro = partial(_decode_avro, records, envelope)
                read = {"JSON": _decode_json, "PROTOBUF": _decode_protobuf}.get(wanted, avro)
                # Workers of Python get the data of all rows.
                own = F.when(schema_id == number, data) if wanted == "PROTOBUF" else data
                given = (name, schema, own, tombstone, settings)
                decoded = decode_by_schema(records, name, schema.text, partial(read, *given))
            result = result.when(schema_id == number, decoded)
        return result

    decoded = decode(body, tombstone, ids)
    if not key_ids:
        return decoded
    by_key = decode(F.col("key"), F.lit(True), [number for number in key_ids if number >= 0])
    return change_events.or_by_key(decoded, by_key)


def _decode_avro(
    records: DataFrame,
    envelope: Collection[str],
    name: str,
    schema: schemas.RegisteredSchema,
    data: Column,
    tombstone: Column,
    settings: IngestConfig,
) -> Column:
    value, logical_type = schemas.read_avro(records, schema, data)

    def with_gained_marks(result: Column) -> Column:
        # As JSON, each byte that is no character is U+FFFD, of which the payload then has more than the bytes.
        mark, texts = F.lit("\ufffd"), (result["payload"], data.cast("string"))
        gained, had = (F.octet_length(text) - F.octet_length(F.replace(text, mark)) for text in texts)
        invalid = decode_result(problem="a text in it is not valid UTF-8")
        return F.when(F.contains(texts[0], mark) & (gained > had), invalid).otherwise(result)

    def decode(row: Column) -> Column:
        if settings.format == "avro" and logical_type.fields:
            result = decode_result(payload_json(row, logical_type), column_type(logical_type).json())
            result = F.when(tombstone, change_events.delete_by_typed_key(row, logical_type)).otherwise(result)
        else:
            problem = f"{name} does not describe a {'record' if settings.format == 'avro' else 'change event'}"
            result = change_events.decode_debezium_envelope(row, logical_type, tombstone, settings, problem)
            if used := {each: kind for each, kind in logical_type.fields.items() if each in envelope}:
                fields = F.struct(*(row[each].alias(each) for each in used))
                beside = payload_json(fields, LogicalType(T.StructType(), fields=used))
                result = evaluate_once(result, lambda each: each.withField(ENVELOPE, beside))
        decoded = F.when(row.isNull(), decode_result(problem=f"the bytes do not fit {name}"))
        return decoded.otherwise(evaluate_once(result, with_gained_marks))

    return evaluate_once(value, decode)


def _decode_json(
    name: str, schema: schemas.RegisteredSchema, data: Column, tombstone: Column, settings: IngestConfig
) -> Column:
    text, kind = data.cast("string"), schemas.json_schema_struct(schema)
    if kind is None:
        other = decode_result(problem=f"{name} does not describe an object")
        return F.when(tombstone, change_events.delete_by_key(text, settings, is_json=True)).otherwise(other)
    problem = F.when(~F.is_valid_utf8(text), F.lit(_NOT_UTF8)).when(has_lone_surrogate(text), F.lit(LONE_SURROGATE))
    problem = problem.when(~tombstone, schema_problem(text, kind))
    return decode_result(text, kind.json(), F.when(tombstone, F.lit("delete")), problem)


def _decode_protobuf(
    name: str, schema: schemas.RegisteredSchema, data: Column, tombstone: Column, settings: IngestConfig
) -> Column:
    # Only users of this format have its libraries.
    from icecdc_core.ingest.formats.protobuf import decode_protobuf

    return decode_protobuf(name, schema, data, tombstone)


# Column with the name of the record's table, every part quoted; null if it has none, with the reason in `problem`.
TABLE = "_icecdc_table"
_VALUE = "_icecdc_value"

ROUTE = "_icecdc_route"
"""Column with what the expression `route` says: the name of a table, or an array of names."""

# Table names that records may use: they must not reach other namespaces, and every catalog must accept them. In Java,
# "$" also matches before a final line break.
_NAME = r"^[A-Za-z0-9_][A-Za-z0-9_-]{0,127}\z"
_NOT_IN_NAMES = "[^A-Za-z0-9_-]"


def route_records(
    decoded: DataFrame, config: IngestConfig, any_case: bool = False, named_by: Column | None = None
) -> DataFrame:
    """Add the table of each record; one that goes to several tables becomes several rows."""
    value, what = F.col("topic"), "the topic"
    if config.route_field:
        named = json_field(F.col("payload"), config.route_field.split(".")) if named_by is None else named_by
        named = F.nullif(named, F.lit(change_events.UNAVAILABLE))
        decoded, value, what = decoded.withColumn(_VALUE, once(named)), F.col(_VALUE), f"the field {config.route_field}"
    # A record that could not be decoded has no table, so it is one dead letter, however many expressions match.
    is_decoded, shown = F.col("problem").isNull(), F.substring(value, 1, 200)
    if config.route_by == "regex":
        found = [
            F.when(value.rlike(rf"^(?:{each})\z"), F.lit(quoted_table(name))) for name, each in config.routes.items()
        ]
        table = F.explode_outer(F.when(is_decoded, F.array_distinct(F.array_compact(F.array(*found)))))
        problem = F.concat(F.lit(f"no table: no expression matches {what}: "), F.coalesce(shown, F.lit("nothing")))
    else:
        own = [F.lower(F.lit(each)) for each in config.own_tables]

        def table_of(name: Column) -> Column:
            # In a catalog that ignores case, a second spelling of a name would find its batch written.
            named = F.concat(F.lit(f"{config.quoted_namespace}.`"), F.lower(name) if any_case else name, F.lit("`"))
            is_free = name.rlike(_NAME) & ~F.lower(named).isin(own) & ~F.lower(name).startswith(OWN_TABLES)
            return F.when(is_free, named)

        if config.route_by == "expression":
            names = F.col(ROUTE) if isinstance(decoded.schema[ROUTE].dataType, T.ArrayType) else F.array(ROUTE)
            names, what = F.array_compact(names), "route"
            tables = F.transform(names, table_of)
            # A record with one wrong name is one dead letter, and goes nowhere else.
            is_right = is_decoded & F.forall(tables, lambda each: each.isNotNull())
            table = F.explode_outer(F.when(is_right, F.array_distinct(tables)))
            value = F.when(F.size(names) > 0, F.array_join(names, ", "))
        else:
            name = F.regexp_replace("topic", _NOT_IN_NAMES, "_") if config.route_by == "topic" else value
            table = F.when(is_decoded, table_of(name))
        has = F.concat(F.lit(f"no table: {what} has "), F.substring(value, 1, 200))
        problem = F.coalesce(has, F.lit(f"no table: {what} is missing"))
    without = F.when(
        F.col("op") == TRUNCATE, F.lit(f"no table: a truncation has no row with {what}; route it otherwise")
    )
    problem = F.coalesce("problem", F.when(F.col(TABLE).isNull(), F.coalesce(without, problem)))
    return decoded.withColumn(TABLE, table).withColumn("problem", problem).drop(_VALUE, ROUTE)


def routed_topics(spark: SparkSession, config: IngestConfig) -> Routed:
    """Return how offsets are limited to the topics that are routed to a table: all, if a field decides."""

    @cache
    def is_routed(topic: str, table: str) -> bool:
        if config.route_by == "topic":  # perhaps more than one, if names differ only in case
            return f"{config.quoted_namespace}.`{re.sub(_NOT_IN_NAMES, '_', topic)}`".lower() == table.lower()
        if config.route_by != "regex" or config.route_field:
            return True
        expressions = [each for name, each in config.routes.items() if quoted_table(name) == table]
        pattern = java_class(spark, "java.util.regex.Pattern")
        return any(pattern.matches(expression, topic) for expression in expressions)

    return lambda table, offsets: {topic: parts for topic, parts in offsets.items() if is_routed(topic, table)}


def check_expressions(spark: SparkSession, config: IngestConfig) -> None:
    """Check the regular expressions with Java, which Spark and Kafka's client use."""
    routes = [("routes", expression) for expression in config.routes.values()]
    for parameter, expression in [("topic_pattern", config.topic_pattern), *routes]:
        try:
            java_class(spark, "java.util.regex.Pattern").compile(rf"^(?:{expression})\z")
        except (Py4JError, PySparkException) as error:
            raise ConfigError(
                f"This is not a Java regular expression: {describe_failure(error)}",
                subject=parameter,
                value=expression,
                remedy="correct it; the documentation of java.util.regex.Pattern describes the syntax",
            ) from error
