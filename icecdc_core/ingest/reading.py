"""How each type of a table is read out of JSON without a loss, and by what a value that doesn't fit is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
    """With ``{value}`` where the value found goes."""


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

    def flaws(self, raw: Column, path: Path) -> Iterator[Flaw]:
        """What may be wrong with what was read."""
        yield from ()


class Broken(Part):
    """A float or double; the texts that `from_json` takes for infinity may stand in it."""

    def flaws(self, raw: Column, path: Path) -> Iterator[Flaw]:
        """Infinite, though nothing in the record says so: Jackson reads a number that is too big as infinity."""
        said = F.col("payload").rlike("Infinity|INF")
        yield Flaw((F.abs(raw) == F.lit(float("inf"))) & ~said, path, f"{{value}} is too big for {_name(self.kind)}")


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

    def flaws(self, raw: Column, path: Path) -> Iterator[Flaw]:
        """A text that is no such time."""
        yield Flaw(raw.isNotNull() & self.value(raw).isNull(), path, f"{{value}} is not of type {_name(self.kind)}")


@dataclass(frozen=True)
class Listed(Part):
    """An array; it has a flaw when an element has one."""

    element: Part

    @property
    def read(self) -> T.DataType:
        """The array of what is read of its elements."""
        return T.ArrayType(self.element.read)

    def named(self) -> T.DataType:
        """The array of the elements' named types."""
        return T.ArrayType(self.element.named())

    def value(self, raw: Column) -> Column:
        """Every element as wanted."""
        return F.transform(raw, self.element.value) if changes(self.element) else raw

    def flaws(self, raw: Column, path: Path) -> Iterator[Flaw]:
        """Null elements where none may be, and what is wrong with an element."""
        assert isinstance(self.kind, T.ArrayType)
        yield from _inside(raw, self.element, self.kind.containsNull, path)


@dataclass(frozen=True)
class Mapped(Part):
    """A map with text keys, a JSON object; it has a flaw when a value has one."""

    item: Part

    @property
    def read(self) -> T.DataType:
        """The map of what is read of its values."""
        return T.MapType(T.StringType(), self.item.read)

    def named(self) -> T.DataType:
        """The map of the values' named types."""
        return T.MapType(T.StringType(), self.item.named())

    def value(self, raw: Column) -> Column:
        """Every value as wanted."""
        return F.transform_values(raw, lambda _, item: self.item.value(item)) if changes(self.item) else raw

    def flaws(self, raw: Column, path: Path) -> Iterator[Flaw]:
        """Null values where none may be, and what is wrong with a value."""
        assert isinstance(self.kind, T.MapType)
        yield from _inside(F.map_values(raw), self.item, self.kind.valueContainsNull, path)


@dataclass(frozen=True)
class Slot:
    """A field of a struct.

    Attributes:
        name: Its column; the record's own name where it has no column.
        keys: The names under which records may have it; more than one where only the case tells them apart.
        part: How it is read.
        known: Whether there is a column for it.
        required: Whether it must be there.
    """

    name: str
    keys: Path
    part: Part
    known: bool
    required: bool

    def value(self, columns: Sequence[Column]) -> Column:
        """Its column, of what was read under its names."""
        return self.part.value(_first(columns))


@dataclass(frozen=True)
class Fields(Part):
    """A struct."""

    slots: tuple[Slot, ...]
    by_place: bool
    """Whether its fields are named by their place, since Spark can't tell names apart that differ only in case."""

    @property
    def read(self) -> T.DataType:
        """A struct with the records' own names."""
        return T.StructType([T.StructField(key, slot.part.read) for slot in self.slots for key in slot.keys])

    def named(self) -> T.DataType:
        """The same, named by place if need be."""
        kinds = [slot.part.named() for slot in self.slots for _ in slot.keys]
        keys = [key for slot in self.slots for key in slot.keys]
        names = [f"_{place}" for place in range(len(keys))] if self.by_place else keys
        return T.StructType([T.StructField(name, kind) for name, kind in zip(names, kinds, strict=True)])

    def value(self, raw: Column) -> Column:
        """The struct wanted, null where there is none."""
        if not changes(self):
            return raw
        columns = [slot.value(found).alias(slot.name) for slot, found in self.found(raw) if slot.known]
        return F.when(raw.isNotNull(), F.struct(*columns))

    def flaws(self, raw: Column, path: Path) -> Iterator[Flaw]:
        """Fields missing, unknown, there in two spellings, or with flaws of their own."""
        for slot, found in self.found(raw):
            place = (*path, slot.name)
            if not slot.known:
                yield Flaw(found[0].isNotNull(), place, "{value} has no column")
                continue
            if slot.required:
                yield Flaw(raw.isNotNull() & _first(found).isNull(), place, "is required, but missing or null")
            for other in range(1, len(found)):
                both = _first(found[:other]).isNotNull() & found[other].isNotNull()
                yield Flaw(both, place, f"is there twice, as {' and '.join(slot.keys)}")
            yield from slot.part.flaws(_first(found), (*path, slot.keys[0]))

    def found(self, raw: Column) -> Iterator[tuple[Slot, list[Column]]]:
        """Every slot with what was read under each of its names."""
        place = 0
        for slot in self.slots:
            columns = []
            for key in slot.keys:
                columns.append(raw.getField(f"_{place}" if self.by_place else key))
                place += 1
            yield slot, columns


def changes(part: Part) -> bool:
    """Whether what is read is not yet what is wanted."""
    if isinstance(part, Listed):
        return changes(part.element)
    if isinstance(part, Mapped):
        return changes(part.item)
    if isinstance(part, Fields):
        plain = all(slot.keys == (slot.name,) and slot.known and not changes(slot.part) for slot in part.slots)
        return part.by_place or not plain
    return isinstance(part, Instant)


def _name(kind: T.DataType) -> str:
    return kind.simpleString()


def _inside(items: Column, part: Part, nulls: bool, path: Path) -> Iterator[Flaw]:
    if not nulls:
        yield Flaw(F.exists(items, lambda item: item.isNull()), path, "{value} holds null")
    for place, flaw in enumerate(part.flaws(F.lit(None), ())):
        inner = ".".join(flaw.path)
        what = flaw.what if not inner else f"{{value}}: its {inner} {flaw.what.replace('{value} ', '')}"
        yield Flaw(F.exists(items, _condition(part, place)), path, what)


def _condition(part: Part, place: int) -> Callable[[Column], Column]:
    return lambda item: list(part.flaws(item, ()))[place].condition


def _first(columns: Sequence[Column]) -> Column:
    return columns[0] if len(columns) == 1 else F.coalesce(*columns)
