"""Values in the form that `to_json` needs: it writes decimals as numbers and map keys as Spark's internal values.

It writes all other values as a document needs them: null as null, binary as Base64, NaN and infinities as strings
(which a numeric field rejects), dates and times in the given formats, years before 0 and after 9999 with a sign. Only
values with a decimal or such a map key are rebuilt; the rest of the row is not touched.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

_PLAIN_KEYS = (T.StringType, T.IntegralType, T.BooleanType, T.FloatType, T.DoubleType)
_TIMES = (T.TimestampType, T.TimestampNTZType)


def needs_rebuild(data_type: T.DataType) -> bool:
    """Whether values of this type must be rebuilt before `to_json`."""
    if isinstance(data_type, T.DecimalType):
        return True
    if isinstance(data_type, T.StructType):
        return any(needs_rebuild(field.dataType) for field in data_type.fields)
    if isinstance(data_type, T.ArrayType):
        return needs_rebuild(data_type.elementType)
    if isinstance(data_type, T.MapType):
        return not isinstance(data_type.keyType, _PLAIN_KEYS) or needs_rebuild(data_type.valueType)
    return False


def json_ready(column: Column, data_type: T.DataType, options: Mapping[str, str]) -> Column:
    """Return the value in types whose JSON is that of the document."""
    if not needs_rebuild(data_type):
        return column
    if isinstance(data_type, T.StructType):
        fields = [
            json_ready(column.getField(field.name), field.dataType, options).alias(field.name)
            for field in data_type.fields
        ]
        return F.when(column.isNotNull(), F.struct(*fields))
    if isinstance(data_type, T.ArrayType):
        element_type = data_type.elementType
        return F.transform(column, lambda element: json_ready(element, element_type, options))
    if isinstance(data_type, T.MapType):
        key_type, value_type = data_type.keyType, data_type.valueType
        rebuilt = column
        if needs_rebuild(value_type):
            rebuilt = F.transform_values(rebuilt, lambda _, value: json_ready(value, value_type, options))
        if not isinstance(key_type, _PLAIN_KEYS):
            rebuilt = F.transform_keys(rebuilt, lambda key, _: scalar_text(key, key_type, options))
        return rebuilt
    return scalar_text(column, data_type, options)


def scalar_text(column: Column, data_type: T.DataType, options: Mapping[str, str]) -> Column:
    """Return the value as the string that a document has; a struct, array or map as JSON."""
    if isinstance(data_type, T.StringType):
        return column
    if isinstance(data_type, T.DecimalType):
        return _decimal_text(column, data_type)
    if isinstance(data_type, T.BinaryType):
        # base64() of some Spark versions breaks lines after 76 characters, to_json does not.
        return F.translate(F.base64(column), "\r\n", "")
    if isinstance(data_type, _TIMES):
        # date_format() and casts use the session's time zone; the options of to_json set UTC.
        json = F.to_json(F.struct(column.alias("t")), dict(options))
        return F.when(column.isNotNull(), F.substr(json, F.lit(7), F.length(json) - F.lit(8)))
    if isinstance(data_type, (T.StructType, T.ArrayType, T.MapType)):
        return F.to_json(json_ready(column, data_type, options), dict(options))
    return column.cast("string")


def _decimal_text(column: Column, data_type: T.DecimalType) -> Column:
    """The decimal in plain notation with all its digits; without ANSI mode a cast writes small values as 1E-9."""
    text = column.cast("string")
    if data_type.scale <= 6:
        return text
    plain = F.trim(F.to_char(column, F.lit("MI0D" + "0" * data_type.scale)))
    return F.when(F.abs(column) < F.lit(Decimal("0.000001")), plain).otherwise(text)
