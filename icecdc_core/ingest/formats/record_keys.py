"""Keys of records as payloads of deletes."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from icecdc_core.ingest.formats.decode_results import outcome
from icecdc_core.ingest.formats.json_text import PAYLOAD_OPTIONS, text_at
from icecdc_core.ingest.formats.logical_types import LogicalType, rendered, wanted
from icecdc_core.ingest.formats.settings import FormatSettings

KEY_TEXT = "key text"
"""The `payload_type` of a key that is one value as plain text: the identifier column decides how it is read."""

NO_VALUE = "the record has no value, and its key does not name the identifier columns"
_NO_JSON = "the record has no value, and its key is neither a JSON object nor a single JSON value"


def deleted_by(key: Column, settings: FormatSettings, is_json: bool = False) -> Column:
    """Return the outcome of a tombstone: the row of its key is deleted.

    A JSON object has the identifier columns by name. Any other key is the value of the identifier column, if there is
    just one: as plain text (see `read_keys`), or as JSON where `key_format` or the key's schema says so.

    Args:
        key: The key's text.
        settings: See `FormatSettings`.
        is_json: Whether the key is known to be JSON.
    """
    delete, identifiers = F.lit("delete"), settings.identifier_columns
    bare = F.trim(key)
    valid = F.try_parse_json(key).isNotNull()
    whole = F.when(bare.startswith("{") & valid, outcome(key, None, delete))
    unnamed = outcome(None, None, delete, F.lit(NO_VALUE))
    if len(identifiers) != 1:
        return whole.otherwise(unnamed)
    if is_json or settings.key_format == "json":
        single = outcome(_object(identifiers[0], key), None, delete)
        whole = whole.when(valid & ~bare.startswith("["), single)
        unnamed = outcome(None, None, delete, F.lit(_NO_JSON))
    else:
        text = _object(identifiers[0], _json_string(key))
        whole = whole.when(key.isNotNull(), outcome(text, F.lit(KEY_TEXT), delete))
    return whole.otherwise(unnamed)


def deleted_by_value(key: Column, meaning: LogicalType, settings: FormatSettings) -> Column:
    """Return the outcome of a tombstone whose key is a single value with a schema.

    Args:
        key: The value.
        meaning: What it is.
        settings: See `FormatSettings`.
    """
    if len(settings.identifier_columns) != 1:
        return outcome(None, None, F.lit("delete"), F.lit(NO_VALUE))
    [name] = settings.identifier_columns
    payload = F.to_json(F.struct(rendered(key, meaning).alias(name)), PAYLOAD_OPTIONS)
    return outcome(payload, T.StructType([T.StructField(name, wanted(meaning))]).json(), F.lit("delete"))


def read_keys(payload: Column, payload_type: Column, identifier: str, field_name: str, kind: T.DataType) -> Column:
    """Return the payload, with a key that is plain text as its identifier column has to read it.

    A column of texts takes the key as it is: ``1.10``, ``1e3`` and ``null`` are texts there. A column of another type
    takes the JSON value that the text is: 7 for ``7`` in a column of numbers.

    Args:
        payload: The column `payload` of `decoded`.
        payload_type: The column `payload_type` of `decoded`.
        identifier: The identifier column.
        field_name: The field that will be read for it.
        kind: The column's type.
    """
    text = text_at(payload, [identifier])
    value = _json_string(text)
    if not isinstance(kind, T.StringType):
        bare = F.trim(text)
        # Only in quotes a JSON string is no Base64, but digits alone may be.
        is_json = F.try_parse_json(text).isNotNull() & ~bare.startswith("[") & ~bare.startswith("{")
        if isinstance(kind, T.BinaryType):
            is_json = is_json & bare.startswith('"')
        value = F.when(is_json, text).otherwise(value)
    return F.when(payload_type == KEY_TEXT, _object(field_name, value)).otherwise(payload)


def _object(name: str, value: Column) -> Column:
    """A JSON object with one field."""
    return F.concat(F.lit("{"), _json_string(F.lit(name)), F.lit(":"), value, F.lit("}"))


def _json_string(text: Column) -> Column:
    """A text as JSON string: what `to_json` puts behind {"n": and before the brace."""
    inside = F.to_json(F.struct(text.alias("n")))
    return F.substr(inside, F.lit(6), F.length(inside) - 6)
