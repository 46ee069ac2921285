"""Change events of Debezium and AWS DMS, and tombstones: the row that an event changes, and the operation.

DMS has a nested form with `data` and `metadata` (its Kafka target), and a flat one with `Op` beside the columns (S3).
"""

import json
import re
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import date
from functools import partial, reduce
from operator import or_
from typing import Any

from pyspark.sql import Column, DataFrame, functions as F, types as T

from icecdc_core.columns import OWN_PREFIX, json_string
from icecdc_core.ingest.config import IngestConfig
from icecdc_core.ingest.formats.decode_results import (
    DELETES,
    ENVELOPE,
    IGNORED,
    IS_DELETE,
    JSON_READ_OPTIONS,
    PARTIAL,
    TRUNCATE,
    decode_by_schema,
    decode_result,
    evaluate_once,
    has_lone_surrogate,
    is_whole_object,
    json_field,
    parse_object,
    parse_operation,
    unreadable_reason,
    variant_text,
    with_start,
    wrapped_record,
)
from icecdc_core.ingest.formats.logical_types import DECIMAL, RETYPED, LogicalType, column_type, payload_json

UNAVAILABLE = "__debezium_unavailable_value"
# What Debezium writes for a large PostgreSQL value that did not change: the text, an object (hstore), its Base64
# for bytes, the bytes as numbers or as days, and its UUID. Searching first for what is rarer than a quote is faster.
_PLACEHOLDERS = {
    UNAVAILABLE: (f'"{UNAVAILABLE}"', rf'"{{\"{UNAVAILABLE}\":\"{UNAVAILABLE}\"}}"'),
    "X19k": ('"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="',),
    "[": (
        json.dumps([*UNAVAILABLE.encode()], separators=(",", ":")),
        json.dumps([str(date.fromordinal(719_163 + each)) for each in UNAVAILABLE.encode()], separators=(",", ":")),
        '["b68a35a7-17ad-35b3-af2a-ae46edb4545a"]',
    ),
}

# Records about the connector: by the names of their schemas; without one, by fields that they have and may have.
_ABOUT_CONNECTOR = re.compile(
    r"io\.debezium\.connector\.(common\.(Heartbeat|TransactionMetadataValue|Notification)|\w+\.SchemaChangeValue)"
)
_CONNECTOR_FIELDS = (
    ({"ts_ms"}, set[str]()),
    ({"status", "id"}, {"event_count", "data_collections", "ts_ms"}),
    ({"source", "databaseName", "ddl"}, {"ts_ms", "schemaName", "tableChanges", "position"}),
    ({"id", "aggregate_type", "type"}, {"additional_data", "timestamp"}),
)
_SIGNAL = r"^(snapshot-window-(open|close)|(execute|stop|pause|resume)-snapshot)\z"

_NO_BEFORE = "the change event deletes a row, but has no before to name the row"
# How a deletion without `before` begins. Nothing else is known of it before the batch is decoded.
_BARE_START = r'^\s*\{\s*("before"\s*:\s*null\s*,\s*)?"after"\s*:\s*null'
_LONGEST_START = 100

_PAYLOAD, _SCHEMA_FIRST = ',"payload":', '{"schema":'
# The same as texts of fields.
_WHOLE_VALUES = [
    *(json.loads(text) if text.startswith('"') else text for texts in _PLACEHOLDERS.values() for text in texts),
    json.dumps([UNAVAILABLE]),
]
UNAVAILABLE_PROBLEM = f"a value is {UNAVAILABLE}: unchanged, and not in the source's log"

_VARIANT = T.VariantType()  # it keeps numbers exact; `from_json` rounds a number in a text to a double
_EVENT = T.StructType().add("op", "string").add("before", _VARIANT).add("after", _VARIANT)
_DMS_RECORD = T.StructType([T.StructField(name, _VARIANT) for name in ("data", "before-image", "metadata")])
_DMS_RECORD = _DMS_RECORD.add("Op", "string")
_SIMPLE_TYPES: dict[str, T.DataType] = {
    **dict.fromkeys(("int8", "int16", "int32"), T.IntegerType()),
    "int64": T.LongType(),
    **dict.fromkeys(("float32", "float64"), T.DoubleType()),
    "boolean": T.BooleanType(),
    **dict.fromkeys(("string", "bytes"), T.StringType()),
}


