"""How each value of a record is read: the type with which `from_json` reads it, and when it does not fit its column."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from operator import or_
from typing import Any

from pyspark.sql import Column, functions as F, types as T

from icecdc_core.columns import TIMES
from icecdc_core.ingest.config import IngestConfig
from icecdc_core.ingest.formats.decode_results import has_too_big_number
from icecdc_core.ingest.formats.logical_types import time_since_epoch

Path = tuple[str, ...]
"""The names from a top-level field down to a nested one."""

WRITTEN_AS, DEFAULT = "icecdc.written_as", "icecdc.default"
"""Metadata keys: the Iceberg type that Spark does not show (uuid or fixed), and `write-default`, as SQL."""

FLOATS = (T.FloatType, T.DoubleType)

_INFINITIES = tuple(f"{sign}{word}" for sign in ("", "+", "-") for word in ("Infinity", "INF"))
# In Java, "$" also matches before a final line break.
_NO_ZONE = r"^[0-9-]+([T ][0-9:.]*)?\z"
_NUMBER = r"^[+-]?[0-9]+([.][0-9]+)?([eE][+-]?[0-9]+)?\z"
_UUID = r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\z"

# The conditions under which what was parsed does not fit, given it, and its converted value if known.
Violations = Callable[[Column, Column | None], list[Column]]


@dataclass
class Reader:
    """How a value is read: `from_json` reads the `json_type`; `convert` makes the column's type of it, or null."""

    json_type: T.DataType
    convert: Callable[[Column], Column] | None = None
    violations: Violations = lambda *_: []
    option: str = ""  # the parameter by which it accepts more

    def value(self, parsed: Column) -> Column:
        return parsed if self.convert is None else self.convert(parsed)


@dataclass(frozen=True)
class FieldReader:
    """Reads a field of a struct, under each of its spellings; a field without a reader has no column."""

    column: T.StructField
    spellings: Path
    reader: Reader | None
    is_delete: Column
    identifies: bool = False

    @property
    def json_fields(self) -> list[T.StructField]:
        """The field under each spelling; Spark's parser fills in the default of a missing one."""
        kind = T.StringType() if self.reader is None else self.reader.json_type
        has_default = DEFAULT in self.column.metadata and len(self.spellings) == 1
        defaults = {"EXISTS_DEFAULT": self.column.metadata[DEFAULT]} if has_default else {}
        return [T.StructField(name, kind, True, defaults) for name in self.spellings]

    def parsed(self, parent: Column) -> Column:
        if len(self.spellings) == 1:
            return parent.getField(self.spellings[0])
        # Which of several spellings is missing says nothing, so that here a null gets the default, too.
        kind = T.StringType() if self.reader is None else self.reader.json_type
        default = [F.expr(self.column.metadata[DEFAULT]).cast(kind)] if DEFAULT in self.column.metadata else []
        return F.coalesce(*map(parent.getField, self.spellings), *default)

    def is_twice(self, parent: Column) -> Column:
        there = (F.when(parent.getField(name).isNotNull(), F.lit(1)) for name in self.spellings)
        return F.size(F.array_compact(F.array(*there))) > 1

    def violations(self, parent: Column, value: Column | None) -> list[Column]:
        parsed = self.parsed(parent)
        if self.reader is None:
            return [parsed.isNotNull() & ~self.is_delete]
        found = list(self.reader.violations(parsed, None if value is None else value.getField(self.column.name)))
        if self.identifies:
            found.append(parsed.isNull())
        elif not self.column.nullable:  # a delete often names only the identifier columns
            found.append(parent.isNotNull() & parsed.isNull() & ~self.is_delete)
        return [*found, self.is_twice(parent)] if len(self.spellings) > 1 else found


class StructReader(Reader):
    """Reads a struct. Names that differ only in case are different: the session of a batch is case-sensitive."""

    json_type: T.StructType

    def __init__(self, kind: T.StructType, fields: list[FieldReader]) -> None:
        super().__init__(T.StructType([each for field in fields for each in field.json_fields]))
        self.kind, self.fields = kind, fields
        self.violations = lambda *given: [found for field in fields for found in field.violations(*given)]
        if any(not each.reader or each.reader.convert or each.spellings != (each.column.name,) for each in fields):
            self.convert = lambda parsed: F.when(parsed.isNotNull(), self.row(parsed))

    def row(self, parsed: Column) -> Column:
        return F.struct(
            *(each.reader.value(each.parsed(parsed)).alias(each.column.name) for each in self.fields if each.reader)
        )


