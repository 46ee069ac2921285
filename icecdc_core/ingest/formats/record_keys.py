"""Deletes by key: the payload for a record without a value (a tombstone) comes from its key."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from icecdc_core.ingest.formats.decode_results import PAYLOAD_OPTIONS, FormatSettings, decode_result, text_at
from icecdc_core.ingest.formats.logical_types import LogicalType, column_type, to_payload

TEXT_KEY = "key text"
"""The `payload_type` of a key that is a single value as plain text; the type of the identifier column decides how it is
read."""

KEY_WITHOUT_IDENTIFIERS = "the record has no value, and its key does not name the identifier columns"
_KEY_NOT_JSON = "the record has no value, and its key is neither a JSON object nor a single JSON value"


def delete_by_key(key: Column, settings: FormatSettings, is_json: bool = False) -> Column:
    """Return the decode result of a tombstone: it deletes the row that its key names.

    A JSON object has the identifier columns by name. Any other key is the value of the identifier column, if there is
    only one: as plain text (see `convert_text_key`), or as JSON if `key_format` or the key's schema says so.
    """
    delete, identifiers = F.lit("delete"), settings.identifier_columns
    trimmed = F.trim(key)
    is_valid = F.try_parse_json(key).isNotNull()
    result = F.when(trimmed.startswith("{") & is_valid, decode_result(key, None, delete))
    unnamed = decode_result(None, None, delete, F.lit(KEY_WITHOUT_IDENTIFIERS))
    if len(identifiers) != 1:
        return result.otherwise(unnamed)
    if is_json or settings.key_format == "json":
        single = decode_result(_object(identifiers[0], key), None, delete)
        result = result.when(is_valid & ~trimmed.startswith("["), single)
        return result.otherwise(decode_result(None, None, delete, F.lit(_KEY_NOT_JSON)))
    text = _object(identifiers[0], _json_string(key))
    return result.when(key.isNotNull(), decode_result(text, F.lit(TEXT_KEY), delete)).otherwise(unnamed)


def delete_by_single_key(key: Column, logical_type: LogicalType, settings: FormatSettings) -> Column:
    """Return the decode result of a tombstone whose key is a single value with a schema."""
    if len(settings.identifier_columns) != 1:
        return decode_result(None, None, F.lit("delete"), F.lit(KEY_WITHOUT_IDENTIFIERS))
    [name] = settings.identifier_columns
    payload = F.to_json(F.struct(to_payload(key, logical_type).alias(name)), PAYLOAD_OPTIONS)
    payload_type = T.StructType([T.StructField(name, column_type(logical_type))]).json()
    return decode_result(payload, payload_type, F.lit("delete"))


def convert_text_key(
    payload: Column, payload_type: Column, identifier: str, field_name: str, kind: T.DataType
) -> Column:
    """Return the payload; a plain text key in it becomes a JSON value of the identifier column's type.

    A text column stores the key as it is: ``1.10``, ``1e3`` and ``null`` are texts there. A column of another type
    stores the JSON value that the text is: the number 7 for ``7``.
    """
    text = text_at(payload, [identifier])
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
    """A JSON object with one field."""
    return F.concat(F.lit("{"), _json_string(F.lit(name)), F.lit(":"), value, F.lit("}"))


def _json_string(text: Column) -> Column:
    """A text as a JSON string: what `to_json` writes between {"n": and the closing brace."""
    inside = F.to_json(F.struct(text.alias("n")))
    return F.substr(inside, F.lit(6), F.length(inside) - 6)
