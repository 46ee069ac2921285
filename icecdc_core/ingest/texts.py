"""Keys of records as payloads of deletes, and single fields of JSON."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

NO_VALUE = "the record has no value, and its key does not tell the identifier columns"


def key_payload(text: Column, identifiers: Sequence[str]) -> Column:
    """Return a record's key as JSON with the identifier columns; null when it does not tell them.

    A JSON object is that already. Any other key, JSON or plain text, is the value of the identifier column if there is
    just one.
    """
    bare = F.trim(text)
    is_object = bare.startswith("{") & F.try_parse_json(text).isNotNull()
    if len(identifiers) != 1:
        return F.when(is_object, text)
    name = F.to_json(F.struct(F.lit(identifiers[0]).alias("n")))
    # {"n":"<name>"} holds the name as a JSON string, at its place; a text becomes a JSON string in the same way.
    quoted_name = F.substr(name, F.lit(6), F.length(name) - 6)
    as_text = F.to_json(F.struct(text.alias("n")))
    quoted_text = F.substr(as_text, F.lit(6), F.length(as_text) - 6)
    value = F.when(F.try_parse_json(text).isNotNull() & ~bare.startswith("["), text).otherwise(quoted_text)
    return F.when(is_object, text).when(
        text.isNotNull(), F.concat(F.lit("{"), quoted_name, F.lit(":"), value, F.lit("}"))
    )


def field(payload: Column, name: str) -> Column:
    """Return one field of a payload as text; null where it is not there.

    Args:
        payload: The column `payload` of `decoded`.
        name: The field; dotted for fields of objects.
    """
    return text_at(payload, name.split("."))


def text_at(payload: Column, path: Sequence[str]) -> Column:
    """Return the field at a path, one name for each object around it, as text."""
    kind: T.DataType = T.StringType()
    for part in reversed(path):
        kind = T.StructType([T.StructField(part, kind)])
    assert isinstance(kind, T.StructType)
    column: Column = F.from_json(payload, kind, {"allowSingleQuotes": "false"})
    for part in path:
        column = column.getField(part)
    return column