def any_of(conditions: Iterable[Column]) -> Column:
    # In pairs of pairs: a chain of thousands would be deeper than Java's stack.
    found = list(conditions)
    while len(found) > 1:
        found = [reduce(or_, found[at : at + 2]) for at in range(0, len(found), 2)]
    return F.coalesce(found[0], F.lit(False))


def _text_reader(convert: Callable[[Column], Column], json_type: T.DataType | None = None, option: str = "") -> Reader:
    return Reader(
        json_type or T.StringType(),
        convert,
        lambda parsed, value: [parsed.isNotNull() & (convert(parsed) if value is None else value).isNull()],
        option,
    )


def _time_reader(kind: T.DataType, unit: str = "") -> Reader:
    """Reads a date or time as ISO 8601 text, because `from_json` reads any number as seconds, and digits as days."""

    def convert(parsed: Column) -> Column:
        if not unit:
            return from_text(parsed)
        number = F.when(parsed.rlike(r"^-?[0-9]+\z"), parsed.try_cast("bigint"))
        return F.coalesce(time_since_epoch(number, unit, kind), from_text(parsed))

    def from_text(parsed: Column) -> Column:
        is_iso = F.substr(parsed, F.lit(5), F.lit(1)) == "-"
        if isinstance(kind, T.DateType):
            return F.when(is_iso & (F.length(parsed) == len("2026-01-31")), parsed.try_cast(kind))
        no_zone = parsed.rlike(_NO_ZONE)
        if isinstance(kind, T.TimestampNTZType):
            return F.when(is_iso & no_zone, parsed.try_cast(kind))
        epoch, local = F.lit("1970-01-01").cast("timestamp_ntz"), parsed.try_cast("timestamp_ntz")
        in_utc = F.timestamp_micros(F.timestamp_diff("MICROSECOND", epoch, local))
        return F.when(is_iso, F.when(no_zone, in_utc).otherwise(parsed.try_cast(kind)))

    return _text_reader(convert, option=unit and f"epoch_units={unit}")


def _lenient_reader(kind: T.DataType, payload: Column) -> Reader:
    """Reads numbers and booleans also as text."""
    option = "coercion=lenient"
    if isinstance(kind, T.IntegralType):
        whole = T.DecimalType(38, 19)  # as text, a number with a fraction has the digits of a double
        return _text_reader(lambda parsed: F.when(parsed % 1 == 0, parsed.try_cast(kind)), whole, option)
    if isinstance(kind, T.BooleanType):
        words = {"true": True, "false": False}
        return _text_reader(
            lambda parsed: F.when(F.lower(parsed).isin(*words), F.lower(parsed) == "true"), None, option
        )

    def convert(parsed: Column) -> Column:
        number = parsed.try_cast(kind)
        is_number = parsed.rlike(_NUMBER) & (F.abs(number) != F.lit(float("inf")))
        return F.when(is_number | parsed.isin("NaN", *_INFINITIES), number)

    def violations(parsed: Column, value: Column | None) -> list[Column]:
        number = convert(parsed) if value is None else value
        return [*of_text.violations(parsed, value), *_finite_violations(number, kind, payload)]

    of_text = _text_reader(convert)
    return Reader(T.StringType(), convert, violations, option)


def _key_reader(kind: T.DataType) -> Reader:
    def convert(parsed: Column) -> Column:
        if isinstance(kind, T.BinaryType):
            return F.try_to_binary(parsed, F.lit("base64"))
        if not isinstance(kind, (T.NumericType, T.BooleanType)):
            return F.lit(None).cast(kind)
        key = parsed.try_cast(kind)
        if isinstance(kind, FLOATS):
            return F.when((F.abs(key) != F.lit(float("inf"))) | parsed.isin(*_INFINITIES), key)
        return key if isinstance(kind, T.DecimalType) else F.when(key.cast("string") == parsed, key)

    return _time_reader(kind) if isinstance(kind, TIMES) else _text_reader(convert)


