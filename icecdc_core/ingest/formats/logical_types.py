"""Logical types of Kafka Connect and Debezium: days, microseconds and bytes become dates, times and decimals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial

from pyspark.sql import Column, functions as F, types as T

from icecdc_core.columns import JSON_OPTIONS, OWN_PREFIX
from icecdc_core.ingest.config import EPOCH_UNITS
from icecdc_core.ingest.formats.decode_results import unusable

DECIMAL = "org.apache.kafka.connect.data.Decimal"
PRECISION = f"{OWN_PREFIX}precision"
"""The parameter with the digits of a decimal in Avro, of which Spark reads all that there are."""
_VARIABLE_DECIMAL = "io.debezium.data.VariableScaleDecimal"
_DECIMAL_BYTES = 16
# The years 1 to 9999. Debezium sends a database's "infinity" as a number far outside.
FIRST_MICROS, LAST_MICROS = -62_135_596_800_000_000, 253_402_300_799_999_999

# Values that are in the payload as they are, but not of the type of their column.
RETYPED: dict[str, T.DataType] = {
    "io.debezium.time.ZonedTimestamp": T.TimestampType(),
    # In JSON. A float is read as a double, so that a number too big for a float is not infinity.
    "float32": T.FloatType(),
    "bytes": T.BinaryType(),
}


@dataclass(frozen=True)
class LogicalType:
    """The type of a value in a record, and the logical type that the record's schema gives it."""

    kind: T.DataType
    name: str = ""
    parameters: dict[str, str] = field(default_factory=dict)
    optional: bool = True
    fields: dict[str, LogicalType] = field(default_factory=dict)
    item: LogicalType | None = None  # of an array's elements, or of a map's values


def column_type(logical_type: LogicalType) -> T.DataType:
    if conversion := _conversion(logical_type):
        return conversion[0]
    if fields := logical_type.fields.items():
        return T.StructType([T.StructField(name, column_type(each), each.optional) for name, each in fields])
    if (item := logical_type.item) is None:
        return logical_type.kind
    if isinstance(logical_type.kind, T.ArrayType):
        return T.ArrayType(column_type(item), item.optional)
    return T.MapType(T.StringType(), column_type(item), item.optional)


def payload_json(column: Column, logical_type: LogicalType) -> Column:
    """Return a value as the JSON text that `parse_rows` reads as the `column_type`."""
    # A time outside the years 1 to 9999 stays the number that it is, so that it fits no column of times. A value that
    # cannot be converted makes its record unusable, whatever the type of the column.
    return F.to_json(_to_payload(column, logical_type), JSON_OPTIONS)


def _to_payload(column: Column, logical_type: LogicalType) -> Column:
    if not (logical_type.fields or _is_converted(logical_type)):  # of fields, Spark refuses names that differ in case
        return column
    if conversion := _conversion(logical_type):
        return conversion[1](column)
    if (item := logical_type.item) is None:
        fields = [_to_payload(column.getField(name), each).alias(name) for name, each in logical_type.fields.items()]
        return F.when(column.isNotNull(), F.struct(*fields))
    if isinstance(logical_type.kind, T.ArrayType):
        return F.transform(column, lambda each: _to_payload(each, item))
    return F.transform_values(column, lambda _, each: _to_payload(each, item))


def _is_converted(logical_type: LogicalType) -> bool:
    inner = [*logical_type.fields.values(), *([logical_type.item] if logical_type.item else [])]
    return _conversion(logical_type) is not None or any(map(_is_converted, inner))


def _conversion(logical_type: LogicalType) -> tuple[T.DataType, Callable[[Column], Column]] | None:
    """The column type of a value that is converted, and how. Spark has already converted Avro's own times."""
    name, kind, parameters = logical_type.name, logical_type.kind, logical_type.parameters
    if isinstance(kind, T.IntegralType):
        return _TIMES.get(name)
    if isinstance(kind, T.FloatType):  # for a column of doubles, its shortest text is another number
        return kind, lambda column: column.cast("double")
    if isinstance(kind, T.DecimalType) and PRECISION in parameters:
        return T.DecimalType(int(parameters[PRECISION]), kind.scale), lambda column: column
    if name in RETYPED:
        return RETYPED[name], lambda column: column
    if name == _VARIABLE_DECIMAL:
        is_bytes = isinstance(logical_type.fields["value"].kind, T.BinaryType)
        return T.StringType(), lambda column: _decimal_text(column["value"], column["scale"], is_bytes)
    if name != DECIMAL or not isinstance(kind, (T.VariantType, T.BinaryType)):
        return None
    scale, digits = int(parameters.get("scale", 0)), int(parameters.get("connect.decimal.precision", 38))
    fitting = T.DecimalType(min(max(digits, scale, 1), 38), min(scale, 38)) if scale >= 0 else T.DecimalType(38, 0)
    if isinstance(kind, T.VariantType):
        return fitting, lambda column: _json_decimal(column, scale)
    return fitting, lambda column: _decimal_text(column, F.lit(scale), is_bytes=True)


