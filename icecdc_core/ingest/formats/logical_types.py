"""Values as Kafka Connect and Debezium mean them: days, microseconds and bytes become dates, times and decimals.

The names and what they stand for are those of Connect's ``org.apache.kafka.connect.data`` and of Debezium's
documentation, "Data type mappings": `io.debezium.time.*` of the mode ``adaptive`` have no time zone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

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
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_VARIABLE_DECIMAL = "io.debezium.data.VariableScaleDecimal"
_DECIMAL_BYTES = 16
# The years 1 to 9999; databases know "infinity" as a time too, which Debezium sends as a number far outside.
_FIRST_MICROS, _LAST_MICROS = -62_135_596_800_000_000, 253_402_300_799_999_999


@dataclass(frozen=True)
class LogicalType:
    """What a value is and means.

    Attributes:
        kind: Its type as read from the record. In JSON, bytes are text (Base64).
        name: Connect's name of what it means; empty: nothing special.
        parameters: Connect's parameters of that.
        optional: Whether it may be null.
        fields: The fields of a struct.
        element: The elements of an array.
        value: The values of a map.
        in_json: Whether it is read from JSON.
    """

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
        """Whether the value is what it seems to be, with all in it."""
        inner = [*self.fields.values(), *(each for each in (self.element, self.value) if each is not None)]
        return wanted(self) == self.kind and all(each.is_plain for each in inner)


def wanted(meaning: LogicalType) -> T.DataType:
    """Return the type of the column that a value with this meaning belongs in."""
    if meaning.fields and meaning.name != _VARIABLE_DECIMAL:
        return T.StructType([T.StructField(name, wanted(each), each.optional) for name, each in meaning.fields.items()])
    if meaning.element is not None:
        return T.ArrayType(wanted(meaning.element), meaning.element.optional)
    if meaning.value is not None:
        return T.MapType(T.StringType(), wanted(meaning.value), meaning.value.optional)
    return _special(meaning) or meaning.kind


def rendered(column: Column, meaning: LogicalType) -> Column:
    """Return the value so that `to_json` (with `PAYLOAD_OPTIONS`) writes what `fitted` reads as the type `wanted`.

    What can't be a time of the years 1 to 9999 stays the number it is, so that it fits no column of times.
    """
    if meaning.is_plain:
        return column
    if meaning.fields and meaning.name != _VARIABLE_DECIMAL:
        fields = [rendered(column.getField(name), each).alias(name) for name, each in meaning.fields.items()]
        return F.when(column.isNotNull(), F.struct(*fields))
    if meaning.element is not None:
        element = meaning.element
        return F.transform(column, lambda item: rendered(item, element))
    if meaning.value is not None:
        value = meaning.value
        return F.transform_values(column, lambda _, item: rendered(item, value))
    return _rendered_scalar(column, meaning)


def _special(meaning: LogicalType) -> T.DataType | None:
    """The type of a value that is not what it seems; None if it is. What is already read as meant has no number."""
    name, number = meaning.name, isinstance(meaning.kind, T.IntegralType)
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
    if name == _DECIMAL and isinstance(meaning.kind, (T.StringType, T.BinaryType)):
        scale = int(meaning.parameters.get("scale", 0))
        digits = int(meaning.parameters.get("connect.decimal.precision", 38))
        return T.DecimalType(min(max(digits, scale, 1), 38), min(scale, 38)) if scale >= 0 else T.DecimalType(38, 0)
    return T.BinaryType() if meaning.in_json and name == "bytes" else None


def _rendered_scalar(column: Column, meaning: LogicalType) -> Column:
    name, text = meaning.name, column.cast("string")
    if name in _DATES:
        date = F.date_from_unix_date(column.cast("int"))
        return F.when(column.between(-719_162, 2_932_896), date.cast("string")).otherwise(text)
    if name in _LOCAL:
        return _moment(column.cast("long"), _LOCAL[name], "")
    if name == _INSTANT:
        return _moment(column.cast("long"), 1, "Z")
    if name in _TIMES:
        return F.substr(_moment(column.cast("long"), _TIMES[name], ""), F.lit(len("1970-01-01T") + 1))
    if name == _DECIMAL:
        data = F.unbase64(column) if isinstance(meaning.kind, T.StringType) else column
        return _scaled(data, F.lit(int(meaning.parameters.get("scale", 0))))
    if name == _VARIABLE_DECIMAL:
        value = column.getField("value")
        data = value if isinstance(meaning.fields["value"].kind, T.BinaryType) else F.unbase64(value)
        return _scaled(data, column.getField("scale"))
    return column


def _moment(number: Column, thousands: int, zone: str) -> Column:
    """The text of a time that is a number of milli- (1), micro- (0) or nanoseconds (-1) since 1970."""
    micros = number if thousands == 0 else number * 1000 if thousands == 1 else _divided(number)
    limits = [limit // 1000 if thousands == 1 else limit for limit in (_FIRST_MICROS, _LAST_MICROS)]
    inside = number.between(*limits) if thousands >= 0 else F.lit(True)
    time = F.timestamp_add("MICROSECOND", micros, F.lit(datetime(1970, 1, 1)).cast("timestamp_ntz"))
    text = F.concat(F.replace(time.cast("string"), F.lit(" "), F.lit("T")), F.lit(zone))
    return F.when(inside, text).otherwise(number.cast("string"))


def _divided(nanos: Column) -> Column:
    return F.call_function("div", nanos - F.pmod(nanos, F.lit(1000)), F.lit(1000))


def _scaled(data: Column, scale: Column) -> Column:
    """The text of a decimal given as its unscaled digits, a big-endian two's complement, and its scale."""
    # The bytes one after the other, as Spark has no conversion of more than eight.
    places = F.sequence(F.lit(1), F.octet_length(data))
    zero = F.lit(0).cast("decimal(38,0)")

    def next_byte(sofar: Column, place: Column) -> Column:
        byte = F.conv(F.hex(F.substring(data, place, F.lit(1))), 16, 10).cast("decimal(38,0)")
        # The first byte has the sign.
        signed = F.when((place == 1) & (byte > 127), byte - 256).otherwise(byte)
        return (F.try_add(F.try_multiply(sofar, F.lit(256)), signed)).cast("decimal(38,0)")

    digits = F.aggregate(places, zero, next_byte)
    fits = F.octet_length(data).between(1, _DECIMAL_BYTES)
    text = F.concat(digits.cast("string"), F.lit("E"), (-scale).cast("string"))
    return F.when(data.isNotNull(), F.when(fits, text).otherwise(F.lit("a decimal of more than 38 digits")))
