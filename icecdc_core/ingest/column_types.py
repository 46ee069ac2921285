"""The type that holds the values of several types, the type to which Iceberg can promote a column, and its names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import cast

from pyspark.sql import types as T

from icecdc_core.columns import OWN_PREFIX

_FLOATS = (T.FloatType, T.DoubleType)
_MAX_DIGITS = 38
_DIGITS: dict[type[T.DataType], int] = {T.ByteType: 3, T.ShortType: 5, T.IntegerType: 10, T.LongType: 19}


def merge_types(left: T.DataType, right: T.DataType) -> T.DataType:
    """Return the narrowest type that holds the values of both; a string if there is no other."""
    if left == right or isinstance(right, T.NullType):
        return left
    if isinstance(left, T.StructType) and isinstance(right, T.StructType):
        return _merge_structs(left, right)
    if isinstance(left, T.ArrayType) and isinstance(right, T.ArrayType):
        nulls = left.containsNull or right.containsNull
        return T.ArrayType(merge_types(left.elementType, right.elementType), nulls)
    if isinstance(left, T.MapType) and isinstance(right, T.MapType):
        nulls = left.valueContainsNull or right.valueContainsNull
        return T.MapType(merge_types(left.keyType, right.keyType), merge_types(left.valueType, right.valueType), nulls)
    return right if isinstance(left, T.NullType) else _merge_scalars(left, right)


def merge_all_types(types: Sequence[T.DataType]) -> T.DataType | None:
    """Return the type that holds the values of all; None if there is no type."""
    return reduce(merge_types, types) if types else None


def merge_schemas(schemas: Sequence[T.StructType]) -> T.StructType:
    """Return the schema with the fields of all. One without fields does not count: it would make all optional."""
    return cast(T.StructType, merge_all_types([schema for schema in schemas if schema.fields]) or T.StructType())


def map_value_type(seen: T.DataType | None) -> T.DataType | None:
    """Return the type of the values of a map, which Spark guesses to be a struct; None if it is neither."""
    if isinstance(seen, T.MapType):
        return seen.valueType
    return merge_all_types([field.dataType for field in seen.fields]) if isinstance(seen, T.StructType) else None


def promote_type(current: T.DataType, seen: T.DataType) -> T.DataType | None:
    """Return the type to which Iceberg can promote a column for values of another; None if there is none."""
    if isinstance(current, T.IntegerType) and isinstance(seen, T.LongType):
        return seen
    if isinstance(current, T.FloatType) and isinstance(seen, T.DoubleType):
        return seen
    if isinstance(current, T.DecimalType) and isinstance(seen, T.DecimalType):
        digits = seen.precision - seen.scale + current.scale
        if seen.scale <= current.scale and current.precision < digits <= 38:
            return T.DecimalType(digits, current.scale)
    return None


def _merge_structs(left: T.StructType, right: T.StructType) -> T.StructType:
    others = {field.name: field for field in right.fields}
    fields = []
    for field in left.fields:
        other = others.pop(field.name, None)
        kind = field.dataType if other is None else merge_types(field.dataType, other.dataType)
        nullable = other is None or field.nullable or other.nullable
        fields.append(T.StructField(field.name, kind, nullable))
    fields += [T.StructField(field.name, field.dataType) for field in others.values()]
    return T.StructType(fields)


def _merge_scalars(left: T.DataType, right: T.DataType) -> T.DataType:
    if not (isinstance(left, T.NumericType) and isinstance(right, T.NumericType)):
        return T.StringType()
    if isinstance(left, _FLOATS) or isinstance(right, _FLOATS):
        return T.DoubleType()
    if type(left) in _DIGITS and type(right) in _DIGITS:
        return max(left, right, key=lambda kind: _DIGITS[type(kind)])
    one, other = (k if isinstance(k, T.DecimalType) else T.DecimalType(_DIGITS[type(k)], 0) for k in (left, right))
    scale = max(one.scale, other.scale)
    digits = max(one.precision - one.scale, other.precision - other.scale) + scale
    return T.DecimalType(digits, scale) if digits <= _MAX_DIGITS else T.StringType()


Path = tuple[str, ...]
"""The names from a top-level field down to a nested one."""

_METADATA_COLUMNS = "_file _pos _deleted _spec_id _partition _row_id _last_updated_sequence_number"
RESERVED = frozenset(f"{_METADATA_COLUMNS} _change_type _change_ordinal _commit_snapshot_id".split())
"""The names of Iceberg's metadata columns and of the columns in its changelogs."""