def decode_debezium_envelope(
    event: Column, envelope: LogicalType, tombstone: Column, settings: IngestConfig, problem: Column | str
) -> Column:
    """Return the decode result of a value with a schema; the problem if that describes no change event and no key."""
    if not envelope.fields.keys() >= {"op", "before", "after"}:
        # A message of the log has a schema of its own.
        is_known = F.lit(_ABOUT_CONNECTOR.fullmatch(envelope.name) is not None)
        is_known = event["op"].cast("string") == "m" if "op" in envelope.fields else is_known
        other = F.when(is_known, decode_result(op=IGNORED)).otherwise(decode_result(problem=problem))
        return F.when(tombstone, delete_by_typed_key(event, envelope)).otherwise(other)
    row = envelope.fields["after"]
    if row.name == "io.debezium.data.Json":  # a document of MongoDB
        return _decode_change(event["op"], event["before"], event["after"], settings)
    if not row.fields:
        raise ValueError("after is no row")
    before, after = (payload_json(event[name], row) for name in ("before", "after"))
    return _decode_change(event["op"], before, after, settings, column_type(row).json())


def is_unavailable(row: Column) -> Column:
    """Whether a JSON text has an unavailable value, which must not overwrite the one in the table."""
    found = (row.contains(part) & reduce(or_, map(row.contains, texts)) for part, texts in _PLACEHOLDERS.items())
    return F.coalesce(reduce(or_, found), F.lit(False))


def unavailable_fields(payload: Column) -> Column:
    """The names of the fields that are unavailable; null if one is so within another field."""

    def names(fields: Column) -> Column:
        lost = F.map_filter(fields, lambda _, text: text.isin(*_WHOLE_VALUES))
        is_within = F.exists(F.map_values(fields), lambda text: ~text.isin(*_WHOLE_VALUES) & is_unavailable(text))
        return F.when(~is_within, F.map_keys(lost))

    return evaluate_once(F.from_json(payload, "map<string,string>", JSON_READ_OPTIONS), names)


def _decode_change(
    op: Column, before: Column, after: Column, settings: IngestConfig, payload_type: str | None = None
) -> Column:
    """The decode result of a Debezium event; docs/kafka-formats.md ("Operations") says which operation does what."""
    modes = (settings.mode, *(entry.get("mode") for entry in settings.tables.values()))
    if all(mode in ("append", None) for mode in modes):  # only a merge or a history needs the row before an update
        before = F.when(F.lower(op).isin(*DELETES), before)

    def decode(rows: Column) -> Column:
        op, before, after, row_op = (rows[name] for name in ("op", "before", "after", "row_op"))
        deletes = row_op == "delete"
        problem = (
            F.when(row_op.isNull(), parse_operation(op, named)[1])
            .when(deletes & before.isNull(), F.lit(_NO_BEFORE))
            .when(~deletes & after.isNull(), F.lit("the change event has no after, so there is no row"))
        )
        row, replaced = F.when(deletes, before).otherwise(after), F.when(~deletes, before)
        row_op = F.when(~deletes & is_unavailable(after), F.lit(PARTIAL)).otherwise(row_op)
        change = decode_result(row, payload_type, row_op, problem, replaced)
        change = F.when((op == "m") | _is_signal(row), decode_result(op=IGNORED)).otherwise(change)
        return F.when(op == "t", decode_result(op=TRUNCATE)).otherwise(change)

    named = "the operation of the change event (op)"
    row_op, _ = parse_operation(op, named)
    given = {"op": op, "before": before, "after": after, "row_op": row_op}
    return evaluate_once(F.struct(*(value.alias(name) for name, value in given.items())), decode)


