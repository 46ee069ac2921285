"""The rows that views show: those that differ between snapshots, and those of one document.

In: opened sources and identifiers that a user typed. Out: pairs of before and after, as plain values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from icecdc_core.columns import CHANGE_TYPE, DELETE, INSERT, JSON_OPTIONS, is_document_column, quoted
from icecdc_core.documents.bulk_lines import DIGEST, document_id, json_ready, scalar_text
from icecdc_core.errors import ConfigError
from icecdc_core.explore.figures import value_text
from icecdc_core.reporting.figures import Cell

INSERTED, UPDATED, DELETED = "insert", "update", "delete"
BEFORE, AFTER, ID, KIND = (f"_icecdc_{name}" for name in ("before", "after", "shown_id", "shown_kind"))
INSERTS, DELETES = "_icecdc_inserts", "_icecdc_deletes"

Document = Mapping[str, Any]


@dataclass(frozen=True)
class RowChange:
    """A row before and after."""

    document_id: str
    before: Document | None
    after: Document | None

    @property
    def kind(self) -> str:
        """``insert``, ``update`` or ``delete``."""
        if self.before is None:
            return INSERTED
        return DELETED if self.after is None else UPDATED

    @property
    def changed_fields(self) -> list[str]:
        """The fields whose values differ, in the order of the document."""
        before, after = self.before or {}, self.after or {}
        return [name for name in {**before, **after} if before.get(name) != after.get(name)]

    def cell(self, name: str) -> Cell:
        """What a table shows of one field: its value, or both if they differ."""
        if self.before is None or self.after is None:
            values = self.after if self.before is None else self.before
            return Cell(value_text((values or {}).get(name)), self.kind)
        before, after = value_text(self.before.get(name)), value_text(self.after.get(name))
        return Cell(after, UPDATED, before) if name in self.changed_fields else Cell(after)


def pair_rows(changes: DataFrame, key_columns: Sequence[str], only_inserts: bool = False) -> DataFrame:
    """Return one row for each identifier: its rows before and after, and how many there are."""
    keys = [F.col(quoted(name)) for name in key_columns]
    fields = [quoted(name) for name in changes.columns if is_document_column(name)]
    row, is_delete = F.struct(*fields), F.col(CHANGE_TYPE) == DELETE
    sides = changes.select(
        *keys,
        F.when(is_delete, row).alias(BEFORE),
        F.when(~is_delete, row).alias(AFTER),
        F.when(is_delete, 0).otherwise(1).alias(INSERTS),
        F.when(is_delete, 1).otherwise(0).alias(DELETES),
    )
    if only_inserts or not key_columns:
        return sides
    return sides.groupBy(*keys).agg(
        F.first(BEFORE, ignorenulls=True).alias(BEFORE),
        F.first(AFTER, ignorenulls=True).alias(AFTER),
        F.sum(INSERTS).alias(INSERTS),
        F.sum(DELETES).alias(DELETES),
    )


def kind_of_pair() -> Column:
    """The kind of a pair of ``pair_rows``."""
    kind = F.when(F.col(INSERTS) == 0, DELETED).when(F.col(DELETES) == 0, INSERTED)
    return kind.otherwise(UPDATED).alias(KIND)


def document_json_columns(pairs: DataFrame) -> list[Column]:
    """The rows before and after of a pair, each as the JSON of its document."""
    return [
        F.to_json(json_ready(F.col(side), pairs.schema[side].dataType, JSON_OPTIONS), JSON_OPTIONS).alias(side)
        for side in (BEFORE, AFTER)
    ]


def parse_document(text: str | None) -> Document | None:
    """The document of a JSON text; None for None."""
    return None if text is None else dict(json.loads(text))


def net_pairs(changes: Sequence[tuple[str, Document]]) -> Iterator[tuple[Document | None, Document | None]]:
    """Yield before and after of the rows that one step really changed; equal rows of both sides cancel."""
    before = [row for kind, row in changes if kind == DELETE]
    after = [row for kind, row in changes if kind == INSERT]
    for row in [*before]:
        if row in after:
            before.remove(row)
            after.remove(row)
    for position in range(max(len(before), len(after))):
        yield (
            before[position] if position < len(before) else None,
            after[position] if position < len(after) else None,
        )


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
