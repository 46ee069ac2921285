"""Deletes by key: the payload for a record without a value (a tombstone) comes from its key."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from icecdc_core.ingest.formats.decode_results import PAYLOAD_OPTIONS, FormatSettings, decode_result, json_field
from icecdc_core.ingest.formats.logical_types import LogicalType, column_type, payload_json

TEXT_KEY = "key text"
"""The `payload_type` of a key that is a single value as plain text: the type of the identifier column decides."""

_UNNAMED = "the record has no value, and its key does not name the identifier columns"
_KEY_NOT_JSON = "the record has no value, and its key is neither a JSON object nor a single JSON value"


def delete_by_key(key: Column, settings: FormatSettings, is_json: bool = False) -> Column:
    """Return the decode result of a tombstone without a schema (docs/kafka-formats.md, "Keys of tombstones")."""
    trimmed, is_valid = F.trim(key), F.try_parse_json(key).isNotNull()
    result = F.when(trimmed.startswith("{") & is_valid, decode_result(key, op="delete"))
    if len(settings.identifier_columns) != 1:
        return result.otherwise(decode_result(op="delete", problem=_UNNAMED))
    [name] = settings.identifier_columns
    if is_json or settings.key_format == "json":
        result = result.when(is_valid & ~trimmed.startswith("["), decode_result(_object(name, key), op="delete"))
        return result.otherwise(decode_result(op="delete", problem=_KEY_NOT_JSON))
    result = result.when(key.isNotNull(), decode_result(_object(name, _json_string(key)), TEXT_KEY, "delete"))
    return result.otherwise(decode_result(op="delete", problem=_UNNAMED))


def delete_by_typed_key(key: Column, logical_type: LogicalType, settings: FormatSettings) -> Column:
    """Return the decode result of a tombstone whose key has a schema: of an object, or of a single value."""
    if logical_type.fields:
        payload = payload_json(key, logical_type)
        problem = F.when(payload.isNull(), F.lit(_UNNAMED))
        return decode_result(payload, column_type(logical_type).json(), "delete", problem)
    if len(settings.identifier_columns) != 1:
        return decode_result(op="delete", problem=_UNNAMED)
    [name] = settings.identifier_columns
    record = LogicalType(T.StructType(), fields={name: logical_type})
    payload = payload_json(F.struct(key.alias(name)), record)
    return decode_result(payload, column_type(record).json(), "delete")


def convert_text_key(
    payload: Column, payload_type: Column, identifier: str, field_name: str, kind: T.DataType
) -> Column:
    """Return the payload; a plain text key in it becomes a JSON value of the identifier column's type."""
    text = json_field(payload, [identifier])
    value = _json_string(text)
    if not isinstance(kind, T.StringType):
        trimmed = F.trim(text)
        is_json = F.try_parse_json(text).isNotNull() & ~trimmed.startswith("[") & ~trimmed.startswith("{")
        if isinstance(kind, T.BinaryType):
            # Digits alone may be Base64, so only a text in quotes is read as JSON.
            is_json = is_json & trimmed.startswith('"')
        value = F.when(is_json, text).otherwise(value)
    return F.when(payload_type == TEXT_KEY, _object(field_name, value)).otherwise(payload)


def _object(name: str, value: Column) -> Column:
    return F.concat(F.lit("{"), _json_string(F.lit(name)), F.lit(":"), value, F.lit("}"))


def _json_string(text: Column) -> Column:
    """A text as a JSON string: what `to_json` writes between {"n": and the closing brace."""
    inside = F.to_json(F.struct(text.alias("n")), PAYLOAD_OPTIONS)
    return F.substr(inside, F.lit(6), F.length(inside) - 6)