def _is_signal(row: Column) -> Column:
    """Whether a row is a signal about a snapshot, of which a signalling table has three columns, in any case."""

    def is_signal(fields: Column) -> Column:
        others = F.array_except(F.map_keys(fields), F.lit(["id", "_id", "type", "data", "payload"]))
        return (F.size(fields) == 3) & (F.size(others) == 0) & F.try_element_at(fields, F.lit("type")).rlike(_SIGNAL)

    fields = F.from_json(F.lower(row), "map<string,string>", JSON_READ_OPTIONS)
    return F.coalesce(row.contains("snapshot") & evaluate_once(fields, is_signal), F.lit(False))


def _is_about_connector(text: Column) -> Column:
    """Whether a JSON text without an operation is a heartbeat, transaction boundary, schema change or notification."""

    def is_one(fields: Column) -> Column:
        names, status = F.map_keys(fields), F.try_element_at(fields, F.lit("status"))
        found = [
            (F.size(F.array_except(F.lit(sorted(has)), names)) == 0)
            & (F.size(F.array_except(names, F.lit(sorted(has | may_have)))) == 0)
            for has, may_have in _CONNECTOR_FIELDS
        ]
        return reduce(or_, found) & (status.isNull() | status.isin("BEGIN", "END"))

    whole = F.coalesce(F.from_json(text, "payload string", JSON_READ_OPTIONS)["payload"], text)
    return F.coalesce(evaluate_once(F.from_json(whole, "map<string,string>", JSON_READ_OPTIONS), is_one), F.lit(False))


def or_by_key(decoded: Column, by_key: Column) -> Column:
    """The decode result of a value; that of its key if it is a deletion without `before`."""
    by_key = F.coalesce(by_key, decode_result(problem=_NO_BEFORE))

    def chosen(value: Column) -> Column:
        def named(key: Column) -> Column:
            problem = F.replace(key["problem"], F.lit(_NO_VALUE), F.lit(_NO_BEFORE))
            return key.withField("problem", problem).withField(ENVELOPE, value[ENVELOPE])

        return F.when(value["problem"] == _NO_BEFORE, evaluate_once(by_key, named)).otherwise(value)

    return evaluate_once(decoded, chosen)


def decode_debezium_json(records: DataFrame, text: Column, tombstone: Column, settings: IngestConfig) -> Column:
    """Return the decode result of events in JSON, with or without their `schema` part."""
    key = F.col("key").cast("string")
    key = F.when(F.is_valid_utf8(key) & ~has_lone_surrogate(key), key)
    schema_part, of_key = (F.from_json(each, "schema string", JSON_READ_OPTIONS)["schema"] for each in (text, key))
    # Connect writes the schema first, so its text needs no parse: all records of a schema have it before the payload.
    # Where it is not there, the head would be the whole record.
    is_first = text.startswith(_SCHEMA_FIRST) & text.contains(_PAYLOAD)
    head = F.when(is_first, F.substring_index(text, _PAYLOAD, 1))
    ahead = F.coalesce(F.octet_length(head) + F.lit(len(_PAYLOAD)), F.lit(0))
    start = F.substr("value", ahead + 1, F.lit(_LONGEST_START)).cast("string")
    key_part = F.when(start.rlike(_BARE_START), F.coalesce(of_key, F.lit("null")))
    for part in (F.coalesce(F.substr(head, F.lit(len(_SCHEMA_FIRST) + 1)), schema_part), schema_part):
        found = records.select(part, key_part).distinct().collect()
        parts, key_parts = (sorted({row[place] for row in found} - {None}) for place in (0, 1))
        with suppress(ValueError, RecursionError):
            json.loads(f"[{','.join(parts)}]")
            break

    def decode_without_schema(event: Column) -> Column:
        inner = event["payload"]
        op = F.coalesce(event["op"], inner["op"])
        before, after = (
            F.coalesce(variant_text(event[name]), variant_text(inner[name])) for name in ("before", "after")
        )
        change = _decode_change(op, before, after, settings)
        return F.when(op.isNull() & _is_about_connector(text), decode_result(op=IGNORED)).otherwise(change)

    shape = T.StructType([*_EVENT.fields, T.StructField("payload", _EVENT)])
    change = _decode_object(text, shape, decode_without_schema, "not a change event")

    def decode(text: Column, part: Column, parts: list[str], tombstone: Column) -> Column:
        plain = F.when(tombstone, delete_by_key(text, settings)).otherwise(change)
        if not parts:
            return plain

        def choose(part: Column) -> Column:
            branches = F.when(part.isNull() | (part == "null"), plain)
            for schema in parts:
                decode = partial(_decode_with_schema, text, schema, tombstone, settings)
                decoded = decode_by_schema(records, "the schema part of the record", schema, decode)
                branches = branches.when(part == schema, decoded)
            return branches

        return evaluate_once(part, choose)

    decoded = decode(text, part, parts, tombstone)
    if not key_parts:
        return decoded
    return or_by_key(decoded, decode(key, of_key, [each for each in key_parts if each != "null"], F.lit(True)))