class ColumnNames:
    """The names that the fields of a table have, nested ones included, and those that new fields get."""

    def __init__(self, schema: T.StructType, others: Iterable[str] = (), lower: bool = False) -> None:
        self._names = {fold_case(name) for name in others} | {fold_case(".".join(path)) for path in _paths(schema, ())}
        self._lower = lower

    def new_struct(self, kind: T.StructType, path: Path = ()) -> T.StructType:
        """Return a struct's new fields, all optional."""
        new = ((self.new_name(field.name), field.dataType) for field in kind.fields)
        fields = ((name, self.new_type(inner, (*path, name))) for name, inner in new)
        return T.StructType([T.StructField(name, inner) for name, inner in fields if inner is not None])

    def new_type(self, kind: T.DataType, path: Path) -> T.DataType | None:
        """Return the type of a new field, without inner fields that cannot become columns; None if itself it cannot."""
        # A field of the type null, as Avro has it, never has a value.
        if isinstance(kind, T.NullType) or not self._add(path):
            return None
        if isinstance(kind, T.StructType):
            return self.new_struct(kind, path) or None
        if isinstance(kind, T.ArrayType):
            element = self.new_type(kind.elementType, (*path, "element"))
            return None if element is None else T.ArrayType(element)
        if isinstance(kind, T.MapType):
            value = self.new_type(kind.valueType, (*path, "value"))
            return None if value is None else T.MapType(kind.keyType, value)
        return T.IntegerType() if isinstance(kind, (T.ByteType, T.ShortType)) else kind

    def new_name(self, name: str) -> str:
        return name.lower() if self._lower else name

    def _add(self, path: Path) -> bool:
        """Add the name of a new field; False if no field may have it: it is empty, reserved or not new."""
        dotted, name = fold_case(".".join(path)), fold_case(path[-1])
        is_reserved = len(path) == 1 and (name in RESERVED or name.startswith(OWN_PREFIX))
        if not name or is_reserved or dotted in self._names:
            return False
        self._names.add(dotted)
        return True


def unknown_fields(columns: T.DataType, seen: T.DataType, any_case: bool, path: Path = ()) -> Iterator[Path]:
    """Yield the fields that have no column, each with the names of the columns around it."""
    if isinstance(columns, T.StructType) and isinstance(seen, T.StructType):
        known = {field.name.lower() if any_case else field.name: field for field in columns.fields}
        for field in seen.fields:
            column = known.get(field.name.lower() if any_case else field.name)
            if column is None:
                yield (*path, field.name)
            else:
                yield from unknown_fields(column.dataType, field.dataType, any_case, (*path, column.name))
    elif isinstance(columns, T.ArrayType) and isinstance(seen, T.ArrayType):
        yield from unknown_fields(columns.elementType, seen.elementType, any_case, (*path, "element"))
    elif isinstance(columns, T.MapType) and (value := map_value_type(seen)) is not None:
        yield from unknown_fields(columns.valueType, value, any_case, (*path, "value"))


def fold_case(name: str) -> str:
    """Return a name in the form in which Java compares names in any case, character by character."""
    return "".join(lower if len(lower := each.upper().lower()) == 1 else each.lower() for each in name)


def _paths(kind: T.DataType, path: Path) -> Iterator[Path]:
    inner: dict[str, T.DataType] = {}
    if isinstance(kind, T.StructType):
        inner = {field.name: field.dataType for field in kind.fields}
    elif isinstance(kind, T.ArrayType):
        inner = {"element": kind.elementType}
    elif isinstance(kind, T.MapType):
        inner = {"key": kind.keyType, "value": kind.valueType}
    for name, each in inner.items():
        yield (*path, name)
        yield from _paths(each, (*path, name))


def field_names(schema: T.StructType) -> set[str]:
    return {path[-1] for path in _paths(schema, ())}
