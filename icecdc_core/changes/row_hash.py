"""A row as 64 bits of hash over all its values: how rows are compared without being moved.

``fast`` is Spark's xxhash64. It has no key, so whoever controls a text of a row can compute another text with the same
hash, within milliseconds where the values before it are known; some pairs agree for every seed. An UPDATE from the one
to the other is then taken for an unchanged row. ``keyed`` is SHA-256 over a random key and then the row's values.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

from pyspark.sql import Column
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

from icecdc_core.columns import JSON_OPTIONS, quoted
from icecdc_core.equality import canonical

FAST, KEYED = "fast", "keyed"

_AS_TEXT = (StringType, ArrayType, MapType, StructType, VariantType)
# Of an int.
_BITS = 32


def new_key(row_hash: str) -> str:
    """Return the key that one comparison hashes with; "" for ``fast``.

    It stands as a literal in the plans of Spark, and so in its web pages and event log. That gives nothing away: it is
    drawn after the rows that it hashes were committed, and used once.
    """
    return secrets.token_hex(32) if row_hash == KEYED else ""


def hash_text(fields: Sequence[StructField], keys: Mapping[str, list[str]], key: str = "") -> str:
    """SQL text of a hash over these columns that differs where a value does.

    Args:
        fields: The columns.
        keys: What stands for each, see ``keyed`` with ``hash_key``.
        key: See ``new_key``.
    """
    return _keyed(fields, keys, key) if key else _fast(fields, keys)


def hash_key(field: StructField) -> Column | None:
    """Nested values as the JSON text they have in documents, which keeps microseconds, unlike that of `to_json`.

    Spark's hash passes over nulls, within arrays and structs too.
    """
    key = canonical(field)
    if isinstance(field.dataType, (ArrayType, MapType, StructType)):
        value = F.col(quoted(field.name)) if key is None else key
        return F.to_json(F.struct(value.alias("v")), JSON_OPTIONS)
    return key


def _fast(fields: Sequence[StructField], keys: Mapping[str, list[str]]) -> str:
    """Spark's hash passes over nulls, so (1, null) and (null, 1) would be the same.

    Which values of a row are null is hashed beside them, a bit each, because a number costs as much as a flag.
    """
    bits = [
        f"shiftleft(cast({quoted(field.name)} IS NULL AS int), {position % _BITS})"
        for position, field in enumerate(field for field in fields if field.nullable)
    ]
    nulls = [" | ".join(bits[first : first + _BITS]) for first in range(0, len(bits), _BITS)]
    return f"xxhash64({', '.join([*(key for field in fields for key in keys[field.name]), *nulls])})"


def _keyed(fields: Sequence[StructField], keys: Mapping[str, list[str]], key: str) -> str:
    """The digest's text becomes a number by xxhash64, which gives nothing away: nobody can choose the digest."""
    values = ", ',', ".join(_encoded(field.dataType, keys[field.name][0]) for field in fields)
    return f"xxhash64(sha2(concat('{key},', {values}), 256))"


def _encoded(data_type: DataType, value: str) -> str:
    """SQL text of a text that differs where values do, whatever follows: nothing is null, and a text has its length."""
    if isinstance(data_type, BinaryType):
        return f"coalesce(concat('x', hex({value})), '')"
    if isinstance(data_type, _AS_TEXT):
        return f"coalesce(concat(octet_length({value}), ':', {value}), '')"
    if isinstance(data_type, TimestampType):
        # As text two moments may be one, where clocks are set back.
        return f"coalesce(cast(unix_micros({value}) AS string), '')"
    return f"coalesce(cast({value} AS string), '')"
