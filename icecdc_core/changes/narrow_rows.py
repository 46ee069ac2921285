"""Narrow rows: identifiers, and one number instead of all other values, which is all that a comparison shuffles.

``shuffle_by_identifiers``, ``remove_narrow_carryovers`` and ``merge_narrow_updates`` take these rows. The number is 63
bits of hash, and the side as the last bit.
"""

import secrets
from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, functions as F, types as T

from icecdc_core.columns import CHANGE_ORDINAL, IS_INSERT, JSON_OPTIONS, NUMBER, RESERVED, quoted
from icecdc_core.equality import canonical_value, is_floating, with_canonical_columns

FAST, KEYED = "fast", "keyed"

_TEXTS = (T.StringType, T.ArrayType, T.MapType, T.StructType, T.VariantType)
_BITS = 32


def new_key(row_hash: str) -> str:
    """Return the key that one comparison hashes with; "" for ``fast``."""
    # Spark's plans and event log show it, which does no harm: it is drawn after its rows were committed, and used once.
    return secrets.token_hex(32) if row_hash == KEYED else ""


def with_row_hash(frame: DataFrame, fields: Sequence[T.StructField], key: str = "") -> tuple[DataFrame, str]:
    """Return what it takes to hash these columns so that the hash differs if a value does."""
    rows, names = with_canonical_columns(frame, fields, _hashable)
    if key:
        return rows, keyed_hash(fields, names, key)
    floats = [names[field.name] for field in fields if is_floating(field.dataType)]
    zeros = [f"({name} = 0.0D AND cast({name} AS string) = '-0.0')" for name in floats]  # as equality.with_keys has it
    # Spark's hash skips nulls, so (1, null) and (null, 1) would be the same. Hashing 32 bits costs as much as one flag.
    bits = [
        f"shiftleft(cast({quoted(field.name)} IS NULL AS int), {position % _BITS})"
        for position, field in enumerate(field for field in fields if field.nullable)
    ]
    nulls = [" | ".join(bits[first : first + _BITS]) for first in range(0, len(bits), _BITS)]
    return rows, f"xxhash64({', '.join([*names.values(), *zeros, *nulls])})"


def _hashable(field: T.StructField) -> Column | None:
    """Nested values as the JSON text of documents: Spark's hash skips nulls in them, plain `to_json` microseconds."""
    value = canonical_value(field)
    if isinstance(field.dataType, (T.ArrayType, T.MapType, T.StructType)):
        nested = F.col(quoted(field.name)) if value is None else value
        return F.to_json(F.struct(nested.alias("v")), JSON_OPTIONS)
    return value


def keyed_hash(fields: Sequence[T.StructField], names: Mapping[str, str], key: str) -> str:
    """SQL text of SHA-256 over key and values as a number: nobody can choose a digest, which xxhash64 shortens."""
    values = ", ',', ".join(_encoded(field.dataType, names[field.name]) for field in fields)
    return f"xxhash64(sha2(concat('{key},', {values}), 256))"


def _encoded(data_type: T.DataType, value: str) -> str:
    """SQL text of a string that differs if the value does, whatever follows: never null, and texts have a length."""
    if isinstance(data_type, T.BinaryType):
        return f"coalesce(concat('x', hex({value})), '')"
    if isinstance(data_type, _TEXTS):
        return f"coalesce(concat(octet_length({value}), ':', {value}), '')"
    if isinstance(data_type, T.TimestampType):
        # Two moments may have one text, when clocks are set back.
        return f"coalesce(cast(unix_micros({value}) AS string), '')"
    return f"coalesce(cast({value} AS string), '')"


def narrow_rows(changes: DataFrame, identifier_columns: Sequence[str], row_hash: str, with_step: bool) -> DataFrame:
    compared = [field for field in changes.schema.fields if field.name not in RESERVED]
    rows, hashed = with_row_hash(changes, compared, new_key(row_hash))
    number = f"shiftleft({hashed}, 1) | cast({IS_INSERT} AS bigint) AS {NUMBER}"
    return rows.selectExpr(*map(quoted, identifier_columns), *([CHANGE_ORDINAL] if with_step else []), number)
