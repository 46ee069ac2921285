"""The type that holds the values of several types, and the type to which Iceberg can promote a column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce

from pyspark.sql import types as T

from icecdc_core.columns import OWN_PREFIX

_WHOLE = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_FLOATS = (T.FloatType, T.DoubleType)
_DIGITS: dict[type[T.DataType], int] = {T.ByteType: 3, T.ShortType: 5, T.IntegerType: 10, T.LongType: 19}
_MAX_DIGITS = 38


def merge_types(left: T.DataType, right: T.DataType) -> T.DataType:
    """Return the narrowest type that holds the values of both; a string if there is no other.

    Structs are merged field by field, by name; a field that one of them lacks is optional. The merged field has the
    metadata of the left one.

    Example:
        >>> merge_types(T.IntegerType(), T.LongType()).simpleString()
        'bigint'
        >>> merge_types(T.DecimalType(10, 2), T.DecimalType(8, 4)).simpleString()
        'decimal(12,4)'
        >>> merge_types(T.LongType(), T.StringType()).simpleString()
        'string'
    """
    if left == right:
        return left
    if isinstance(left, T.StructType) and isinstance(right, T.StructType):
        return _merge_structs(left, right)
    if isinstance(left, T.ArrayType) and isinstance(right, T.ArrayType):
        nulls = left.containsNull or right.containsNull
        return T.ArrayType(merge_types(left.elementType, right.elementType), nulls)
    if isinstance(left, T.MapType) and isinstance(right, T.MapType):
        nulls = left.valueContainsNull or right.valueContainsNull
        return T.MapType(merge_types(left.keyType, right.keyType), merge_types(left.valueType, right.valueType), nulls)
    return _merge_scalars(left, right)


def merge_all_types(types: Sequence[T.DataType]) -> T.DataType | None:
    """Return the type that holds the values of all; None if there is no type."""
    return reduce(merge_types, types) if types else None


def merge_schemas(schemas: Sequence[T.StructType]) -> T.StructType:
    """Return the schema with the fields of all; empty if there is no schema."""
    schema = merge_all_types(schemas) or T.StructType()
    assert isinstance(schema, T.StructType)
    return schema


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
        if other is None:
            fields.append(T.StructField(field.name, field.dataType, True, field.metadata))
        else:
            kind, nullable = merge_types(field.dataType, other.dataType), field.nullable or other.nullable
            fields.append(T.StructField(field.name, kind, nullable, field.metadata))
    fields += [T.StructField(field.name, field.dataType, True, field.metadata) for field in others.values()]
    return T.StructType(fields)


def _merge_scalars(left: T.DataType, right: T.DataType) -> T.DataType:
    if isinstance(left, _WHOLE) and isinstance(right, _WHOLE):
        return max(left, right, key=lambda kind: _DIGITS[type(kind)])
    numbers = (*_WHOLE, *_FLOATS, T.DecimalType)
    if isinstance(left, numbers) and isinstance(right, numbers):
        if isinstance(left, _FLOATS) or isinstance(right, _FLOATS):
            return T.DoubleType()
        return _wider_decimal(_as_decimal(left), _as_decimal(right))
    return T.StringType()


def _as_decimal(kind: T.DataType) -> T.DecimalType:
    return kind if isinstance(kind, T.DecimalType) else T.DecimalType(_DIGITS[type(kind)], 0)


def _wider_decimal(left: T.DecimalType, right: T.DecimalType) -> T.DataType:
    scale = max(left.scale, right.scale)
    digits = max(left.precision - left.scale, right.precision - right.scale) + scale
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
        """Add the name of a new field; False if the field must not have it."""
        dotted = fold_case(".".join(path))
        if dotted in self._names or name_problem(path[-1], (), len(path) == 1):
            return False
        self._names.add(dotted)
        return True


def name_problem(name: str, siblings: Iterable[str], top: bool) -> str | None:
    """Return why a field cannot become a column because of its name; None if it can.

    Example:
        >>> name_problem("Id", ["id"], True)
        'has no column: its name differs from id only in case'
    """
    if not name:
        return "has no column: its name is empty"
    if top and (fold_case(name) in RESERVED or fold_case(name).startswith(OWN_PREFIX)):
        return "has no column: its name is reserved"
    same = [other for other in siblings if fold_case(other) == fold_case(name)]
    return f"has no column: its name differs from {same[0]} only in case" if same else None


def nested_name_problem(kind: T.DataType | None) -> str | None:
    """Return why a field cannot become a column because of its nested fields; None if it can."""
    if isinstance(kind, T.ArrayType):
        return nested_name_problem(kind.elementType)
    if isinstance(kind, T.MapType):
        return nested_name_problem(kind.valueType)
    if not isinstance(kind, T.StructType):
        return None
    if not kind.fields:
        return "has no column: it is an object without fields"
    for position, field in enumerate(kind.fields):
        why = name_problem(field.name, kind.names[:position], False) or nested_name_problem(field.dataType)
        if why:
            return f"(its {path_text((field.name,))}) {why}"
    return None


def fold_case(name: str) -> str:
    """Return a name in the form in which Java compares names in any case, character by character."""
    return "".join(lower if len(lower := each.upper().lower()) == 1 else each.lower() for each in name)


def path_text(path: Iterable[str]) -> str:
    """Return a path as dotted text; an empty name is shown as two quotes."""
    return ".".join(name or '""' for name in path)


def _paths(kind: T.DataType, path: Path) -> Iterator[Path]:
    if isinstance(kind, T.StructType):
        for field in kind.fields:
            yield (*path, field.name)
            yield from _paths(field.dataType, (*path, field.name))
    elif isinstance(kind, T.ArrayType):
        yield (*path, "element")
        yield from _paths(kind.elementType, (*path, "element"))
    elif isinstance(kind, T.MapType):
        yield from ((*path, "key"), (*path, "value"))
        yield from _paths(kind.valueType, (*path, "value"))