def _decode_object(text: Column, shape: T.StructType, decode: Callable[[Column], Column], otherwise: str) -> Column:
    """What a decoder makes of a text that is one object of a shape; a problem if it is not."""
    problem = decode_result(problem=unreadable_reason(text, with_start(otherwise, text)))
    return evaluate_once(
        parse_object(text, shape),
        lambda parsed: F.when(is_whole_object(parsed), decode(wrapped_record(parsed))).otherwise(problem),
    )


def _decode_with_schema(text: Column, schema_part: str, tombstone: Column, settings: IngestConfig) -> Column:
    whole, problem = _logical_type(json.loads(schema_part)), with_start("not a change event", text)
    return _decode_object(
        text,
        T.StructType([T.StructField("payload", whole.kind)]),
        lambda record: decode_debezium_envelope(record["payload"], whole, tombstone, settings, problem),
        "the record does not fit its own schema part",
    )


def _logical_type(node: dict[str, Any]) -> LogicalType:
    """The type of a value by the `schema` part of Connect's JSON converter."""
    kind, name, optional = node["type"], node.get("name") or "", bool(node.get("optional"))
    parameters = {key: str(value) for key, value in (node.get("parameters") or {}).items()}
    of = partial(LogicalType, name=name, parameters=parameters, optional=optional)
    if kind == "struct":
        fields = {field["field"]: _logical_type(field) for field in node["fields"]}
        if len(fields) < len(node["fields"]):
            raise ValueError("two fields have the same name")
        return of(T.StructType([T.StructField(key, each.kind) for key, each in fields.items()]), fields=fields)
    if kind == "array":
        item = _logical_type(node["items"])
        return of(T.ArrayType(item.kind), item=item)
    if kind == "map":
        item = _logical_type(node["values"])
        return of(T.MapType(T.StringType(), item.kind), item=item)
    if kind == "bytes" and name == DECIMAL:
        return of(_VARIANT)
    return of(_SIMPLE_TYPES[kind], name=kind if kind in RETYPED else name)


def decode_dms(text: Column, tombstone: Column, settings: IngestConfig) -> Column:
    """Return the decode result of a DMS record; control records say that a table changed, and are ignored."""

    def decode(record: Column) -> Column:
        metadata = record["metadata"]
        operation, kind = (F.try_variant_get(metadata, at, "string") for at in ("$.operation", "$['record-type']"))
        nested_op, nested_problem = parse_operation(operation, "the operation (metadata.operation)")
        flat_op, flat_problem = parse_operation(record["Op"], "the operation (Op)")
        is_missing = record["data"].isNull() | F.is_variant_null(record["data"])
        problem = F.coalesce(nested_problem, F.when(is_missing, F.lit("the record has no data")))
        data = F.when(~is_missing, F.to_json(record["data"]))
        before = F.when(nested_op == "upsert", F.to_json(record["before-image"]))
        return (
            F.when(record["Op"].isNotNull(), decode_result(text, None, flat_op, flat_problem))
            .when(F.lower(kind) == "control", decode_result(op=IGNORED))
            .when(metadata.isNotNull(), decode_result(data, None, nested_op, problem, before))
            .otherwise(decode_result(problem=with_start("not a DMS record", text)))
        )

    change = _decode_object(text, _DMS_RECORD, decode, "not a DMS record")
    return F.when(tombstone, delete_by_key(text, settings)).otherwise(change)


