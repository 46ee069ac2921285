"""Change events of Debezium and AWS DMS, and tombstones: the row that an event changes, and the operation.

DMS has a nested form with `data` and `metadata` (its Kafka target), and a flat one with `Op` beside the columns (S3).
"""

import json
from contextlib import suppress
from datetime import date
from functools import partial, reduce
from operator import or_
from typing import Any

from pyspark.sql import Column, DataFrame, functions as F, types as T

from icecdc_core.columns import json_string
from icecdc_core.ingest.config import IngestConfig
from icecdc_core.ingest.formats.decode_results import (
    DELETES,
    IGNORED,
    JSON_READ_OPTIONS,
    decode_by_schema,
    decode_result,
    evaluate_once,
    is_whole_object,
    json_field,
    parse_object,
    parse_operation,
    quoted_start,
    unreadable_reason,
    wrapped_record,
)
from icecdc_core.ingest.formats.logical_types import DECIMAL, FLOAT, LogicalType, column_type, payload_json

_UNAVAILABLE = "__debezium_unavailable_value"
# What Debezium writes for a large PostgreSQL value that did not change: the text, an object (hstore), its Base64
# for bytes, the bytes as numbers or as days, and its UUID. Searching first for what is rarer than a quote is faster.
_PLACEHOLDERS = {
    _UNAVAILABLE: (f'"{_UNAVAILABLE}"', rf'"{{\"{_UNAVAILABLE}\":\"{_UNAVAILABLE}\"}}"'),
    "X19k": ('"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="',),
    "[": (
        json.dumps([*_UNAVAILABLE.encode()], separators=(",", ":")),
        json.dumps([str(date.fromordinal(719_163 + each)) for each in _UNAVAILABLE.encode()], separators=(",", ":")),
        '["b68a35a7-17ad-35b3-af2a-ae46edb4545a"]',
    ),
}

_JSON_DOCUMENT = "io.debezium.data.Json"
_PAYLOAD = ',"payload":'
_SCHEMA_FIRST = '{"schema":'
_VARIANT = T.VariantType()
_EVENT = T.StructType().add("op", "string").add("before", _VARIANT).add("after", _VARIANT)
_DMS_RECORD = T.StructType([T.StructField(name, _VARIANT) for name in ("data", "before-image", "metadata")])
_DMS_RECORD = _DMS_RECORD.add("Op", "string")
_SIMPLE_TYPES: dict[str, T.DataType] = {
    "int8": T.IntegerType(),
    "int16": T.IntegerType(),
    "int32": T.IntegerType(),
    "int64": T.LongType(),
    "float32": T.DoubleType(),
    "float64": T.DoubleType(),
    "boolean": T.BooleanType(),
    "string": T.StringType(),
    "bytes": T.StringType(),
}


def decode_debezium_envelope(event: Column, envelope: LogicalType, settings: IngestConfig) -> Column | None:
    """Return the decode result of a change event with a schema; None if the schema describes none."""
    if not envelope.fields.keys() >= {"op", "before", "after"}:
        return None
    row = envelope.fields["after"]
    if row.name == _JSON_DOCUMENT:
        return _decode_change(event["op"], event["before"], event["after"], settings)
    if not row.fields:
        raise ValueError("after is no row")
    before, after = (payload_json(event[name], row) for name in ("before", "after"))
    return _decode_change(event["op"], before, after, settings, column_type(row).json())


def decode_without_rows(event: Column, envelope: LogicalType, problem: Column | str) -> Column:
    """The result of a record whose schema describes no change event: the problem, but for a message of the log."""
    is_message = event["op"].cast("string") == "m" if "op" in envelope.fields else F.lit(False)
    return F.when(is_message, decode_result(op=IGNORED)).otherwise(decode_result(problem=problem))


def unavailable_problem(row: Column) -> Column:
    """Why a row must not overwrite the one in the table; null if it may."""
    found = (row.contains(part) & reduce(or_, map(row.contains, texts)) for part, texts in _PLACEHOLDERS.items())
    return F.when(reduce(or_, found), F.lit(f"a value is {_UNAVAILABLE}: unchanged, and not in the source's log"))


def _decode_change(
    op: Column, before: Column, after: Column, settings: IngestConfig, payload_type: str | None = None
) -> Column:
    """The decode result of a Debezium event; docs/kafka-formats.md ("Operations") says which operation does what."""
    if settings.mode == "append":  # only a merge needs the row before an update
        before = F.when(F.lower(op).isin(*DELETES), before)

    def decode(rows: Column) -> Column:
        op, before, after = rows["op"], rows["before"], rows["after"]
        row_op, unknown = parse_operation(op, "the operation of the change event (op)")
        deletes = row_op == "delete"
        problem = (
            F.when(op == "m", F.lit(None).cast("string"))
            .when(op == "t", F.lit("the source table was truncated; delete its rows here by hand if they should go"))
            .when(unknown.isNotNull(), unknown)
            .when(deletes & before.isNull(), F.lit("the change event deletes a row, but has no before to name the row"))
            .when(~deletes & after.isNull(), F.lit("the change event has no after, so there is no row"))
            .when(~deletes, unavailable_problem(after))
        )
        row = F.when(deletes, before).otherwise(after)
        row_op = F.when(op == "m", F.lit(IGNORED)).otherwise(row_op)
        return decode_result(row, payload_type, row_op, problem, F.when(row_op == "upsert", before))

    return evaluate_once(F.struct(op.alias("op"), before.alias("before"), after.alias("after")), decode)


