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
    """Return the narrowest type that holds the values of both; a string if there is no other.

    Structs are merged field by field, by name; a field that one of them lacks is optional. The merged field has the
    metadata of the left one.
    """
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
    """Return the type to which Iceberg can promote a column so that it stores values of another; None if there is none.

    The rules come from the Iceberg specification, "Schema evolution".
    """
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
        fields.append(T.StructField(field.name, kind, nullable, field.metadata))
    fields += [T.StructField(field.name, field.dataType, True, field.metadata) for field in others.values()]
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

RESERVED = frozenset(
    {
        "_file",
        "_pos",
        "_deleted",
        "_spec_id",
        "_partition",
        "_row_id",
        "_last_updated_sequence_number",
        "_change_type",
        "_change_ordinal",
        "_commit_snapshot_id",
    }
)
"""The names of Iceberg's metadata columns and of the columns in its changelogs."""


class ColumnNames:
    """The names of a table's fields, nested ones included."""

    def __init__(self, schema: T.StructType, others: Iterable[str] = ()) -> None:
        self._names = {fold_case(name) for name in others} | {fold_case(".".join(path)) for path in _paths(schema, ())}

    def add(self, path: Path) -> bool:
        """Add the name of a new field; False if the field must not have it: it is empty, reserved or not new."""
        dotted, name = fold_case(".".join(path)), fold_case(path[-1])
        is_reserved = len(path) == 1 and (name in RESERVED or name.startswith(OWN_PREFIX))
        if not name or is_reserved or dotted in self._names:
            return False
        self._names.add(dotted)
        return True


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