# The field of a key that is a single value: its table says which column that is, see `name_key`.
_KEY = f"{OWN_PREFIX}key.{secrets.token_hex(8)}"
# The `payload_type` of such a key as plain text: the type of the column decides.
_TEXT_KEY = "key text"

_NO_VALUE = "the record has no value"
_UNNAMED = f"{_NO_VALUE}, and its key does not name the identifier columns"
_UNSET = f"{_NO_VALUE}, and identifier_columns does not say which column its key is"
_KEY_NOT_JSON = f"{_NO_VALUE}, and its key is neither a JSON object nor a single JSON value"


def delete_by_key(key: Column, settings: IngestConfig, is_json: bool = False) -> Column:
    """Return the decode result of a tombstone without a schema (docs/kafka-formats.md, "Keys of tombstones")."""
    trimmed, is_valid = F.trim(key), F.try_parse_json(key).isNotNull()
    result = F.when(trimmed.startswith("{") & is_valid, decode_result(key, op="delete"))
    if is_json or settings.key_format == "json":
        result = result.when(is_valid & ~trimmed.startswith("["), decode_result(_object(_KEY, key), op="delete"))
        return result.otherwise(decode_result(op="delete", problem=_KEY_NOT_JSON))
    result = result.when(key.isNotNull(), decode_result(_object(_KEY, json_string(key)), _TEXT_KEY, "delete"))
    return result.otherwise(decode_result(op="delete", problem=_UNNAMED))


def delete_by_typed_key(key: Column, logical_type: LogicalType) -> Column:
    """Return the decode result of a tombstone whose key has a schema: of an object, or of a single value."""
    if not logical_type.fields:
        key, logical_type = F.struct(key.alias(_KEY)), LogicalType(T.StructType(), fields={_KEY: logical_type})
    payload = payload_json(key, logical_type)
    problem = F.when(payload.isNull(), F.lit(_UNNAMED))
    return decode_result(payload, column_type(logical_type).json(), "delete", problem)


def name_key(rows: DataFrame, identifiers: Sequence[str], name: str | None, kind: T.DataType | None) -> DataFrame:
    """Give keys that are single values the name, and as plain texts the type, of the only identifier column."""
    is_single = F.expr(IS_DELETE) & F.col("payload").startswith(_key_start(_KEY))
    if len(identifiers) != 1:
        unnamed = F.when(is_single, F.lit(_UNNAMED if identifiers else _UNSET))
        return rows.withColumn("problem", F.coalesce("problem", unnamed))
    name = name or identifiers[0]
    if name == "_id":
        rows = rows.withColumn("payload", _document_key(F.col("payload")))
    named = F.concat(F.lit(_key_start(name)), F.substr("payload", F.lit(len(_key_start(_KEY)) + 1)))
    if kind is not None and not isinstance(kind, T.StringType):
        named = F.when(F.col("payload_type") == _TEXT_KEY, _object(name, _typed_key(kind))).otherwise(named)
    return rows.withColumn("payload", F.when(is_single, named).otherwise(F.col("payload")))


def _document_key(payload: Column) -> Column:
    """The key of a deleted MongoDB document: a field `id` with the JSON of `_id` as a text names `_id`."""
    document = F.when(json_field(payload, ["_id"]).isNull(), json_field(payload, ["id"]))
    is_key = F.expr(IS_DELETE) & F.try_parse_json(document).isNotNull()
    return F.when(is_key, _object("_id", document)).otherwise(payload)


def _typed_key(kind: T.DataType) -> Column:
    """A plain text key as a JSON value of a type other than string."""
    text = json_field(F.col("payload"), [_KEY])
    trimmed = F.trim(text)
    is_json = F.try_parse_json(text).isNotNull() & ~trimmed.startswith("[") & ~trimmed.startswith("{")
    if isinstance(kind, T.BinaryType):
        # Digits alone may be Base64, so only a text in quotes is read as JSON.
        is_json = is_json & trimmed.startswith('"')
    return F.when(is_json, text).otherwise(json_string(text))


def _key_start(name: str) -> str:
    return f"{{{json.dumps(name, ensure_ascii=False)}:"


def _object(name: str, value: Column) -> Column:
    return F.concat(F.lit(_key_start(name)), value, F.lit("}"))