def decode_debezium_json(records: DataFrame, text: Column, tombstone: Column, settings: IngestConfig) -> Column:
    """Return the decode result of events in JSON, with or without their `schema` part."""
    schema_part = F.from_json(text, "schema string", JSON_READ_OPTIONS)["schema"]
    # Connect writes the schema first, so that its text needs no parse: what is before the payload is the same in all
    # records of a schema.
    # Where it is not there, the head would be the whole record.
    is_first = text.startswith(_SCHEMA_FIRST) & text.contains(_PAYLOAD)
    head = F.when(is_first, F.substring_index(text, _PAYLOAD, 1))
    for part in (F.coalesce(F.substr(head, F.lit(len(_SCHEMA_FIRST) + 1)), schema_part), schema_part):
        parts = sorted(row[0] for row in records.select(part).where(part.isNotNull()).distinct().collect())
        with suppress(ValueError, RecursionError):
            json.loads(f"[{','.join(parts)}]")
            break
    plain = F.when(tombstone, delete_by_key(text, settings)).otherwise(_decode_without_schema(text, settings))
    if not parts:
        return plain

    def choose(part: Column) -> Column:
        branches = F.when(part.isNull() | (part == "null"), plain)
        for schema in parts:
            decode = partial(_decode_with_schema, text, schema, tombstone, settings)
            understood = decode_by_schema(records, "the schema part of the record", schema, decode)
            branches = branches.when(part == schema, understood)
        return branches

    return evaluate_once(part, choose)


def _decode_without_schema(text: Column, settings: IngestConfig) -> Column:
    # A variant keeps numbers exact; `from_json` rounds a number in a text to a double.
    shape = T.StructType([*_EVENT.fields, T.StructField("payload", _EVENT)])

    def decode(event: Column) -> Column:
        inner = event["payload"]
        op = F.coalesce(event["op"], inner["op"])
        before, after = (F.coalesce(_row_text(event[name]), _row_text(inner[name])) for name in ("before", "after"))
        return _decode_change(op, before, after, settings)

    return _decode_object(text, shape, decode, "not a change event: ")


def _decode_object(text: Column, shape: T.StructType, decode: Any, otherwise: str) -> Column:
    """What a decoder makes of a text that is one object of a shape; a problem if it is not."""
    problem = decode_result(problem=unreadable_reason(text, F.concat(F.lit(otherwise), quoted_start(text))))

    def choose(parsed: Column) -> Column:
        return F.when(is_whole_object(parsed), decode(wrapped_record(parsed))).otherwise(problem)

    return evaluate_once(parse_object(text, shape), choose)


def _row_text(variant: Column) -> Column:
    """A variant as JSON; null for a JSON null. A text is the document itself (MongoDB)."""
    is_text = F.schema_of_variant(variant) == "STRING"
    row = F.when(is_text, F.variant_get(variant, "$", "string")).otherwise(F.to_json(variant))
    return F.when(~F.is_variant_null(variant), row)


def _decode_with_schema(text: Column, schema_part: str, tombstone: Column, settings: IngestConfig) -> Column:
    whole = _logical_type(json.loads(schema_part))

    def decode(record: Column) -> Column:
        event = decode_debezium_envelope(record["payload"], whole, settings)
        if event is not None:
            return event
        problem = F.concat(F.lit("not a change event: "), quoted_start(text))
        key = delete_by_typed_key(record["payload"], whole, settings)
        return F.when(tombstone, key).otherwise(decode_without_rows(record["payload"], whole, problem))

    shape = T.StructType([T.StructField("payload", whole.kind)])
    return _decode_object(text, shape, decode, "the record does not fit its own schema part: ")


def _logical_type(node: dict[str, Any]) -> LogicalType:
    """The type of a value by the `schema` part of Connect's JSON converter."""
    kind, name, optional = node["type"], node.get("name") or "", bool(node.get("optional"))
    parameters = {key: str(value) for key, value in (node.get("parameters") or {}).items()}
    of = partial(LogicalType, name=name, parameters=parameters, optional=optional, in_json=True)
    if kind == "struct":
        fields = {field["field"]: _logical_type(field) for field in node["fields"]}
        if len(fields) < len(node["fields"]):
            raise ValueError("two fields have the same name")
        return of(T.StructType([T.StructField(key, each.kind) for key, each in fields.items()]), fields=fields)
    if kind == "array":
        element = _logical_type(node["items"])
        return of(T.ArrayType(element.kind), element=element)
    if kind == "map":
        value = _logical_type(node["values"])
        return of(T.MapType(T.StringType(), value.kind), value=value)
    if kind == "bytes" and name == DECIMAL:
        return of(_VARIANT)
    return of(_SIMPLE_TYPES[kind], name=kind if kind in ("bytes", FLOAT) else name)


