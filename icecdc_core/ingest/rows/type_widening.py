"""The type that holds the values of several types, and the type to which Iceberg can promote a column."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import types as T

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