def _map_reader(kind: T.MapType, key: Reader, item: Reader) -> Reader:
    """A map, which is an object in JSON. It is null if a key does not fit, or is there twice: Spark would fail."""

    def are_keys(keys: Column) -> Column:
        return ~F.exists(keys, lambda each: each.isNull()) & (F.size(F.array_distinct(keys)) == F.size(keys))

    def convert(parsed: Column) -> Column:
        keys, items = F.transform(F.map_keys(parsed), key.value), F.transform(F.map_values(parsed), item.value)
        made = F.map_from_arrays(keys, items)
        # Of a text that is there twice, the session of a batch keeps the last value (`mapKeyDedupPolicy`).
        return made if key.convert is None else F.when(are_keys(keys), made)

    def violations(parsed: Column, _: Column | None) -> list[Column]:
        wrong = [] if key.convert is None else [~are_keys(F.transform(F.map_keys(parsed), key.value))]
        return wrong + _item_violations(F.map_values(parsed), item, kind.valueContainsNull)

    return Reader(T.MapType(T.StringType(), item.json_type), convert, violations)


def _item_violations(items: Column, reader: Reader, nulls: bool) -> list[Column]:
    found = [] if nulls else [F.exists(items, lambda item: item.isNull())]
    if reader.violations(F.lit(None), None):
        found.append(F.exists(items, lambda item: any_of(reader.violations(item, None))))
    return found


def _scalar_reader(kind: T.DataType, written_as: str, payload: Column, lenient: bool = False, unit: str = "") -> Reader:
    if isinstance(kind, TIMES):
        return _time_reader(kind, unit)
    if written_as == "uuid":  # in its usual form: Java accepts shorter ones, and writes another UUID
        return _text_reader(lambda parsed: F.when(parsed.rlike(_UUID), F.lower(parsed)))
    if written_as:
        length = int(written_as.removeprefix("fixed[").removesuffix("]"))
        return Reader(kind, None, lambda parsed, _: [F.octet_length(parsed) != length])
    if lenient and isinstance(kind, (T.IntegralType, T.BooleanType, *FLOATS)):
        return _lenient_reader(kind, payload)
    if not isinstance(kind, FLOATS):
        return Reader(kind)
    return Reader(kind, None, lambda parsed, _: _finite_violations(parsed, kind, payload))


def _finite_violations(number: Column, kind: T.DataType, payload: Column) -> list[Column]:
    # `from_json` reads some texts as infinity, which are allowed, and a number that is too big.
    return [(F.abs(number) == F.lit(float("inf"))) & has_too_big_number(payload, kind)]


def struct_reader(
    schema: T.StructType,
    payload: Column,
    spellings: Mapping[str, Path] | None = None,
    unknown: Collection[Path] = (),
    identifiers: Collection[str] = (),
    is_delete: Column | None = None,
    settings: IngestConfig | None = None,
) -> StructReader:
    """Return how columns are read, by the `spellings` of their lower-case names; `unknown` fields spoil a record."""
    units = {} if settings is None else settings.epoch_units
    lenient = settings is not None and settings.coercion == "lenient"
    identify, deletes = {name.lower() for name in identifiers}, F.lit(False) if is_delete is None else is_delete

    def struct(kind: T.StructType, path: Path) -> StructReader:
        fields = [
            FieldReader(
                column,
                (spellings or {}).get(column.name.lower(), (column.name,)),
                reader(column.dataType, (*path, column.name), column.metadata.get(WRITTEN_AS, "")),
                deletes,
                identifies=not path and column.name.lower() in identify,
            )
            for column in kind.fields
        ]
        for name in sorted(each[-1] for each in unknown if each[:-1] == path):
            fields.append(FieldReader(T.StructField(name, T.StringType()), (name,), None, deletes))
        return StructReader(kind, fields)

    def reader(kind: T.DataType, path: Path, written_as: Any) -> Reader:
        if isinstance(kind, T.StructType):
            return struct(kind, path)
        if isinstance(kind, T.ArrayType):
            item, nulls = reader(kind.elementType, (*path, "element"), written_as), kind.containsNull
            convert = None if item.convert is None else partial(F.transform, f=item.value)
            return Reader(T.ArrayType(item.json_type), convert, lambda it, _: _item_violations(it, item, nulls))
        if not isinstance(kind, T.MapType):
            return _scalar_reader(kind, written_as, payload, lenient, units.get(".".join(path), units.get("*", "")))
        hidden, of_text = written_as or {"key": "", "value": ""}, isinstance(kind.keyType, T.StringType)
        # JSON has keys as text, as Spark shows a UUID.
        key = _scalar_reader(kind.keyType, hidden["key"], payload) if of_text else _key_reader(kind.keyType)
        return _map_reader(kind, key, reader(kind.valueType, (*path, "value"), hidden["value"]))

    return struct(schema, ())
