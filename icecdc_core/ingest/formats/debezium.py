"""Debezium's change events: the row that an event changes, and the operation.

The envelope (`before`, `after`, `op`), its operations and the tombstones after deletes come from Debezium's
documentation, "Change events". `logical_types` converts the values.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from icecdc_core.ingest.formats.decode_results import (
    IGNORED,
    JSON_READ_OPTIONS,
    MALFORMED,
    PAYLOAD_OPTIONS,
    FormatSettings,
    decode_by_schema,
    decode_result,
    evaluate_once,
    parse_operation,
    quoted_start,
    unreadable_reason,
)
from icecdc_core.ingest.formats.logical_types import DECIMAL, FLOAT, LogicalType, column_type, to_payload
from icecdc_core.ingest.formats.record_keys import KEY_WITHOUT_IDENTIFIERS, delete_by_key, delete_by_single_key

UNAVAILABLE = ("__debezium_unavailable_value", "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==")
"""What Debezium writes for a large PostgreSQL value that did not change; in bytes, the same text in Base64."""

_ROW_FIELDS = ("before", "after")
_ENVELOPE_FIELDS = {"op", *_ROW_FIELDS}
_JSON_DOCUMENT = "io.debezium.data.Json"
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


def decode_event(op: Column, before: Column, after: Column, payload_type: str | None = None) -> Column:
    """Return the decode result of a change event.

    ``c``, ``r`` (read by a snapshot) and ``u`` upsert the row `after`; ``d`` deletes the row `before`; ``m`` is a
    message without a row and is ignored. ``t``, which truncates the source table, is a problem, because it names no
    row. A value that Debezium could not read is a problem too.
    """
    row_op, unknown = parse_operation(op, "the operation of the change event (op)")
    unavailable = after.contains(f'"{UNAVAILABLE[0]}"') | after.contains(f'"{UNAVAILABLE[1]}"')
    deletes = row_op == "delete"
    problem = (
        F.when(op == "m", F.lit(None).cast("string"))
        .when(op == "t", F.lit("the source table was truncated; delete its rows here by hand if they should go"))
        .when(unknown.isNotNull(), unknown)
        .when(deletes & before.isNull(), F.lit("the change event deletes a row, but has no before to name the row"))
        .when(~deletes & after.isNull(), F.lit("the change event has no after, so there is no row"))
        .when(~deletes & unavailable, F.lit(f"a value is {UNAVAILABLE[0]}: unchanged, and not in the source's log"))
    )
    row = F.when(deletes, before).otherwise(after)
    row_op = F.when(op == "m", F.lit(IGNORED)).otherwise(row_op)
    return decode_result(row, payload_type, row_op, problem, F.when(row_op == "upsert", before))


def decode_envelope(event: Column, envelope: LogicalType) -> Column | None:
    """Return the decode result of a change event with a schema; None if the schema describes none.

    A row is a struct, or a text with the document (MongoDB).
    """
    if not envelope.fields.keys() >= _ENVELOPE_FIELDS:
        return None
    row = envelope.fields["after"]
    if row.name == _JSON_DOCUMENT:
        return decode_event(event["op"], event["before"], event["after"])
    if not row.fields:
        raise ValueError("after is no row")
    before, after = (F.to_json(to_payload(event[name], row), PAYLOAD_OPTIONS) for name in _ROW_FIELDS)
    return decode_event(event["op"], before, after, column_type(row).json())


def decode_json(records: DataFrame, text: Column, tombstone: Column, settings: FormatSettings) -> Column:
    """Return the decode result of events in JSON, with or without their `schema` part."""
    schema_part = F.from_json(text, f"schema string, {MALFORMED} string", JSON_READ_OPTIONS)["schema"]
    parts = sorted(row[0] for row in records.select(schema_part).where(schema_part.isNotNull()).distinct().collect())
    plain = F.when(tombstone, delete_by_key(text, settings)).otherwise(_decode_without_schema(text))
    if not parts:
        return plain

    def choose(part: Column) -> Column:
        branches = F.when(part.isNull(), plain)
        for schema in parts:
            decode = partial(_decode_with_schema, text, schema, tombstone, settings)
            understood = decode_by_schema(records, "the schema part of the record", schema, decode)
            branches = branches.when(part == schema, understood)
        return branches

    return evaluate_once(schema_part, choose)


def _decode_without_schema(text: Column) -> Column:
    # A variant keeps numbers exact; `from_json` rounds a number in a text to a double.
    rows = ", ".join(f"{name} variant" for name in _ROW_FIELDS)
    shape = f"op string, {rows}, payload struct<op string, {rows}>, {MALFORMED} string"

    def decode(parsed: Column) -> Column:
        inner = parsed["payload"]
        op = F.coalesce(parsed["op"], inner["op"])
        before, after = (F.coalesce(_row_text(parsed[name]), _row_text(inner[name])) for name in _ROW_FIELDS)
        malformed = parsed[MALFORMED].isNotNull() | parsed.isNull()
        unread = decode_result(problem=unreadable_reason(text, _not_an_event(text)))
        return F.when(malformed, unread).otherwise(decode_event(op, before, after))

    return evaluate_once(F.from_json(text, shape, JSON_READ_OPTIONS), decode)


def _row_text(variant: Column) -> Column:
    """A variant as JSON; null for a JSON null. A text is the document itself (MongoDB)."""
    is_text = F.schema_of_variant(variant) == "STRING"
    row = F.when(is_text, F.variant_get(variant, "$", "string")).otherwise(F.to_json(variant))
    return F.when(~F.is_variant_null(variant), row)


def _not_an_event(text: Column) -> Column:
    return F.concat(F.lit("not a change event: "), quoted_start(text))


def _decode_with_schema(text: Column, schema_part: str, tombstone: Column, settings: FormatSettings) -> Column:
    whole = _logical_type(json.loads(schema_part))
    shape = T.StructType([T.StructField("payload", whole.kind), T.StructField(MALFORMED, T.StringType())])
    mismatch = decode_result(problem=unreadable_reason(text, F.lit("the record does not fit its own schema part")))

    def decode(parsed: Column) -> Column:
        payload = parsed["payload"]
        result = decode_envelope(payload, whole)
        if result is None:
            result = F.when(tombstone, delete(payload)).otherwise(decode_result(problem=_not_an_event(text)))
        return F.when(parsed[MALFORMED].isNotNull(), mismatch).otherwise(result)

    def delete(payload: Column) -> Column:
        if not whole.fields:
            return delete_by_single_key(payload, whole, settings)
        key = F.to_json(to_payload(payload, whole), PAYLOAD_OPTIONS)
        problem = F.when(key.isNull(), F.lit(KEY_WITHOUT_IDENTIFIERS))
        return decode_result(key, column_type(whole).json(), F.lit("delete"), problem)

    return evaluate_once(F.from_json(text, shape, JSON_READ_OPTIONS), decode)


def _logical_type(node: dict[str, Any]) -> LogicalType:
    """The type of a value by the `schema` part of Connect's JSON converter."""
    kind, name, optional = node["type"], node.get("name") or "", bool(node.get("optional"))
    parameters = {key: str(value) for key, value in (node.get("parameters") or {}).items()}
    if kind == "struct":
        fields = {field["field"]: _logical_type(field) for field in node["fields"]}
        if len(fields) < len(node["fields"]):
            raise ValueError("two fields have the same name")
        struct: T.DataType = T.StructType([T.StructField(key, each.kind) for key, each in fields.items()])
        return LogicalType(struct, name, parameters, optional, fields, in_json=True)
    if kind == "array":
        element = _logical_type(node["items"])
        return LogicalType(T.ArrayType(element.kind), name, parameters, optional, element=element, in_json=True)
    if kind == "map":
        value = _logical_type(node["values"])
        map_type = T.MapType(T.StringType(), value.kind)
        return LogicalType(map_type, name, parameters, optional, value=value, in_json=True)
    if kind == "bytes" and name == DECIMAL:
        return LogicalType(T.VariantType(), name, parameters, optional, in_json=True)
    if kind in ("bytes", FLOAT):
        name = kind
    return LogicalType(_SIMPLE_TYPES[kind], name, parameters, optional, in_json=True)