def time_since_epoch(number: Column, unit: str, kind: T.DataType) -> Column:
    """The time of a number; null outside the years 1 to 9999, and for a date if it is not midnight."""
    per_day, micros_per_day = EPOCH_UNITS[unit], EPOCH_UNITS["micros"]
    if isinstance(kind, T.DateType):
        days = F.when(number % per_day == 0, F.call_function("div", number, F.lit(per_day)))
        is_day = days.between(FIRST_MICROS // micros_per_day, LAST_MICROS // micros_per_day)
        return F.when(is_day, F.date_from_unix_date(days.cast("int")))
    if unit == "nanos":  # rounded down, without a subtraction that overflows
        below = F.when(number % 1000 < 0, F.lit(1)).otherwise(F.lit(0))
        micros = F.call_function("div", number, F.lit(1000)) - below
    else:
        micros = F.try_multiply(number, F.lit(micros_per_day // per_day))
    time = F.timestamp_add("MICROSECOND", micros, F.lit("1970-01-01").cast("timestamp_ntz"))
    time = time if isinstance(kind, T.TimestampNTZType) else F.timestamp_micros(micros)
    return F.when(micros.between(FIRST_MICROS, LAST_MICROS), time)


def _date_text(days: Column) -> Column:
    date = time_since_epoch(days.cast("long"), "days", T.DateType())
    return F.coalesce(date.cast("string"), days.cast("string"))


def _time_text(number: Column, unit: str, zone: str = "") -> Column:
    time = time_since_epoch(number.cast("long"), unit, T.TimestampNTZType())
    text = F.concat(F.replace(time.cast("string"), F.lit(" "), F.lit("T")), F.lit(zone))
    return F.coalesce(text, number.cast("string"))


def _time_of_day(number: Column, unit: str) -> Column:
    time = F.substr(_time_text(number, unit), F.lit(len("1970-01-01T") + 1))
    is_time = number.between(0, EPOCH_UNITS[unit] - 1)
    return F.when(is_time, time).otherwise(unusable("is no time of day", number.cast("string")))


_TIMES: dict[str, tuple[T.DataType, Callable[[Column], Column]]] = {
    "io.debezium.time.Date": (T.DateType(), _date_text),
    "org.apache.kafka.connect.data.Date": (T.DateType(), _date_text),
    "io.debezium.time.Timestamp": (T.TimestampNTZType(), partial(_time_text, unit="millis")),
    "io.debezium.time.MicroTimestamp": (T.TimestampNTZType(), partial(_time_text, unit="micros")),
    "io.debezium.time.NanoTimestamp": (T.TimestampNTZType(), partial(_time_text, unit="nanos")),
    "org.apache.kafka.connect.data.Timestamp": (T.TimestampType(), partial(_time_text, unit="millis", zone="Z")),
    "io.debezium.time.Time": (T.StringType(), partial(_time_of_day, unit="millis")),
    "io.debezium.time.MicroTime": (T.StringType(), partial(_time_of_day, unit="micros")),
    "io.debezium.time.NanoTime": (T.StringType(), partial(_time_of_day, unit="nanos")),
    "org.apache.kafka.connect.data.Time": (T.StringType(), partial(_time_of_day, unit="millis")),
}


def _json_decimal(variant: Column, scale: int) -> Column:
    """The text of a decimal in JSON: its number, or the Base64 text of its unscaled value."""
    text, kind = F.try_variant_get(variant, "$", "string"), F.schema_of_variant(variant)
    # A variant has a number with an exponent, or of more than 38 digits, as a double, which is exact for 15 digits.
    number = F.abs(F.try_variant_get(variant, "$", "double"))
    is_short = (kind == "DOUBLE") & (number < 10.0 ** min(15 - scale, 300))
    is_exact = (kind == "BIGINT") | kind.startswith("DECIMAL") | is_short
    other = F.when(is_exact, text).otherwise(unusable("is no decimal of at most 38 digits", text))
    decimal = F.when(kind == "STRING", _decimal_text(text, F.lit(scale), is_bytes=False)).otherwise(other)
    return F.when(text.isNotNull(), decimal)


def _decimal_text(unscaled: Column, scale: Column, is_bytes: bool) -> Column:
    """The text of a decimal by its scale and unscaled value, in bytes (big-endian, two's complement) or in Base64."""
    data = unscaled if is_bytes else F.try_to_binary(unscaled, F.lit("base64"))
    is_negative = F.substring(data, 1, 1) > F.lit(b"\x7f")
    whole = F.lpad(data, _DECIMAL_BYTES, F.when(is_negative, F.lit(b"\xff")).otherwise(F.lit(b"\0")))
    # Spark converts at most eight bytes at once. The second half gets the sign of the first, as else the sum of a
    # negative number would begin below it, and perhaps with more than 38 digits.
    high, low = F.conv(F.hex(F.substring(whole, 1, 8)), 16, -10), F.conv(F.hex(F.substring(whole, 9, 8)), 16, 10)
    carry, step = F.when(is_negative, F.lit(1)).otherwise(F.lit(0)).cast("decimal(1,0)"), F.lit(Decimal(1 << 64))
    upper = F.try_multiply(high.cast("decimal(38,0)") + carry, step)
    digits = F.try_add(upper, low.cast("decimal(38,0)") - carry * step)
    text = F.concat(digits.cast("string"), F.lit("E"), F.try_subtract(F.lit(0), scale).cast("string"))
    fits, given = F.octet_length(data).between(1, _DECIMAL_BYTES), F.base64(unscaled) if is_bytes else unscaled
    wrong = unusable("is no Base64 text of a decimal of at most 38 digits", given)
    return F.when(unscaled.isNotNull(), F.coalesce(F.when(fits, text), wrong))
