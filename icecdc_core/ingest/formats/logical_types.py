"""Logical types of Kafka Connect and Debezium: days, microseconds and bytes become dates, times and decimals."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql import Column, functions as F, types as T

from icecdc_core.columns import JSON_OPTIONS
from icecdc_core.ingest.formats.decode_results import unusable

_DATES = {"io.debezium.time.Date", "org.apache.kafka.connect.data.Date"}
_LOCAL = {"io.debezium.time.Timestamp": 1, "io.debezium.time.MicroTimestamp": 0, "io.debezium.time.NanoTimestamp": -1}
_TIMES = {
    "io.debezium.time.Time": 1,
    "io.debezium.time.MicroTime": 0,
    "io.debezium.time.NanoTime": -1,
    "org.apache.kafka.connect.data.Time": 1,
}
_INSTANT = "org.apache.kafka.connect.data.Timestamp"
_ZONED = "io.debezium.time.ZonedTimestamp"
DECIMAL = "org.apache.kafka.connect.data.Decimal"
_VARIABLE_DECIMAL = "io.debezium.data.VariableScaleDecimal"
FLOAT = "float32"
"""The name of a float in JSON, which is read as a double, so that a number too big for a float is not infinity."""
_DECIMAL_BYTES = 16
_DAY = 86_400_000_000
# The years 1 to 9999. Debezium sends a database's "infinity" as a number far outside.
_FIRST_MICROS, _LAST_MICROS = -62_135_596_800_000_000, 253_402_300_799_999_999


@dataclass(frozen=True)
class LogicalType:
    """The type of a value in a record, and the logical type that the record's schema gives it."""

    kind: T.DataType
    name: str = ""
    parameters: dict[str, str] = field(default_factory=dict)
    optional: bool = True
    fields: dict[str, LogicalType] = field(default_factory=dict)
    element: LogicalType | None = None
    value: LogicalType | None = None
    in_json: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether the value needs no conversion, nor any value in it."""
        inner = [*self.fields.values(), *(each for each in (self.element, self.value) if each is not None)]
        return column_type(self) == self.kind and all(each.is_plain for each in inner)


def column_type(logical_type: LogicalType) -> T.DataType:
    if logical_type.fields and logical_type.name != _VARIABLE_DECIMAL:
        fields = logical_type.fields.items()
        return T.StructType([T.StructField(name, column_type(each), each.optional) for name, each in fields])
    if logical_type.element is not None:
        return T.ArrayType(column_type(logical_type.element), logical_type.element.optional)
    if logical_type.value is not None:
        return T.MapType(T.StringType(), column_type(logical_type.value), logical_type.value.optional)
    return _converted_type(logical_type) or logical_type.kind


def payload_json(column: Column, logical_type: LogicalType) -> Column:
    """Return a value as the JSON text that `parse_rows` reads as the `column_type`."""
    # A time outside the years 1 to 9999 stays the number that it is, so that it fits no column of times. A value that
    # cannot be converted makes its record unusable, whatever the type of the column.
    return F.to_json(_to_payload(column, logical_type), JSON_OPTIONS)


def _to_payload(column: Column, logical_type: LogicalType) -> Column:
    if logical_type.is_plain:
        return column
    if logical_type.fields and logical_type.name != _VARIABLE_DECIMAL:
        fields = [_to_payload(column.getField(name), each).alias(name) for name, each in logical_type.fields.items()]
        return F.when(column.isNotNull(), F.struct(*fields))
    if (element := logical_type.element) is not None:
        return F.transform(column, lambda item: _to_payload(item, element))
    if (value := logical_type.value) is not None:
        return F.transform_values(column, lambda _, item: _to_payload(item, value))
    return _scalar_to_payload(column, logical_type)


def _converted_type(logical_type: LogicalType) -> T.DataType | None:
    """The column type of a value that is converted, else None. Spark has already converted Avro's own times."""
    name, number = logical_type.name, isinstance(logical_type.kind, T.IntegralType)
    if number and name in _DATES:
        return T.DateType()
    if number and name in _LOCAL:
        return T.TimestampNTZType()
    if number and name in _TIMES:
        return T.StringType()
    if (number and name == _INSTANT) or name == _ZONED:
        return T.TimestampType()
    if name == _VARIABLE_DECIMAL:
        return T.StringType()
    if name == FLOAT and logical_type.in_json:
        return T.FloatType()
    if name == DECIMAL and isinstance(logical_type.kind, (T.VariantType, T.BinaryType)):
        scale = int(logical_type.parameters.get("scale", 0))
        digits = int(logical_type.parameters.get("connect.decimal.precision", 38))
        return T.DecimalType(min(max(digits, scale, 1), 38), min(scale, 38)) if scale >= 0 else T.DecimalType(38, 0)
    return T.BinaryType() if logical_type.in_json and name == "bytes" else None


