"""How arrays, maps and structs are read from JSON: through the readers of their values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from icecdc_core.ingest.rows.column_names import Path, path_text
from icecdc_core.ingest.rows.value_readers import KeyReader, TimeReader, ValueReader, Violation
from icecdc_core.ingest.rows.writer_checks import UuidReader, partition_folder_violation


@dataclass(frozen=True)
class ArrayReader(ValueReader):
    """Reads an array."""

    element: ValueReader

    @property
    def json_type(self) -> T.DataType:
        """An array of the elements' JSON type."""
        return T.ArrayType(self.element.json_type)

    def parsed_type(self) -> T.DataType:
        """An array of the elements' parsed type."""
        return T.ArrayType(self.element.parsed_type())

    def value(self, parsed: Column) -> Column:
        """Convert every element."""
        return F.transform(parsed, self.element.value) if needs_conversion(self.element) else parsed

    def violations(self, parsed: Column, path: Path, value: Column | None = None) -> Iterator[Violation]:
        """A null element where none is allowed, and the violations of an element."""
        assert isinstance(self.kind, T.ArrayType)
        yield from _item_violations(parsed, parsed, self.element, self.kind.containsNull, path)


@dataclass(frozen=True)
class MapReader(ValueReader):
    """Reads a map, which is an object in JSON."""

    item: ValueReader
    key: ValueReader | None = None

    @property
    def json_type(self) -> T.DataType:
        """A map from text to the values' JSON type."""
        return T.MapType(T.StringType(), self.item.json_type)

    def parsed_type(self) -> T.DataType:
        """A map from text to the values' parsed type."""
        return T.MapType(T.StringType(), self.item.parsed_type())

    def value(self, parsed: Column) -> Column:
        """Convert every key and value of the map; null if a key does not fit."""
        if isinstance(self.key, KeyReader):
            keys, items = F.transform(F.map_keys(parsed), self.key.value), F.map_values(parsed)
            items = F.transform(items, self.item.value) if needs_conversion(self.item) else items
            # Spark would fail for a null key, and for one that is there twice.
            return F.when(_are_keys(keys), F.map_from_arrays(keys, items))
        convert = needs_conversion(self.item)
        return F.transform_values(parsed, lambda _, item: self.item.value(item)) if convert else parsed

    def violations(self, parsed: Column, path: Path, value: Column | None = None) -> Iterator[Violation]:
        """A null value where none is allowed, and the violations of a key or a value."""
        assert isinstance(self.kind, T.MapType)
        if isinstance(self.key, KeyReader):
            wrong = ~_are_keys(F.transform(F.map_keys(parsed), self.key.value))
            yield Violation(wrong, path, f"has a key that is no {self.key.kind.simpleString()}, or is there twice")
        elif self.key is not None:
            yield from _item_violations(parsed, F.map_keys(parsed), self.key, True, path, "(a key) ")
        yield from _item_violations(parsed, F.map_values(parsed), self.item, self.kind.valueContainsNull, path)


@dataclass(frozen=True)
class FieldReader:
    """Reads a field of a struct."""

    name: str
    spellings: Path
    reader: ValueReader
    has_column: bool
    required: bool
    refusal: str = ""
    folders: tuple[dict[str, Any], ...] = ()
    default: str | None = None

    @property
    def json_fields(self) -> list[T.StructField]:
        """The field under each spelling; Spark's parser fills in the default of a missing one."""
        defaults = {"EXISTS_DEFAULT": self.default} if self.default and len(self.spellings) == 1 else {}
        return [T.StructField(name, self.reader.json_type, True, defaults) for name in self.spellings]

    def parsed(self, spellings: Sequence[Column]) -> Column:
        """Return what was parsed, given under each spelling."""
        if len(spellings) == 1:
            return spellings[0]
        # Which of several spellings is missing says nothing, so that here a null gets the default, too.
        return F.coalesce(*spellings, *([F.expr(self.default)] if self.default else []))

    def value(self, spellings: Sequence[Column]) -> Column:
        """Convert what was parsed, given under each spelling."""
        return self.reader.value(self.parsed(spellings))


