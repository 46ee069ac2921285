"""How a value of each type is read from JSON without loss, and how a value that does not fit is recognized."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from icecdc_core.ingest.formats.json_text import has_too_big_number, text_at
from icecdc_core.ingest.rows.column_names import Path

_INFINITIES = tuple(f"{sign}{word}" for sign in ("", "+", "-") for word in ("Infinity", "INF"))
_NO_ZONE = r"^[0-9-]+([T ][0-9:.]*)?\z"


@dataclass(frozen=True)
class Violation:
    """A reason why a record may not fit."""

    condition: Column
    path: Path
    description: str
    value: Column | None = None


@dataclass(frozen=True)
class ValueReader:
    """Reads a value whose type and range `from_json` checks itself."""

    kind: T.DataType

    @property
    def json_type(self) -> T.DataType:
        """The type with which `from_json` reads the value."""
        return self.kind

    def parsed_type(self) -> T.DataType:
        """The `json_type` with the field names that `value` and `violations` use."""
        return self.json_type

    def value(self, parsed: Column) -> Column:
        """Convert what was parsed to the type of the column; null if it does not fit."""
        return parsed

    def violations(self, parsed: Column, path: Path, value: Column | None = None) -> Iterator[Violation]:
        """Return what may be wrong with the value."""
        yield from ()


class FloatReader(ValueReader):
    """Reads a float or double; the texts that `from_json` reads as infinity are allowed."""

    def violations(self, parsed: Column, path: Path, value: Column | None = None) -> Iterator[Violation]:
        """A number that is too big for the type: Jackson reads it as infinity."""
        payload = F.col("payload")
        # Inside arrays and maps, an infinity is accepted if no number of the record is too big.
        is_word = F.coalesce(text_at(payload, path).isin(*_INFINITIES), F.lit(False)) if path else F.lit(False)
        wrong = (F.abs(parsed) == F.lit(float("inf"))) & ~is_word & has_too_big_number(payload, self.kind)
        yield Violation(wrong, path, f"is too big for {self.kind.simpleString()}")


class TimeReader(ValueReader):
    """Reads a date or timestamp as text, because `from_json` reads any number as seconds, and digits as days.

    The text must be ISO 8601 with a four-digit year. A timestamp without a zone is in UTC, whatever the zone of the
    session, digits after the microseconds are cut off, and a date must not have a time.
    """

    @property
    def json_type(self) -> T.DataType:
        """Text."""
        return T.StringType()

    def value(self, parsed: Column) -> Column:
        """Convert the text to a date or timestamp; null if it is neither."""
        is_iso = F.substr(parsed, F.lit(5), F.lit(1)) == "-"
        if isinstance(self.kind, T.DateType):
            return F.when(is_iso & (F.length(parsed) == len("2026-01-31")), parsed.try_cast(self.kind))
        no_zone = parsed.rlike(_NO_ZONE)
        if isinstance(self.kind, T.TimestampNTZType):
            return F.when(is_iso & no_zone, parsed.try_cast(self.kind))
        epoch, local = F.lit("1970-01-01").cast("timestamp_ntz"), parsed.try_cast("timestamp_ntz")
        in_utc = F.timestamp_micros(F.timestamp_diff("MICROSECOND", epoch, local))
        return F.when(is_iso, F.when(no_zone, in_utc).otherwise(parsed.try_cast(self.kind)))

    def violations(self, parsed: Column, path: Path, value: Column | None = None) -> Iterator[Violation]:
        """A text that is not a date or timestamp."""
        time = self.value(parsed) if value is None else value
        wrong = parsed.isNotNull() & time.isNull()
        yield Violation(wrong, path, f"is not of type {self.kind.simpleString()}", parsed)


class KeyReader(ValueReader):
    """Reads a key of a map, which is text in JSON, as the type of the keys."""

    @property
    def json_type(self) -> T.DataType:
        """Text."""
        return T.StringType()

    def value(self, parsed: Column) -> Column:
        """Convert the key; null if it is not of its type."""
        if isinstance(self.kind, T.StringType):
            return parsed
        if isinstance(self.kind, (T.DateType, T.TimestampType, T.TimestampNTZType)):
            return TimeReader(self.kind).value(parsed)
        if isinstance(self.kind, T.BinaryType):
            return F.try_to_binary(parsed, F.lit("base64"))
        if not isinstance(self.kind, (T.NumericType, T.BooleanType)):
            return F.lit(None).cast(self.kind)
        key = parsed.try_cast(self.kind)
        if isinstance(self.kind, (T.FloatType, T.DoubleType)):
            return F.when((F.abs(key) != F.lit(float("inf"))) | parsed.isin(*_INFINITIES), key)
        return key if isinstance(self.kind, T.DecimalType) else F.when(key.cast("string") == parsed, key)
