"""JSON texts: Spark's options to read and write them, single fields, and the limit on their length."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from icecdc_core.columns import JSON_OPTIONS, OWN_PREFIX

MALFORMED = f"{OWN_PREFIX}bad"
"""The field of a `from_json` schema that gets the whole text if the text does not fit the schema."""

JSON_READ_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": MALFORMED,
    # By default Spark also reads text in single quotes, and text in older formats as a date.
    "allowSingleQuotes": "false",
    "enableDateTimeParsingFallback": "false",
    # In Spark's default locale a decimal in a text loses its commas, so that "1,5" is 15. Here it is no number.
    "locale": "de-CH",
}
"""How `from_json` reads records."""

PAYLOAD_OPTIONS = {**JSON_OPTIONS, "ignoreNullFields": "true"}
"""How `to_json` writes payloads. A null field is left out, which means the same."""

LONGEST_TEXT = 20_000_000
"""Characters of the longest text that the JSON parser reads (Jackson's `StreamReadConstraints`)."""

SHOWN = 100
"""Characters of a value that a problem shows."""


def unreadable_reason(text: Column, problem: Column) -> Column:
    """Return why Spark could not read a JSON text: the exceeded limit if the text is longer, else the given problem.

    Args:
        text: The JSON text.
        problem: The problem of a text that is not too long.
    """
    limit = f"a string in it has more than {LONGEST_TEXT:,} characters, which are the limit; the record has %,d bytes"
    too_long = F.format_string(f"{limit}: '%.{SHOWN}s'", F.octet_length(text), text)
    return F.when(F.length(text) > LONGEST_TEXT, too_long).otherwise(problem)


def quoted_start(text: Column) -> Column:
    """Return the start of a text in quotes, as problems show it."""
    return F.concat(F.lit("'"), F.left(F.coalesce(text, F.lit("null")), F.lit(SHOWN)), F.lit("'"))


def field(payload: Column, name: str) -> Column:
    """Return one field of a JSON object as text; null if it is missing.

    Args:
        payload: The JSON object, such as the column `payload` of `decode_records`.
        name: The field; dotted for a field of a nested object.
    """
    return text_at(payload, name.split("."))


def text_at(payload: Column, path: Sequence[str]) -> Column:
    """Return one field of a JSON object as text; null if it is missing.

    Args:
        payload: The JSON object.
        path: The names from the outermost object to the field.
    """
    kind: T.DataType = T.StringType()
    for part in reversed(path):
        kind = T.StructType([T.StructField(part, kind)])
    assert isinstance(kind, T.StructType)
    column: Column = F.from_json(payload, kind, JSON_READ_OPTIONS)
    for part in path:
        column = column.getField(part)
    return column
