"""How arrays, maps and structs are read out of JSON: through what is in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from icecdc_core.ingest.rows.column_names import shown
from icecdc_core.ingest.rows.json_reading import Flaw, Instant, Part, Path
from icecdc_core.ingest.rows.writer_checks import Uuid, folder_flaw


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

    def flaws(self, raw: Column, path: Path, value: Column | None = None) -> Iterator[Flaw]:
        """Null elements where none may be, and what is wrong with an element."""
        assert isinstance(self.kind, T.ArrayType)
        yield from _inside(raw, raw, self.element, self.kind.containsNull, path)


@dataclass(frozen=True)
class Mapped(Part):
    """A map with text keys, a JSON object; it has a flaw when a key or a value has one."""

    item: Part
    key: Part | None = None

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

    def flaws(self, raw: Column, path: Path, value: Column | None = None) -> Iterator[Flaw]:
        """Null values where none may be, and what is wrong with a key or a value."""
        assert isinstance(self.kind, T.MapType)
        if self.key is not None:
            yield from _inside(raw, F.map_keys(raw), self.key, True, path, "(a key) ")
        yield from _inside(raw, F.map_values(raw), self.item, self.kind.valueContainsNull, path)


@dataclass(frozen=True)
class Slot:
    """A field of a struct.

    Attributes:
        name: Its column; the record's own name where it has no column.
        keys: The names under which records may have it; more than one where only the case tells them apart.
        part: How it is read.
        known: Whether there is a column for it.
        required: Whether it must be there.
        refusal: What to say of a record that has it, where it has no column.
        folders: How its value becomes the name of a partition folder, see `written`.
    """

    name: str
    keys: Path
    part: Part
    known: bool
    required: bool
    refusal: str = ""
    folders: tuple[dict[str, Any], ...] = ()

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

    def flaws(self, raw: Column, path: Path, value: Column | None = None) -> Iterator[Flaw]:
        """Fields missing, unknown, there in two spellings, or with flaws of their own; `value` holds the struct."""
        for slot, found in self.found(raw):
            place = (*path, slot.name)
            if not slot.known:
                yield Flaw(found[0].isNotNull(), place, slot.refusal, found[0])
                continue
            if slot.required:
                # Of a deleted row, often only the key is told.
                missing = raw.isNotNull() & _first(found).isNull() & ~F.col("op").eqNullSafe("delete")
                yield Flaw(missing, place, "is required, but missing or null")
            for other in range(1, len(found)):
                both = _first(found[:other]).isNotNull() & found[other].isNotNull()
                yield Flaw(both, place, f"is there twice, as {' and '.join(slot.keys)}")
            held = None if value is None else value.getField(slot.name)
            yield from slot.part.flaws(_first(found), (*path, slot.keys[0]), held)
            for folder in slot.folders:
                yield folder_flaw(_first(found), (*path, slot.keys[0]), slot.part.kind, folder)

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
    return isinstance(part, (Instant, Uuid))


def _inside(raw: Column, items: Column, part: Part, nulls: bool, path: Path, prefix: str = "") -> Iterator[Flaw]:
    # Names by place would tell nobody anything.
    text = F.to_json(raw) if part.named() == part.read else None
    if not nulls:
        yield Flaw(F.exists(items, lambda item: item.isNull()), path, "holds null", text)
    for place, flaw in enumerate(part.flaws(F.lit(None), ())):
        inner = f"(its {shown(flaw.path)}) " if flaw.path else prefix
        yield Flaw(F.exists(items, _condition(part, place)), path, inner + flaw.what, text)


def _condition(part: Part, place: int) -> Callable[[Column], Column]:
    return lambda item: list(part.flaws(item, ()))[place].condition


def _first(columns: Sequence[Column]) -> Column:
    return columns[0] if len(columns) == 1 else F.coalesce(*columns)
