"""How each type of a table is read out of JSON without a loss, and by what a value that doesn't fit is known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

Path = tuple[str, ...]


@dataclass(frozen=True)
class Flaw:
    """A way in which a record may not fit: when it is true, the field it is about, and what to say of it."""

    condition: Column
    path: Path
    what: str
    value: Column | None = None
    """The value found, as text."""


@dataclass(frozen=True)
class Part:
    """A value that `from_json` reads as it should be: its own checks of type and range tell what doesn't fit.

    Args:
        kind: The type wanted.
    """

    kind: T.DataType

    @property
    def read(self) -> T.DataType:
        """The type that `from_json` is told."""
        return self.kind

    def named(self) -> T.DataType:
        """The type read, with the names that `value` and `flaws` go by; a cast changes nothing else."""
        return self.read

    def value(self, raw: Column) -> Column:
        """What was read, as the type wanted; null where it doesn't fit."""
        return raw

    def flaws(self, raw: Column, path: Path, value: Column | None = None) -> Iterator[Flaw]:
        """What may be wrong with what was read.

        Args:
            raw: What was read.
            path: Where it stands in the record.
            value: A column that holds `value` already, if there is one.
        """
        yield from ()


class Broken(Part):
    """A float or double; the texts that `from_json` takes for infinity may stand in it."""

    def flaws(self, raw: Column, path: Path, value: Column | None = None) -> Iterator[Flaw]:
        """Infinite, though nothing in the record says so: Jackson reads a number that is too big as infinity."""
        said = F.col("payload").rlike("Infinity|INF")
        yield Flaw((F.abs(raw) == F.lit(float("inf"))) & ~said, path, f"is too big for {_name(self.kind)}")


class Instant(Part):
    """A date or timestamp, read as text: `from_json` takes any number for seconds, and digits for days.

    ISO 8601 with a four-digit year is wanted. A timestamp without a zone is in the session's time zone, digits after
    the microseconds are cut off, and a date must be no more than a date.
    """

    @property
    def read(self) -> T.DataType:
        """Text."""
        return T.StringType()

    def value(self, raw: Column) -> Column:
        """The text as date or timestamp; null where it is none."""
        iso = F.substr(raw, F.lit(5), F.lit(1)) == "-"
        if isinstance(self.kind, T.DateType):
            iso = iso & (F.length(raw) == len("2026-01-31"))
        return F.when(iso, raw.try_cast(self.kind))

    def flaws(self, raw: Column, path: Path, value: Column | None = None) -> Iterator[Flaw]:
        """A text that is no such time."""
        found = self.value(raw) if value is None else value
        yield Flaw(raw.isNotNull() & found.isNull(), path, f"is not of type {_name(self.kind)}", raw)


def _name(kind: T.DataType) -> str:
    return kind.simpleString()