def _scalar_to_payload(column: Column, logical_type: LogicalType) -> Column:
    name, text = logical_type.name, column.cast("string")
    if name in _DATES:
        date = F.date_from_unix_date(column.cast("int"))
        return F.when(column.between(-719_162, 2_932_896), date.cast("string")).otherwise(text)
    if name in _LOCAL:
        return _time_text(column.cast("long"), _LOCAL[name], "")
    if name == _INSTANT:
        return _time_text(column.cast("long"), 1, "Z")
    if name in _TIMES:
        time = F.substr(_time_text(column.cast("long"), _TIMES[name], ""), F.lit(len("1970-01-01T") + 1))
        is_time = column.between(0, {1: _DAY // 1000, 0: _DAY, -1: _DAY * 1000}[_TIMES[name]] - 1)
        return F.when(is_time, time).otherwise(unusable("is no time of day", text))
    if name not in (DECIMAL, _VARIABLE_DECIMAL):
        return column
    scale, bytes_type = F.lit(int(logical_type.parameters.get("scale", 0))), logical_type.kind
    if name == _VARIABLE_DECIMAL:
        column, scale, bytes_type = column["value"], column["scale"], logical_type.fields["value"].kind
    if isinstance(bytes_type, T.BinaryType):
        return _decimal_text(column, F.base64(column), scale)
    if isinstance(bytes_type, T.VariantType):
        return _json_decimal(column, int(logical_type.parameters.get("scale", 0)))
    return _decimal_text(F.try_to_binary(column, F.lit("base64")), column, scale)


def _time_text(number: Column, thousands: int, zone: str) -> Column:
    """The text of a time given as milli- (1), micro- (0) or nanoseconds (-1) since 1970."""
    # Nanoseconds are rounded down, without a subtraction that overflows.
    nanos = F.call_function("div", number, F.lit(1000)) - F.when(number % 1000 < 0, F.lit(1)).otherwise(F.lit(0))
    micros = {1: number * 1000, 0: number, -1: nanos}[thousands]
    limits = [limit // 1000 if thousands == 1 else limit for limit in (_FIRST_MICROS, _LAST_MICROS)]
    inside = number.between(*limits) if thousands >= 0 else F.lit(True)
    time = F.timestamp_add("MICROSECOND", micros, F.lit("1970-01-01").cast("timestamp_ntz"))
    text = F.concat(F.replace(time.cast("string"), F.lit(" "), F.lit("T")), F.lit(zone))
    return F.when(inside, text).otherwise(number.cast("string"))


def _json_decimal(variant: Column, scale: int) -> Column:
    """The text of a decimal in JSON: its number, or the Base64 text of its unscaled value."""
    text, kind = F.try_variant_get(variant, "$", "string"), F.schema_of_variant(variant)
    # A variant has a number with an exponent, or of more than 38 digits, as a double, which is exact for 15 digits.
    number = F.abs(F.try_variant_get(variant, "$", "double"))
    is_exact = (
        (kind == "BIGINT") | kind.startswith("DECIMAL") | ((kind == "DOUBLE") & (number < 10.0 ** min(15 - scale, 300)))
    )
    decoded = _decimal_text(F.try_to_binary(text, F.lit("base64")), text, F.lit(scale))
    other = F.when(is_exact, text).otherwise(unusable("is no decimal of at most 38 digits", text))
    return F.when(text.isNotNull(), F.when(kind == "STRING", decoded).otherwise(other))


def _decimal_text(data: Column, given: Column, scale: Column) -> Column:
    """The text of a decimal of a scale and an unscaled value, big-endian in two's complement; given as a text."""
    # Byte by byte, because Spark converts at most eight bytes at once.
    positions = F.sequence(F.lit(1), F.octet_length(data))
    zero = F.lit(0).cast("decimal(38,0)")

    def next_byte(total: Column, position: Column) -> Column:
        byte = F.conv(F.hex(F.substring(data, position, F.lit(1))), 16, 10).cast("decimal(38,0)")
        # The first byte carries the sign.
        signed = F.when((position == 1) & (byte > 127), byte - 256).otherwise(byte)
        return (F.try_add(F.try_multiply(total, F.lit(256)), signed)).cast("decimal(38,0)")

    digits = F.aggregate(positions, zero, next_byte)
    fits = F.octet_length(data).between(1, _DECIMAL_BYTES)
    text = F.concat(digits.cast("string"), F.lit("E"), F.try_subtract(F.lit(0), scale).cast("string"))
    wrong = unusable("is no Base64 text of a decimal of at most 38 digits", given)
    return F.when(given.isNotNull(), F.coalesce(F.when(fits, text), wrong))
