"""How a value of each type is read from JSON without loss, and how a value that does not fit is recognized."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from icecdc_core.ingest.rows.column_names import Path


@dataclass(frozen=True)
class Violation:
    """A reason why a record may not fit.

    Attributes:
        condition: Whether the record has the violation.
        path: The field with the violation.
        description: What is wrong, for the problem of the record.
        value: The value found, as text; None if the problem should not show it.
    """

    condition: Column
    path: Path
    description: str
    value: Column | None = None


@dataclass(frozen=True)
class ValueReader:
    """Reads a value whose type and range `from_json` checks itself.

    Attributes:
        kind: The type of the column.
    """

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
        """Return what may be wrong with the value.

        Args:
            parsed: What `from_json` read.
            path: The path of the value in the record.
            value: A column with the result of `value`, if there is one.
        """
        yield from ()


class FloatReader(ValueReader):
    """Reads a float or double; the texts that `from_json` reads as infinity are allowed."""

    def violations(self, parsed: Column, path: Path, value: Column | None = None) -> Iterator[Violation]:
        """A number that is too big for the type: Jackson reads it as infinity."""
        written_out = F.col("payload").rlike("Infinity|INF")
        is_infinite = F.abs(parsed) == F.lit(float("inf"))
        yield Violation(is_infinite & ~written_out, path, f"is too big for {self.kind.simpleString()}")


class TimeReader(ValueReader):
    """Reads a date or timestamp as text, because `from_json` reads any number as seconds, and digits as days.

    The text must be ISO 8601 with a four-digit year. A timestamp without a zone is in the session's time zone, digits
    after the microseconds are cut off, and a date must not have a time.
    """

    @property
    def json_type(self) -> T.DataType:
        """Text."""
        return T.StringType()

    def value(self, parsed: Column) -> Column:
        """Convert the text to a date or timestamp; null if it is neither."""
        is_iso = F.substr(parsed, F.lit(5), F.lit(1)) == "-"
        if isinstance(self.kind, T.DateType):
            is_iso = is_iso & (F.length(parsed) == len("2026-01-31"))
        return F.when(is_iso, parsed.try_cast(self.kind))

    def violations(self, parsed: Column, path: Path, value: Column | None = None) -> Iterator[Violation]:
        """A text that is not a date or timestamp."""
        time = self.value(parsed) if value is None else value
        wrong = parsed.isNotNull() & time.isNull()
        yield Violation(wrong, path, f"is not of type {self.kind.simpleString()}", parsed)