def decode_dms(text: Column, tombstone: Column, settings: IngestConfig) -> Column:
    """Return the decode result of a DMS record; control records say that a table changed, and are ignored."""

    def decode(record: Column) -> Column:
        metadata = record["metadata"]
        operation, kind = (F.try_variant_get(metadata, at, "string") for at in ("$.operation", "$['record-type']"))
        nested_op, nested_problem = parse_operation(operation, "the operation (metadata.operation)")
        flat_op, flat_problem = parse_operation(record["Op"], "the operation (Op)")
        is_missing = record["data"].isNull() | F.is_variant_null(record["data"])
        data = F.when(~is_missing, F.to_json(record["data"]))
        no_data = F.when(is_missing, F.lit("the record has no data"))
        before = F.when(nested_op == "upsert", F.to_json(record["before-image"]))
        nested = decode_result(data, None, nested_op, F.coalesce(nested_problem, no_data), before)
        other = F.concat(F.lit("not a DMS record: "), quoted_start(text))
        return (
            F.when(record["Op"].isNotNull(), decode_result(text, None, flat_op, flat_problem))
            .when(F.lower(kind) == "control", decode_result(op=IGNORED))
            .when(metadata.isNotNull(), nested)
            .otherwise(decode_result(problem=other))
        )

    change = _decode_object(text, _DMS_RECORD, decode, "not a DMS record: ")
    return F.when(tombstone, delete_by_key(text, settings)).otherwise(change)


TEXT_KEY = "key text"
"""The `payload_type` of a key that is a single value as plain text: the type of the identifier column decides."""

_UNNAMED = "the record has no value, and its key does not name the identifier columns"
_UNSET = "the record has no value, and identifier_columns does not say which column its key is"
_KEY_NOT_JSON = "the record has no value, and its key is neither a JSON object nor a single JSON value"


def delete_by_key(key: Column, settings: IngestConfig, is_json: bool = False) -> Column:
    """Return the decode result of a tombstone without a schema (docs/kafka-formats.md, "Keys of tombstones")."""
    trimmed, is_valid = F.trim(key), F.try_parse_json(key).isNotNull()
    result = F.when(trimmed.startswith("{") & is_valid, decode_result(key, op="delete"))
    if len(settings.identifier_columns) != 1:
        problem = _UNNAMED if settings.identifier_columns else _UNSET
        return result.otherwise(decode_result(op="delete", problem=problem))
    [name] = settings.identifier_columns
    if is_json or settings.key_format == "json":
        result = result.when(is_valid & ~trimmed.startswith("["), decode_result(_object(name, key), op="delete"))
        return result.otherwise(decode_result(op="delete", problem=_KEY_NOT_JSON))
    result = result.when(key.isNotNull(), decode_result(_object(name, json_string(key)), TEXT_KEY, "delete"))
    return result.otherwise(decode_result(op="delete", problem=_UNNAMED))


def delete_by_typed_key(key: Column, logical_type: LogicalType, settings: IngestConfig) -> Column:
    """Return the decode result of a tombstone whose key has a schema: of an object, or of a single value."""
    if logical_type.fields:
        payload = payload_json(key, logical_type)
        problem = F.when(payload.isNull(), F.lit(_UNNAMED))
        return decode_result(payload, column_type(logical_type).json(), "delete", problem)
    if len(settings.identifier_columns) != 1:
        return decode_result(op="delete", problem=_UNNAMED if settings.identifier_columns else _UNSET)
    [name] = settings.identifier_columns
    record = LogicalType(T.StructType(), fields={name: logical_type})
    payload = payload_json(F.struct(key.alias(name)), record)
    return decode_result(payload, column_type(record).json(), "delete")


def convert_text_key(
    payload: Column, payload_type: Column, identifier: str, field_name: str, kind: T.DataType
) -> Column:
    """Return the payload; a plain text key in it becomes a JSON value of the identifier column's type."""
    text = json_field(payload, [identifier])
    value = json_string(text)
    if not isinstance(kind, T.StringType):
        trimmed = F.trim(text)
        is_json = F.try_parse_json(text).isNotNull() & ~trimmed.startswith("[") & ~trimmed.startswith("{")
        if isinstance(kind, T.BinaryType):
            # Digits alone may be Base64, so only a text in quotes is read as JSON.
            is_json = is_json & trimmed.startswith('"')
        value = F.when(is_json, text).otherwise(value)
    return F.when(payload_type == TEXT_KEY, _object(field_name, value)).otherwise(payload)


def _object(name: str, value: Column) -> Column:
    return F.concat(F.lit("{"), json_string(F.lit(name)), F.lit(":"), value, F.lit("}"))
