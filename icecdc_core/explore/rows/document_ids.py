"""From what a person wrote as a document's id to the values of its identifier columns."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from icecdc_core.columns import JSON_OPTIONS, quoted
from icecdc_core.documents.bulk_lines import DIGEST, document_id
from icecdc_core.documents.values import scalar_text
from icecdc_core.errors import ConfigError

_PART = re.compile(r"(?:[^\\|]|\\.)*")
_PARAMETER = "document_id"
_TEXTS = (T.StringType, T.BinaryType)
_AS_TEXT = (T.StringType, T.DateType, T.TimestampType, T.TimestampNTZType, T.DecimalType)


@dataclass(frozen=True)
class WantedDocument:
    """A document to look up."""

    document_id: str
    values: Mapping[str, str]
    filter_values: Mapping[str, Any]

    def condition(self, schema: T.StructType, key_columns: Sequence[str]) -> Column:
        """Return whether a row is that of the document."""
        if not self.values:
            return complete_id(schema, key_columns) == self.document_id
        condition = F.lit(True)
        for name, text in zip(key_columns, self.values.values(), strict=True):
            condition &= F.col(quoted(name)) == identifier_value(text, schema[name].dataType)
        return condition


def find_wanted(
    spark: SparkSession, schema: T.StructType, identifier_columns: Sequence[str], given: str, is_id: bool = False
) -> WantedDocument:
    """Return the document that a person names."""
    types = [schema[name].dataType for name in identifier_columns]
    texts = identifier_texts(given, identifier_columns, types, is_id)
    if not texts:
        return WantedDocument(given, {}, {})
    kinds = {name: schema[name].dataType for name in identifier_columns}
    row = spark.range(1).select(*(identifier_value(text, kinds[name]).alias(name) for name, text in texts.items()))
    named = row.select(
        *(scalar_text(F.col(quoted(name)), kinds[name], JSON_OPTIONS).alias(name) for name in texts),
        complete_id(row.schema, identifier_columns),
    ).collect()[0]
    for name, text in texts.items():
        if named[name] is None:
            raise ConfigError(
                f"'{text}' is not a valid {kinds[name].simpleString()} for column '{name}'",
                subject=_PARAMETER,
                value=given,
                remedy=_remedy(identifier_columns),
            )
    values = {name: str(named[name]) for name in texts}
    filters = {name: value for name in texts if (value := _filter_value(values[name], kinds[name])) is not None}
    return WantedDocument(named[len(texts)], values, filters)


def identifier_texts(
    given: str, identifier_columns: Sequence[str], kinds: Sequence[T.DataType], is_id: bool = False
) -> dict[str, str]:
    """Return the text of each identifier column; empty if the id may be a digest of them. Pure."""
    if given.startswith("{") and not is_id:
        values = _json(given, identifier_columns)
        return {name: values[name] for name in identifier_columns}
    if re.fullmatch(DIGEST, given) and any(isinstance(kind, _TEXTS) for kind in kinds):
        return {}
    if len(identifier_columns) == 1:
        return {identifier_columns[0]: given}
    parts = [re.sub(r"\\(.)", r"\1", part) for part in _parts(given)]
    if len(parts) != len(identifier_columns):
        raise ConfigError(
            f"The document id has {len(parts)} parts, but there are {len(identifier_columns)} identifier columns",
            subject=_PARAMETER,
            value=given,
            remedy=_remedy(identifier_columns),
        )
    return dict(zip(identifier_columns, parts, strict=True))


def identifier_value(text: str, kind: T.DataType) -> Column:
    """Return the value that a text of an id stands for; null if it stands for none."""
    value = F.lit(text)
    return F.try_to_binary(value, F.lit("base64")) if isinstance(kind, T.BinaryType) else value.try_cast(kind)


def complete_id(schema: T.StructType, key_columns: Sequence[str]) -> Column:
    """Return the id of a row's document; null, and no error, if one of its identifier columns is null."""
    complete = F.lit(True)
    for name in key_columns:
        complete &= F.col(quoted(name)).isNotNull()
    return F.when(complete, document_id(schema, key_columns))


def _json(given: str, identifier_columns: Sequence[str]) -> dict[str, str]:
    try:
        # Numbers stay as they are written.
        values = json.loads(given, parse_int=str, parse_float=str)
    except ValueError as error:
        raise ConfigError(
            f"This is not valid JSON: {error}", subject=_PARAMETER, value=given, remedy=_remedy(identifier_columns)
        ) from None
    if set(values) != set(identifier_columns) or not all(isinstance(each, str | bool) for each in values.values()):
        raise ConfigError(
            f"The identifier columns are {', '.join(identifier_columns)}, each with a single value",
            subject=_PARAMETER,
            value=given,
            remedy=_remedy(identifier_columns),
        )
    return {name: each if isinstance(each, str) else str(each).lower() for name, each in values.items()}


def _parts(text: str) -> list[str]:
    """The parts of an id between its `|`, still escaped."""
    parts, place = [], 0
    while True:
        match = _PART.match(text, place)
        end = match.end() if match else place
        parts.append(text[place:end])
        if end >= len(text) or text[end] != "|":
            return parts
        place = end + 1


def _filter_value(text: str, kind: T.DataType) -> Any:
    if isinstance(kind, T.IntegralType):
        return int(text)
    if isinstance(kind, T.BooleanType):
        return text == "true"
    return text if isinstance(kind, _AS_TEXT) else None


def _remedy(identifier_columns: Sequence[str]) -> str:
    example = json.dumps(dict.fromkeys(identifier_columns, "..."))
    return f"give the _id as the index has it, such as {'|'.join(identifier_columns)}, or {example}"
