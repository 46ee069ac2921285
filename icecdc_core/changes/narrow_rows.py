"""Shuffle, carryovers and updates on narrow rows: identifiers, and one number instead of all other values.

``narrow_rows`` reduces each change to its identifier, its step and one number: 63 bits of hash, and the side as the
last bit. These rows go through ``shuffle_by_identifiers``.

``drop_narrow_carryovers`` then needs only the number of rows of one identifier and step, and the XOR of their numbers:

    ==  ====  ======  =====      ==  ====  ====  =====  =================================
    id  step  side    hash       id  step  rows  xor
    ==  ====  ======  =====      ==  ====  ====  =====  =================================
    1   0     DELETE  a5         1   0     2     1      a carryover: equal hashes cancel
    1   0     INSERT  a5    ->   2   0     2     odd    an upsert
    2   0     DELETE  17         3   0     1     even   a delete
    2   0     INSERT  c4
    3   0     DELETE  90
    ==  ====  ======  =====      ==  ====  ====  =====  =================================

``merge_narrow_updates`` lets the last step of each identifier decide:

    ==  ====  =======      ==  ========
    id  step  kind         id  decision
    ==  ====  =======      ==  ========
    2   0     upsert       2   upsert at step 1
    2   1     upsert  ->   3   delete at step 0
    3   0     delete
    ==  ====  =======      ==  ========

Expressions are SQL text here, see ``icecdc_core.changes``; each text has a name.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

from icecdc_core.columns import CHANGE_ORDINAL, IS_INSERT, JSON_OPTIONS, RESERVED, quoted
from icecdc_core.equality import canonical_value, is_floating, with_canonical_columns

FAST, KEYED = "fast", "keyed"

_TEXTS = (StringType, ArrayType, MapType, StructType, VariantType)
_BITS = 32


def new_key(row_hash: str) -> str:
    """Return the key that one comparison hashes with; "" for ``fast``.

    Spark shows the key as a literal in its plans, its web UI and its event log. That does no harm: the key is drawn
    after the rows that it hashes were committed, and used once.
    """
    return secrets.token_hex(32) if row_hash == KEYED else ""


def with_row_hash(frame: DataFrame, fields: Sequence[StructField], key: str = "") -> tuple[DataFrame, str]:
    """Return what it takes to hash these columns so that the hash differs if a value does."""
    rows, names = with_canonical_columns(frame, fields, _hashable)
    return rows, _keyed(fields, names, key) if key else _fast(fields, names)


def _hashable(field: StructField) -> Column | None:
    """Nested values as the JSON text they have in documents, which keeps microseconds, unlike that of `to_json`.

    Spark's hash skips nulls, within arrays and structs too.
    """
    value = canonical_value(field)
    if isinstance(field.dataType, (ArrayType, MapType, StructType)):
        nested = F.col(quoted(field.name)) if value is None else value
        return F.to_json(F.struct(nested.alias("v")), JSON_OPTIONS)
    return value


def _fast(fields: Sequence[StructField], names: Mapping[str, str]) -> str:
    """SQL text of xxhash64 over the values, which -0.0 among them, and which are null.

    Spark's hash skips nulls, so (1, null) and (null, 1) would be the same. One number holds the null bits of up to 32
    columns, because hashing a number costs as much as hashing a flag.
    """
    values = [names[field.name] for field in fields]
    zeros = [_is_negative_zero(names[field.name]) for field in fields if is_floating(field.dataType)]
    bits = [
        f"shiftleft(cast({quoted(field.name)} IS NULL AS int), {position % _BITS})"
        for position, field in enumerate(field for field in fields if field.nullable)
    ]
    nulls = [" | ".join(bits[first : first + _BITS]) for first in range(0, len(bits), _BITS)]
    return f"xxhash64({', '.join([*values, *zeros, *nulls])})"


def _is_negative_zero(name: str) -> str:
    """SQL text of ``equality.is_negative_zero``."""
    return f"({name} = 0.0D AND cast({name} AS string) = '-0.0')"


def _keyed(fields: Sequence[StructField], names: Mapping[str, str], key: str) -> str:
    """SQL text of a number made of SHA-256 over the key and the values.

    xxhash64 only shortens the digest: nobody can choose a digest, so its weakness does not matter here.
    """
    values = ", ',', ".join(_encoded(field.dataType, names[field.name]) for field in fields)
    return f"xxhash64(sha2(concat('{key},', {values}), 256))"


def _encoded(data_type: DataType, value: str) -> str:
    """SQL text of a string that differs if the value does, whatever follows: never null, and texts have a length."""
    if isinstance(data_type, BinaryType):
        return f"coalesce(concat('x', hex({value})), '')"
    if isinstance(data_type, _TEXTS):
        return f"coalesce(concat(octet_length({value}), ':', {value}), '')"
    if isinstance(data_type, TimestampType):
        # Two moments may have one text, when clocks are set back.
        return f"coalesce(cast(unix_micros({value}) AS string), '')"
    return f"coalesce(cast({value} AS string), '')"


KIND, IS_DUPLICATE, ROWS = "_icecdc_kind", "_icecdc_duplicate", "_icecdc_rows"
DELETED, UPSERTED = 1, 2

_NUMBER, _XOR, _LEFT_BEFORE = "_icecdc_row", "_icecdc_xor", "_icecdc_left_before"

_HAS_INSERT = f"({_XOR} & 1) = 1"
_HAS_DELETE = f"({ROWS} = 2 OR NOT {_HAS_INSERT})"
_IS_CARRYOVER = f"({ROWS} = 2 AND {_XOR} = 1)"
_TWO_ON_ONE_SIDE = f"NOT ({ROWS} = 1 OR ({ROWS} = 2 AND {_HAS_INSERT}))"
# A step deletes a row exactly if the step before left one.
_TWO_IN_ROW = f"coalesce({_HAS_DELETE} <> {_LEFT_BEFORE}, false)"

# The step and the kind in one number, whose maximum is the last step.
_DECISION, _KINDS = "_icecdc_decision", 4

IS_UPSERTED, IS_DELETED = (f"(NOT {IS_DUPLICATE} AND {_DECISION} % {_KINDS} = {kind})" for kind in (UPSERTED, DELETED))
"""SQL text: what is left to do for an identifier of ``merge_narrow_updates``; neither for a duplicate."""

DECIDING_STEP = f"cast(floor({_DECISION} / {_KINDS}) AS int)"
"""SQL text: the step that decides it."""


def narrow_rows(changes: DataFrame, identifier_columns: Sequence[str], row_hash: str, with_step: bool) -> DataFrame:
    """Reduce each change to its identifier, its step and one number of hash and side."""
    compared = [field for field in changes.schema.fields if field.name not in RESERVED]
    rows, hashed = with_row_hash(changes, compared, new_key(row_hash))
    number = f"shiftleft({hashed}, 1) | cast({IS_INSERT} AS bigint) AS {_NUMBER}"
    return rows.selectExpr(*map(quoted, identifier_columns), *([CHANGE_ORDINAL] if with_step else []), number)


def drop_narrow_carryovers(narrow: DataFrame, identifier_columns: Sequence[str], with_step: bool) -> DataFrame:
    """Return what each step did to each identifier, without steps that left its row as it was."""
    ids = [quoted(name) for name in identifier_columns]
    step = [CHANGE_ORDINAL] if with_step else []
    # Grouped only after the shuffle: nearly every identifier is in few rows, so partial groups save nothing.
    groups = narrow.groupBy(*ids, *step).agg(F.count(F.lit(1)).alias(ROWS), F.bit_xor(_NUMBER).alias(_XOR))
    duplicate = _TWO_ON_ONE_SIDE
    if with_step:
        before = f"lag({_HAS_INSERT}) OVER (PARTITION BY {', '.join(ids)} ORDER BY {CHANGE_ORDINAL})"
        groups = groups.selectExpr("*", f"{before} AS {_LEFT_BEFORE}")
        duplicate = f"({_TWO_ON_ONE_SIDE} OR {_TWO_IN_ROW})"
    kind = f"if({_HAS_INSERT}, {UPSERTED}, {DELETED}) AS {KIND}"
    changed = groups.where(f"NOT {_IS_CARRYOVER} OR {duplicate}")
    return changed.selectExpr(*ids, *step, kind, f"{duplicate} AS {IS_DUPLICATE}", ROWS)


def merge_narrow_updates(steps: DataFrame, identifier_columns: Sequence[str], only_step: int | None) -> DataFrame:
    """Keep one row for each identifier: the last step decides."""
    ids = [quoted(name) for name in identifier_columns]
    if only_step is not None:
        return steps.selectExpr(*ids, f"{only_step * _KINDS} + {KIND} AS {_DECISION}", IS_DUPLICATE, ROWS)
    return steps.groupBy(*ids).agg(
        F.expr(f"max({CHANGE_ORDINAL} * {_KINDS} + {KIND}) AS {_DECISION}"),
        F.expr(f"max({IS_DUPLICATE}) AS {IS_DUPLICATE}"),
        F.expr(f"sum({ROWS}) AS {ROWS}"),
    )
