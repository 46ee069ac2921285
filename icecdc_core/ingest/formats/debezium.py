"""Debezium's change events: which row they tell of, and what became of it.

The envelope (`before`, `after`, `op`), its operations and the tombstones after deletes are those of Debezium's
documentation, "Change events"; the meaning of values is in `connect`.
"""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from icecdc_core.ingest.formats.decode_results import IGNORED, bound, outcome, told
from icecdc_core.ingest.formats.json_text import JSON_READ_OPTIONS, MALFORMED, PAYLOAD_OPTIONS, SHOWN, unreadable
from icecdc_core.ingest.formats.logical_types import LogicalType, rendered, wanted
from icecdc_core.ingest.formats.record_keys import NO_VALUE, deleted_by, deleted_by_value
from icecdc_core.ingest.formats.settings import FormatSettings

# A value that PostgreSQL stores apart and that did not change is not in its log. The same text in Base64 is in bytes.
UNAVAILABLE = ("__debezium_unavailable_value", "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==")

_ROW_FIELDS = ("before", "after")
_NUMBERS: dict[str, T.DataType] = {
    "int8": T.IntegerType(),
    "int16": T.IntegerType(),
    "int32": T.IntegerType(),
    "int64": T.LongType(),
    "float32": T.FloatType(),
    "float64": T.DoubleType(),
    "boolean": T.BooleanType(),
}


def event(op: Column, before: Column, after: Column, kind: str | None = None) -> Column:
    """Return the outcome of a change event.

    ``c``, ``r`` (read by a snapshot) and ``u`` upsert the row `after`; ``d`` deletes the row `before`; ``m`` is a
    message of no row, and ignored. ``t``, the truncation of a table, is a problem: no row tells what it means here. So
    is a value that Debezium could not know.

    Args:
        op: The operation.
        before: The row as it was, JSON.
        after: The row as it is, JSON.
        kind: The type of both, as in `payload_type`.
    """
    done, unknown = told(op, "the operation of the change event (op)")
    lost = after.contains(f'"{UNAVAILABLE[0]}"') | after.contains(f'"{UNAVAILABLE[1]}"')
    deletes = done == "delete"
    problem = (
        F.when(op == "m", F.lit(None).cast("string"))
        .when(op == "t", F.lit("the source table was truncated; delete its rows here by hand if they are to go"))
        .when(unknown.isNotNull(), unknown)
        .when(deletes & before.isNull(), F.lit("the change event deletes a row, but has no before: no row is known"))
        .when(~deletes & after.isNull(), F.lit("the change event has no after, so there is no row"))
        .when(~deletes & lost, F.lit(f"a value is {UNAVAILABLE[0]}: unchanged, and not in the source's log"))
    )
    chosen = F.when(deletes, before).otherwise(after)
    return outcome(chosen, kind, F.when(op == "m", F.lit(IGNORED)).otherwise(done), problem)


def from_json_text(records: DataFrame, text: Column, tombstone: Column, settings: FormatSettings) -> Column:
    """Return the outcome of events in JSON, with or without their `schema` part.

    Args:
        records: The records; looked at once for the schema parts there are.
        text: The value, or the key of a record without a value.
        tombstone: Whether it is the key.
        settings: See `FormatSettings`.
    """
    schema_part = F.from_json(text, f"schema string, {MALFORMED} string", JSON_READ_OPTIONS)["schema"]
    parts = sorted(row[0] for row in records.select(schema_part).where(schema_part.isNotNull()).distinct().collect())
    plain = F.when(tombstone, deleted_by(text, settings)).otherwise(_without_schema(text))
    if not parts:
        return plain

    def chosen(part: Column) -> Column:
        branches = F.when(part.isNull(), plain)
        for known in parts:
            branches = branches.when(part == known, _with_schema(text, known, tombstone, settings))
        return branches

    return bound(schema_part, chosen)


def _without_schema(text: Column) -> Column:
    # A variant keeps numbers as exact as they are; as text they would be rounded to what a double holds.
    rows = ", ".join(f"{name} variant" for name in _ROW_FIELDS)
    shape = f"op string, {rows}, payload struct<op string, {rows}>, {MALFORMED} string"

    def use(read: Column) -> Column:
        inner = read["payload"]
        op, before, after = (
            F.coalesce(each(read), each(inner))
            for each in (lambda s: s["op"], lambda s: _text(s["before"]), lambda s: _text(s["after"]))
        )
        return F.when(read[MALFORMED].isNotNull() | read.isNull(), not_an_event(text)).otherwise(
            event(op, before, after)
        )

    return bound(F.from_json(text, shape, JSON_READ_OPTIONS), use)


def _text(value: Column) -> Column:
    """A variant as JSON, null where it is a JSON null."""
    return F.when(~F.is_variant_null(value), F.to_json(value))


def not_an_event(text: Column) -> Column:
    """Return the outcome of a text that is not a change event."""
    other = F.concat(F.lit("not a change event: '"), F.left(text, F.lit(SHOWN)), F.lit("'"))
    return outcome(problem=unreadable(text, other))


def _with_schema(text: Column, part: str, tombstone: Column, settings: FormatSettings) -> Column:
    node = json.loads(part)
    fields = {field.get("field"): field for field in node.get("fields", ())}
    whole = _meaning(node)
    shape = T.StructType([T.StructField("payload", whole.kind), T.StructField(MALFORMED, T.StringType())])
    mismatch = outcome(problem=unreadable(text, F.lit("the record does not fit its own schema part")))

    def use(read: Column) -> Column:
        payload = read["payload"]
        if "op" in fields and "after" in fields:
            row = whole.fields["after"]
            kind = wanted(row).json()
            before, after = (F.to_json(rendered(payload[name], row), PAYLOAD_OPTIONS) for name in _ROW_FIELDS)
            result = event(payload["op"], before, after, kind)
        elif whole.fields:
            key = F.to_json(rendered(payload, whole), PAYLOAD_OPTIONS)
            unnamed = F.when(key.isNull(), F.lit(NO_VALUE))
            deleted = outcome(key, wanted(whole).json(), F.lit("delete"), unnamed)
            result = F.when(tombstone, deleted).otherwise(not_an_event(text))
        else:
            deleted = deleted_by_value(payload, whole, settings)
            result = F.when(tombstone, deleted).otherwise(not_an_event(text))
        return F.when(read[MALFORMED].isNotNull(), mismatch).otherwise(result)

    return bound(F.from_json(text, shape, JSON_READ_OPTIONS), use)


def _meaning(node: dict[str, Any]) -> LogicalType:
    """What Connect's JSON converter says of a value, in the `schema` part."""
    kind, name, optional = node["type"], node.get("name") or "", bool(node.get("optional"))
    parameters = {key: str(value) for key, value in (node.get("parameters") or {}).items()}
    if kind == "struct":
        fields = {field["field"]: _meaning(field) for field in node.get("fields", ())}
        read: T.DataType = T.StructType([T.StructField(key, each.kind) for key, each in fields.items()])
        return LogicalType(read, name, parameters, optional, fields, in_json=True)
    if kind == "array":
        element = _meaning(node["items"])
        return LogicalType(T.ArrayType(element.kind), name, parameters, optional, element=element, in_json=True)
    if kind == "map":
        value = _meaning(node["values"])
        return LogicalType(T.MapType(T.StringType(), value.kind), name, parameters, optional, value=value, in_json=True)
    if kind == "bytes" and not name.endswith(".Decimal"):
        name = "bytes"
    return LogicalType(_NUMBERS.get(kind, T.StringType()), name, parameters, optional, in_json=True)