@dataclass(frozen=True)
class StructReader(ValueReader):
    """Reads a struct."""

    fields: tuple[FieldReader, ...]
    by_position: bool

    @property
    def json_type(self) -> T.StructType:
        """A struct with the names in the records."""
        return T.StructType([each for field in self.fields for each in field.json_fields])

    def parsed_type(self) -> T.StructType:
        """The same struct, with names by position if need be."""
        fields = [(spelling, field.reader) for field in self.fields for spelling in field.spellings]
        return T.StructType(
            [
                T.StructField(_position_name(position) if self.by_position else spelling, reader.parsed_type())
                for position, (spelling, reader) in enumerate(fields)
            ]
        )

    def value(self, parsed: Column) -> Column:
        """Convert every field; null for a null struct."""
        if not needs_conversion(self):
            return parsed
        columns = [
            field.value(values).alias(field.name) for field, values in self.parsed_fields(parsed) if field.has_column
        ]
        return F.when(parsed.isNotNull(), F.struct(*columns))

    def violations(self, parsed: Column, path: Path, value: Column | None = None) -> Iterator[Violation]:
        """Fields that are missing, have no column or two spellings, and the violations of their values."""
        for field, values in self.parsed_fields(parsed):
            if not field.has_column:
                yield Violation(values[0].isNotNull(), (*path, field.name), field.refusal, values[0])
                continue
            if field.required:
                # A delete often names only the identifier columns.
                missing = parsed.isNotNull() & field.parsed(values).isNull() & ~F.col("op").eqNullSafe("delete")
                yield Violation(missing, (*path, field.name), "is required, but missing or null")
            for other in range(1, len(values)):
                both = _first(values[:other]).isNotNull() & values[other].isNotNull()
                yield Violation(both, (*path, field.name), f"is there twice, as {' and '.join(field.spellings)}")
            field_path = (*path, field.spellings[0])
            field_value = None if value is None else value.getField(field.name)
            yield from field.reader.violations(field.parsed(values), field_path, field_value)
            for folder in field.folders:
                yield partition_folder_violation(field.parsed(values), field_path, field.reader.kind, folder)

    def parsed_fields(self, parsed: Column) -> Iterator[tuple[FieldReader, list[Column]]]:
        """Every field with what was parsed under each of its spellings."""
        position = 0
        for field in self.fields:
            columns = []
            for spelling in field.spellings:
                columns.append(parsed.getField(_position_name(position) if self.by_position else spelling))
                position += 1
            yield field, columns


def needs_conversion(reader: ValueReader) -> bool:
    """Whether the parsed value differs from the value that the column stores."""
    if isinstance(reader, ArrayReader):
        return needs_conversion(reader.element)
    if isinstance(reader, MapReader):
        return isinstance(reader.key, KeyReader) or needs_conversion(reader.item)
    if isinstance(reader, StructReader):
        return reader.by_position or any(
            field.spellings != (field.name,) or not field.has_column or needs_conversion(field.reader)
            for field in reader.fields
        )
    return isinstance(reader, (TimeReader, UuidReader))


def _are_keys(keys: Column) -> Column:
    return ~F.exists(keys, lambda key: key.isNull()) & (F.size(F.array_distinct(keys)) == F.size(keys))


def _position_name(position: int) -> str:
    return f"_{position}"


def _item_violations(
    parsed: Column, items: Column, reader: ValueReader, nulls: bool, path: Path, prefix: str = ""
) -> Iterator[Violation]:
    # Names by position would mean nothing to a reader of the problem.
    text = F.to_json(parsed) if reader.parsed_type() == reader.json_type else None
    if not nulls:
        yield Violation(F.exists(items, lambda item: item.isNull()), path, "contains null", text)
    for index, violation in enumerate(reader.violations(F.lit(None), ())):
        inner = f"(its {path_text(violation.path)}) " if violation.path else prefix
        yield Violation(F.exists(items, _condition(reader, index)), path, inner + violation.description, text)


def _condition(reader: ValueReader, index: int) -> Callable[[Column], Column]:
    return lambda item: list(reader.violations(item, ()))[index].condition


def _first(columns: Sequence[Column]) -> Column:
    return columns[0] if len(columns) == 1 else F.coalesce(*columns)
