"""When two values are the same value: each column as keys that Spark can group and sort by.

Spark compares most types as we need it: null equals null, NaN equals NaN, binary by its bytes.
Where it does not, the column gets keys of its own:

====================================  =====================================================
a float or double                     itself, and whether it is -0.0 (whose text is not that of 0.0)
a map, at any depth                   its entries, sorted by key
floats within structs, arrays, maps   their text, which tells -0.0 from 0.0
a variant                             its JSON text
a string with a collation             its bytes
====================================  =====================================================
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

from icecdc_core.columns import quoted, unused


def _is_own_key(data_type: DataType) -> bool:
    """Whether grouping by a column of this type neither merges different values nor changes one."""
    if isinstance(data_type, ArrayType):
        return _is_own_key(data_type.elementType)
    if isinstance(data_type, StructType):
        return all(_is_own_key(field.dataType) for field in data_type.fields)
    return not isinstance(data_type, FloatType | DoubleType | MapType | VariantType) and not _collated(data_type)


def _is_floating(data_type: DataType) -> bool:
    """Whether values of this type have a negative zero."""
    return isinstance(data_type, FloatType | DoubleType)


def _is_negative_zero(value: str) -> str:
    """SQL text: whether a floating-point value is -0.0, which compares equal to 0.0 and is written differently."""
    return f"({value} = 0.0D AND cast({value} AS string) = '-0.0')"


def canonical(field: StructField) -> Column | None:
    """The key of a column whose values cannot be compared as they are; None where they can."""
    if _is_own_key(field.dataType) or _is_floating(field.dataType):
        return None
    return _canonical(F.col(quoted(field.name)), field.dataType)


def keyed(
    frame: DataFrame, fields: Sequence[StructField], made: Callable[[StructField], Column | None] = canonical
) -> tuple[DataFrame, dict[str, list[str]]]:
    """Give each column keys that are equal exactly where two of its values are the same; all can be sorted.

    Only keys that are made become columns: Spark takes a lambda for a new expression wherever it stands, and would sort
    for each. The others are cheap, and as columns they would widen every row.

    Args:
        frame: It has the columns.
        fields: The columns, of any type.
        made: Returns the key of a column that needs one of its own, None for others.

    Returns:
        The frame, with a helper column for every key that was made; and by the column's name the SQL texts of its keys:
        texts, because a driver spends most of a small change on naming columns one by one to the JVM.
    """
    helpers, keys = {}, {}
    for position, field in enumerate(fields):
        own = made(field)
        if own is not None:
            name = unused(f"_key_{position}", frame.columns)
            helpers[name] = own
            keys[field.name] = [name]
        elif _is_floating(field.dataType):
            keys[field.name] = [quoted(field.name), _is_negative_zero(quoted(field.name))]
        else:
            keys[field.name] = [quoted(field.name)]
    return (frame.withColumns(helpers) if helpers else frame), keys


def _canonical(value: Column, data_type: DataType) -> Column:
    """A form of a value that is the same for the same values, whatever their encoding; null stays null."""
    if _is_own_key(data_type):
        return value
    if isinstance(data_type, StructType):
        fields = [
            _canonical(value.getField(field.name), field.dataType).alias(f"f{position}")
            for position, field in enumerate(data_type.fields)
        ]
        return F.when(value.isNotNull(), F.struct(*fields))
    if isinstance(data_type, ArrayType):
        element_type = data_type.elementType
        return F.transform(value, lambda element: _canonical(element, element_type))
    if isinstance(data_type, MapType):
        key_type, value_type = data_type.keyType, data_type.valueType
        entries = F.transform(
            F.map_entries(value),
            lambda entry: F.struct(
                _canonical(entry.getField("key"), key_type).alias("key"),
                _canonical(entry.getField("value"), value_type).alias("value"),
            ),
        )
        return F.sort_array(entries)
    if isinstance(data_type, VariantType):
        return F.to_json(value)
    if _collated(data_type):
        return value.cast("binary")
    return value.cast("string")


def _collated(data_type: DataType) -> bool:
    return isinstance(data_type, StringType) and data_type.collation != "UTF8_BINARY"
