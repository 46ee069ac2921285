"""Parts of an index by its document ids: the function by which OpenSearch slices a search, for ids of a table.

It is the hash murmur3_x86_32 of the term under which OpenSearch indexes an id. Nobody promises that, so whoever reads a
slice proves it of every id.
"""

import re
from base64 import urlsafe_b64decode
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from pyspark.sql import Column
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import BooleanType

_SEED = 7919
# Text that base64 without padding could have made: no bit of the last character is unused.
_BASE64 = re.compile("(?:[A-Za-z0-9_-]{4})*(?:[A-Za-z0-9_-][AQgw]|[A-Za-z0-9_-]{2}[AEIMQUYcgkosw048])?")


class Part(NamedTuple):
    """One of so many parts of all ids, counted from 0."""

    number: int = 0
    parts: int = 1

    @classmethod
    def of(cls, text: str) -> Self:
        number, _, parts = text.partition("/")
        return cls(int(number) - 1, int(parts)) if text else cls()

    def __str__(self) -> str:
        return f"{self.number + 1}/{self.parts}" if self.parts > 1 else ""

    def has(self, document_id: Column) -> Column:
        import pandas as pd  # no other job needs it

        def is_in(ids: pd.Series) -> pd.Series:
            return pd.Series(parts_of(ids.tolist(), self.parts) == self.number)

        belongs: Column = pandas_udf(is_in, BooleanType())(document_id)  # type: ignore[call-overload]
        return belongs

    def has_all(self, ids: Sequence[str]) -> bool:
        return self.parts == 1 or bool((parts_of(ids, self.parts) == self.number).all())


EVERYTHING = Part()


def parts_of(ids: Sequence[str], parts: int) -> Any:
    """Return the part of each id, as an array."""
    terms = [_term(each) for each in ids]
    sizes = np.fromiter(map(len, terms), np.uint32, len(terms))
    whole, width = sizes // 4, int(sizes.max(initial=0)) // 4 * 4 + 4
    words = np.frombuffer(b"".join(term.ljust(width, b"\0") for term in terms), "<u4").reshape(len(terms), -1)
    state: Any = np.full(len(terms), _SEED, np.uint32)
    for at in range(width // 4):
        mixed = state ^ _rotated(words[:, at] * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
        state = np.where(at <= whole, mixed, state)  # the last word has the remaining bytes, perhaps none, and zeros
        state = np.where(at < whole, _rotated(state, 13) * np.uint32(5) + np.uint32(0xE6546B64), state)
    state ^= sizes
    state = (state ^ state >> 16) * np.uint32(0x85EBCA6B)
    state = (state ^ state >> 13) * np.uint32(0xC2B2AE35)
    return (state ^ state >> 16).astype(np.int32).astype(np.int64) % parts


def _rotated(words: Any, bits: int) -> Any:
    return words << bits | words >> 32 - bits


def _term(document_id: str) -> bytes:
    """The bytes under which OpenSearch indexes an id: packed digits, decoded base64, or else UTF-8."""
    if document_id.isascii() and document_id.isdigit():
        return bytes.fromhex(f"fe{document_id}{'f' * (len(document_id) % 2)}")
    if _BASE64.fullmatch(document_id):
        decoded = urlsafe_b64decode(document_id + "=" * (-len(document_id) % 4))
        return b"\xfd" + decoded if decoded[:1] >= b"\xfd" else decoded
    return b"\xff" + document_id.encode()
