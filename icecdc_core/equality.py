"""When two values are the same value: every column as keys that Spark can group and sort by.

Null equals null, NaN equals NaN, binary is compared by its bytes. Spark compares most types that way; for the others a
column gets different keys:

====================================  =====================================================
a float or double                     the value, and whether it is -0.0 (written differently from 0.0)
a map, at any depth                   its entries, sorted by key
floats within structs, arrays, maps   their text, which differs for -0.0 and 0.0
a variant                             its JSON text
a string with a collation             its bytes
====================================  =====================================================
"""

from collections.abc import Callable, Sequence
from functools import partial

from pyspark.sql import Column, DataFrame, functions as F, types as T

from icecdc_core.columns import convert_within, quoted, types_within, unused_name

Keys = tuple[str, *tuple[Column, ...]]
"""What Spark groups or sorts by instead of one column: the name of a column, and of a float whether it is -0.0."""


def with_keys(frame: DataFrame, fields: Sequence[T.StructField]) -> tuple[DataFrame, dict[str, Keys]]:
    """Give each column keys that are equal exactly if two of its values are the same."""
    rows, names = with_canonical_columns(frame, fields)
    keys: dict[str, Keys] = {name: (key,) for name, key in names.items()}
    for name in (field.name for field in fields if is_floating(field.dataType)):
        value = F.col(names[name])
        keys[name] = (names[name], (value == 0.0) & (value.cast("string") == "-0.0"))
    return rows, keys


def canonical_value(field: T.StructField, keep_floats: bool = False) -> Column | None:
    """Return a form of a column that is the same for the same values; None if Spark compares the column as it is."""
    # Nested floats may be kept: Spark sorts them as numbers, but takes -0.0 for 0.0. Without any, it says no more.
    has_floats = any(map(is_floating, types_within(field.dataType)))
    if is_floating(field.dataType) or is_comparable(field.dataType) or (keep_floats and not has_floats):
        return None
    return _canonical(F.col(quoted(field.name)), field.dataType, keep_floats)


def with_canonical_columns(
    frame: DataFrame,
    fields: Sequence[T.StructField],
    canonical: Callable[[T.StructField], Column | None] = canonical_value,
) -> tuple[DataFrame, dict[str, str]]:
    """Add a helper column where values cannot be compared as they are; Spark would compute a lambda at each use."""
    helpers: dict[str, Column] = {}
    names: dict[str, str] = {}
    for position, field in enumerate(fields):
        names[field.name] = quoted(field.name)
        if (value := canonical(field)) is not None:
            names[field.name] = unused_name(f"_key_{position}", frame.columns)
            helpers[names[field.name]] = value
    return (frame.withColumns(helpers) if helpers else frame), names


def is_floating(data_type: T.DataType) -> bool:
    """Whether values of this type have a negative zero."""
    return isinstance(data_type, T.FloatType | T.DoubleType)


def is_comparable(data_type: T.DataType) -> bool:
    """Whether grouping by a column of this type neither merges different values nor changes one."""
    return not any(
        isinstance(each, T.FloatType | T.DoubleType | T.MapType | T.VariantType)
        or (isinstance(each, T.StringType) and each.collation != "UTF8_BINARY")
        for each in types_within(data_type)
    )


def _canonical(value: Column, data_type: T.DataType, keep_floats: bool) -> Column:
    """A form of a value that is the same for the same values; null stays null."""
    if is_comparable(data_type) or (keep_floats and is_floating(data_type)):
        return value
    if isinstance(data_type, T.StructType | T.ArrayType):
        return convert_within(value, data_type, partial(_canonical, keep_floats=keep_floats))
    if isinstance(data_type, T.MapType):
        entry_type = T.StructType().add("key", data_type.keyType).add("value", data_type.valueType)
        return F.sort_array(F.transform(F.map_entries(value), lambda each: _canonical(each, entry_type, keep_floats)))
    if isinstance(data_type, T.VariantType):
        return F.to_json(value)
    return value.cast("binary" if isinstance(data_type, T.StringType) else "string")
