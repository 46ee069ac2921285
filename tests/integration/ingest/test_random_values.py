"""Random values in every format: a row has what was sent, as the format's documents mean it, or is a dead letter.

``ICECDC_FUZZ`` says how many examples (one by default), ``ICECDC_SEED`` which. Python's own types, fastavro and the
tables of docs/kafka-formats.md say what a record means; the readers of icecdc and Spark have no part in that.
"""

import base64
import io
import itertools
import json
import os
import re
import struct
import time
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import partial

import fastavro
import pytest
from hypothesis import strategies as st
from pyspark.sql import types as T

from icecdc_core.ingest.decoding import decode_records
from icecdc_core.ingest.formats.logical_types import DECIMAL
from icecdc_core.ingest.formats.schemas import RegisteredSchema
from icecdc_core.ingest.rows import parse_rows
from icecdc_core.session.spark import settings_unless_set
from tests.checks.examples import for_examples
from tests.given.kafka_records import records, settings
from tests.servers.schema_registry import framed

MANY = int(os.environ.get("ICECDC_FUZZ", "1"))
LETTER, EPOCH, DAY = "dead letter", datetime(1970, 1, 1), 86_400_000_000
DBZ, CONNECT = "io.debezium.time.", "org.apache.kafka.connect.data."
VARIABLE = "io.debezium.data.VariableScaleDecimal"
DECIMALS = re.compile(r"decimal\((\d+),(\d+)\)")
FLOAT_MAX = Decimal(2) ** 128 - Decimal(2) ** 103  # from here on, the nearest float is infinite


class UnfitError(Exception):
    """The value does not fit its column."""


def whole(bits):
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def decimals(digits, scale):
    return st.integers(1 - 10**digits, 10**digits - 1).map(lambda n: Decimal(n).scaleb(-scale, Context(digits)))


def mostly(own, *others):
    """What others draw, once in ten times."""
    return st.integers(0, 9).flatmap(lambda number: own if number else st.one_of(*others))


TEXTS = st.text(st.characters(codec="utf-8"), max_size=8) | st.sampled_from(["null", "1.10", '"', "\ufffd", "Infinity"])
SCALARS = {
    "boolean": st.booleans(), "int": whole(32), "bigint": whole(64), "float": st.floats(width=32),
    "double": st.floats(), "decimal(9,2)": decimals(9, 2), "decimal(38,10)": decimals(38, 10), "string": TEXTS,
    "binary": st.binary(max_size=20), "date": st.dates(), "timestamp_ntz": st.datetimes(),
    "timestamp": st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=st.just(UTC)),
}  # fmt: skip


def nested(scalars):
    """Kinds of values: the type of a column, or an array, a map or a struct of kinds."""
    names = st.sampled_from("ab")
    return st.recursive(
        st.sampled_from(scalars),
        lambda kind: (
            st.tuples(st.sampled_from(["array", "map"]), kind)
            | st.tuples(st.just("struct"), st.dictionaries(names, kind, min_size=1, max_size=2))
        ),
        max_leaves=3,
    )


def walk(kind, value, scalar):
    """Apply a function to each scalar of a value and its kind."""
    if value is None or not isinstance(kind, tuple):
        return None if value is None else scalar(kind, value)
    if kind[0] == "array":
        return [walk(kind[1], each, scalar) for each in required(list, value)]
    pairs = required(dict, value).items()
    if kind[0] == "map":
        return {key: walk(kind[1], each, scalar) for key, each in pairs}
    return {key: walk(each, value.get(key), scalar) for key, each in kind[1].items()}


def drawn(kind, scalar):
    """A strategy of values of a kind, any of which may be null."""
    if not isinstance(kind, tuple):
        found = scalar(kind)
    elif kind[0] == "struct":
        found = st.fixed_dictionaries({name: drawn(each, scalar) for name, each in kind[1].items()})
    else:
        item = drawn(kind[1], scalar)
        found = st.lists(item, max_size=2) if kind[0] == "array" else st.dictionaries(TEXTS, item, max_size=2)
    return mostly(found, st.none())


def ddl(kind, scalar=str):
    if not isinstance(kind, tuple):
        return scalar(kind)
    if kind[0] == "struct":
        return f"struct<{', '.join(f'`{name}`: {ddl(each, scalar)}' for name, each in kind[1].items())}>"
    return f"array<{ddl(kind[1], scalar)}>" if kind[0] == "array" else f"map<string, {ddl(kind[1], scalar)}>"


def required(kind, value):
    if not isinstance(value, kind):
        raise UnfitError
    return value


def plain(value):
    """A value such that equal ones are the same: with -0.0 and NaN, times in UTC, and pairs, as pyarrow has of maps."""
    if isinstance(value, dict):
        return sorted((key, plain(each)) for key, each in value.items())
    if isinstance(value, list):
        return plain(dict(value)) if value and isinstance(value[0], tuple) else [*map(plain, value)]
    return str(value.astimezone(UTC) if getattr(value, "tzinfo", None) else value), type(value).__name__


# JSON: the text of a value, and what a column makes of any JSON (the table "What fits a column").


def json_text(value):
    """The text of JSON whose numbers may be decimals."""
    if isinstance(value, dict):
        return f"{{{','.join(f'{json.dumps(key)}:{json_text(each)}' for key, each in value.items())}}}"
    if isinstance(value, list):
        return f"[{','.join(map(json_text, value))}]"
    return str(value) if isinstance(value, Decimal) else json.dumps(value)


def to_json(kind, value):
    if isinstance(value, float) and not abs(value) < float("inf"):
        return json.dumps(value).strip('"')
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if kind == "timestamp":
        return value.astimezone(timezone(timedelta(hours=value.second % 24 - 12))).isoformat()
    return value.isoformat() if isinstance(value, date) else value


def from_json(kind, value):
    is_number = type(value) in (int, Decimal)
    if kind in ("int", "bigint"):
        limit = 2 ** (31 if kind == "int" else 63)
        if type(value) is int and -limit <= value < limit:
            return value
    elif kind in ("float", "double"):
        if value in ("NaN", "Infinity", "-Infinity"):
            return float(value)
        if is_number and abs(value) < (FLOAT_MAX if kind == "float" else Decimal(2) ** 1024 - Decimal(2) ** 970):
            return as_float(float(value)) if kind == "float" else float(value)
    elif match := DECIMALS.fullmatch(kind):
        if is_number or (isinstance(value, str) and re.fullmatch(r"-?\d+(\.\d+)?(E[+-]?\d{1,3})?", value)):
            digits, scale = map(int, match.groups())
            number = Decimal(value).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, Context(2000))
            if number.copy_abs() < Decimal(10) ** (digits - scale):
                return number or number.copy_abs()
    elif kind == "string":
        return value if isinstance(value, str) else json_text(value)
    elif kind == "boolean":
        return required(bool, value)
    elif kind == "binary":
        if re.fullmatch(r"([\w+/]{4})*([\w+/]{2}==|[\w+/]{3}=)?", required(str, value), re.ASCII) and "_" not in value:
            return base64.b64decode(value)
    elif re.fullmatch(r"\d{4}-\d\d-\d\d" if kind == "date" else r"\d{4}-\d\d-\d\d.*", required(str, value)):
        try:
            if kind == "date":
                return date.fromisoformat(value)
            found = datetime.fromisoformat(value)
        except ValueError:
            raise UnfitError from None
        if kind == "timestamp":
            return found if found.tzinfo else found.replace(tzinfo=UTC)
        if not found.tzinfo:
            return found
    raise UnfitError


def coerced(unit, kind, value):
    """What a column with coercion=lenient, in which numbers are of a unit since 1970, makes of any JSON."""
    is_text, is_time = isinstance(value, str), kind in ("date", "timestamp", "timestamp_ntz")
    if kind in ("int", "bigint", "float", "double"):
        exponent = "E" if kind in ("int", "bigint") else "[eE]"
        if is_text and re.fullmatch(rf"-?\d+(\.\d+)?({exponent}[+-]?\d{{1,3}})?", value, re.ASCII):
            value = Decimal(value)
        if exponent == "E" and type(value) is Decimal and value == value.to_integral_value():
            value = int(value)
    elif kind == "boolean" and is_text and value.lower() in ("true", "false"):
        return value.lower() == "true"
    elif is_time and (type(value) is int or (is_text and re.fullmatch(r"-?\d{1,19}", value, re.ASCII))):
        nanos = int(value) * UNITS[unit]
        if not (FIRST_NANOS <= nanos <= LAST_NANOS and -(2**63) <= int(value) < 2**63):
            raise UnfitError
        time = at(nanos // 1000)
        if kind == "date" and nanos % (1000 * DAY) == 0:
            return time.date()
        value = time.replace(tzinfo=UTC) if kind == "timestamp" else time
        return required(datetime if kind != "date" else str, value)
    return from_json(kind, value)


def as_float(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def record_of_json(kind, text, from_json=from_json):
    """What a record in JSON becomes; of a float, no infinity is accepted beside a number that is too big."""
    numbers = []
    collect = lambda kind: lambda digits: numbers.append(kind(digits)) or numbers[-1]  # noqa: E731
    value = json.loads(text, parse_float=collect(Decimal), parse_int=collect(int))
    infinite = []

    def read(kind, value):
        found = from_json(kind, value)
        infinite.extend([kind] if isinstance(found, float) and abs(found) == float("inf") else [])
        return found

    row = walk(kind, value, read)
    if "float" in infinite and any(abs(number) >= FLOAT_MAX for number in numbers):
        raise UnfitError
    return row


def any_json(kind):
    """Mostly what the column holds, sometimes what another one does."""
    others = st.one_of(*(values.map(lambda value, name=name: to_json(name, value)) for name, values in SCALARS.items()))
    numbers = st.sampled_from([2**31, 2**63, Decimal("1.005"), Decimal("1E+309"), Decimal("3.5E+38"), Decimal("1.0")])
    odd = st.sampled_from(
        ["noon", "2024-02-30", "20240229", "2024-02-29T12:00:00Z", "12:00", "1,5", [1, None], {"a": 1}]
    )
    if kind == "string":  # a number with a fraction is documented as another text
        others, numbers = st.booleans() | whole(64) | TEXTS, whole(200)
    own = SCALARS[kind].map(lambda value: to_json(kind, value))
    return mostly(own, others, numbers, odd)


UNITS = {"days": 1000 * DAY, "seconds": 10**9, "millis": 10**6, "micros": 1000, "nanos": 1}
FIRST_NANOS, LAST_NANOS = ((each - EPOCH) // timedelta(microseconds=1) * 1000 for each in (datetime.min, datetime.max))


def loose_json(unit, kind):
    """Any JSON, the text of what the column holds, or a number of a unit, some of which are no times."""
    if kind in ("date", "timestamp", "timestamp_ntz"):
        days = st.dates().map(lambda day: (day - EPOCH.date()).days * 1000 * DAY // UNITS[unit])
        numbers = since_epoch(st.datetimes(), 1000 / UNITS[unit]) | days
        return any_json(kind) | numbers | numbers.map(str)
    if kind not in ("boolean", "int", "bigint", "float", "double"):
        return any_json(kind)
    texts = SCALARS[kind].map(lambda value: str(value).replace("inf", "Infinity").replace("nan", "NaN"))
    odd = st.sampled_from(["1.0", "-2.50", "1E2", "1E400", " 1", "1f", "yes", "TRUE", Decimal("1.0"), Decimal("-7.00")])
    return any_json(kind) | texts | odd


JSON_SCHEMA = {
    "bigint": {"type": "integer"}, "double": {"type": "number"}, "boolean": {"type": "boolean"},
    "string": {"type": "string"}, "date": {"type": "string", "format": "date"},
    "timestamp": {"type": "string", "format": "date-time"},
}  # fmt: skip


def json_schema(kind):
    """A schema of what JSON Schema has a type for; it says nothing of the rest."""
    scalars = {name: each for name, each in kind[1].items() if isinstance(each, str)}
    return {"properties": {name: JSON_SCHEMA[each] for name, each in scalars.items() if each in JSON_SCHEMA}}


# Avro: what fastavro writes and reads.

AVRO = {
    "bigint": "long", "binary": "bytes", "date": {"type": "int", "logicalType": "date"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "timestamp_ntz": {"type": "long", "logicalType": "local-timestamp-micros"},
}  # fmt: skip
NARROW = {"bigint": "int", "double": "float"}
NUMBERS = itertools.count()


def avro_schema(kind, scalar):
    if not isinstance(kind, tuple):
        return ["null", scalar(kind)]
    if kind[0] == "struct":
        fields = [{"name": name, "type": avro_schema(each, scalar)} for name, each in kind[1].items()]
        return ["null", {"type": "record", "name": f"R{next(NUMBERS)}", "fields": fields}]
    return ["null", {"type": kind[0], "items" if kind[0] == "array" else "values": avro_schema(kind[1], scalar)}]


def avro_scalar(kind):
    if match := DECIMALS.fullmatch(kind):
        precision, scale = map(int, match.groups())
        return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
    return AVRO.get(kind, kind)


def avro_bytes(schema, value):
    data = io.BytesIO()
    fastavro.schemaless_writer(data, schema, value)
    return data.getvalue()


# Connect and Debezium: each logical type has a column, a physical type with its name, physical values, and a meaning.


def at(micros):
    try:
        return EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        raise UnfitError from None


def time_of_day(micros):
    if not 0 <= micros < DAY:
        raise UnfitError
    text = at(micros).strftime("%H:%M:%S.%f")
    return text.rstrip("0").removesuffix(".")


def digits_of(data):
    number = int.from_bytes(data, "big", signed=True)
    if abs(number) >= 10**38:
        raise UnfitError
    return number


def since_epoch(times, per_micro):
    """Numbers of this unit, a few of which are no times of the years 1 to 9999."""
    return mostly(times.map(lambda time: int((time - EPOCH) / timedelta(microseconds=1) * per_micro)), whole(64))


def decimal_of(data):
    return Decimal(digits_of(data)).scaleb(-2, Context(38))


def date_of(days):
    return at(days * DAY).date()


def from_millis(number):
    return at(number * 1000)


MILLIS, MICROS = since_epoch(st.datetimes(), 0.001), since_epoch(st.datetimes(), 1)
NANOS = since_epoch(st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1)), 1000)
TODAY = st.datetimes(EPOCH, EPOCH + timedelta(hours=23))
DAYS = mostly(st.dates().map(lambda day: (day - EPOCH.date()).days), whole(32))
UNSCALED = mostly(st.integers(1 - 10**38, 10**38 - 1) | st.integers(-999, 999), whole(128))
UNSCALED = UNSCALED.map(lambda number: number.to_bytes((number.bit_length() + 8) // 8, "big", signed=True))
WITH_SCALE = st.fixed_dictionaries({"scale": st.integers(-9, 9), "value": UNSCALED})
ZONED = SCALARS["timestamp"].map(lambda time: to_json("timestamp", time)) | st.just("2024-01-01T00:00:00")
PHYSICAL = {"int": "int32", "bigint": "int64", "float": "float32", "double": "float64", "binary": "bytes"}
PHYSICAL |= {"boolean": "boolean", "string": "string"}
CONNECT_KINDS = {
    "Date": ("date", "int32", f"{CONNECT}Date", DAYS, date_of),
    "DbzDate": ("date", "int32", f"{DBZ}Date", DAYS, date_of),
    "Timestamp": ("timestamp", "int64", f"{CONNECT}Timestamp", MILLIS, lambda ms: from_millis(ms).replace(tzinfo=UTC)),
    "DbzTimestamp": ("timestamp_ntz", "int64", f"{DBZ}Timestamp", MILLIS, from_millis),
    "MicroTimestamp": ("timestamp_ntz", "int64", f"{DBZ}MicroTimestamp", MICROS, at),
    "NanoTimestamp": ("timestamp_ntz", "int64", f"{DBZ}NanoTimestamp", NANOS, lambda nanos: at(nanos // 1000)),
    "ZonedTimestamp": ("timestamp", "string", f"{DBZ}ZonedTimestamp", ZONED, lambda text: from_json("timestamp", text)),
    "Time": ("string", "int32", f"{CONNECT}Time", whole(28), lambda millis: time_of_day(millis * 1000)),
    "DbzTime": ("string", "int32", f"{DBZ}Time", whole(28), lambda millis: time_of_day(millis * 1000)),
    "MicroTime": ("string", "int64", f"{DBZ}MicroTime", since_epoch(TODAY, 1), time_of_day),
    "NanoTime": ("string", "int64", f"{DBZ}NanoTime", since_epoch(TODAY, 1000), lambda ns: time_of_day(ns // 1000)),
    "Decimal": ("decimal(38,2)", "bytes", DECIMAL, UNSCALED, decimal_of),
    "Variable": ("string", "struct", VARIABLE, WITH_SCALE, lambda it: f"{digits_of(it['value'])}E{-it['scale']}"),
    **{kind: (kind, physical, "", SCALARS[kind], lambda value: value) for kind, physical in PHYSICAL.items()},
}


def connect_schema(kind):
    if not isinstance(kind, tuple):
        _, physical, name, *_ = CONNECT_KINDS[kind]
        fields = [{"field": "scale", "type": "int32"}, {"field": "value", "type": "bytes"}]
        return {"type": physical, "name": name, "optional": True, "parameters": {"scale": "2"}, "fields": fields}
    if kind[0] == "struct":
        fields = [{**connect_schema(each), "field": name} for name, each in kind[1].items()]
        return {"type": "struct", "optional": True, "fields": fields}
    item = "items" if kind[0] == "array" else "values"
    return {"type": kind[0], "optional": True, "keys": {"type": "string"}, item: connect_schema(kind[1])}


def connect_avro(kind):
    _, physical, name, *_ = CONNECT_KINDS[kind]
    of_avro = {"int32": "int", "int64": "long", "float32": "float", "float64": "double"}
    schema = {"type": of_avro.get(physical, physical), "connect.name": name, "connect.parameters": {"scale": "2"}}
    if name != VARIABLE:
        return schema
    fields = [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}]
    return {**schema, "type": "record", "name": f"R{next(NUMBERS)}", "fields": fields}


def physical_json(kind, value):
    if kind == "Decimal" and len(value) < 10:  # `decimal.format` may be `numeric`
        return decimal_of(value)
    return {key: to_json(key, each) for key, each in value.items()} if kind == "Variable" else to_json("", value)


# The checks.


@contextmanager
def in_zone(spark, zone, driver):
    """The zone of the session; and that of this process and of its JVM, which Spark may take instead."""
    java, before = spark._jvm.java.util.TimeZone, spark.conf.get("spark.sql.session.timeZone")
    default, environment = java.getDefault(), os.environ.get("TZ")
    try:
        spark.conf.set("spark.sql.session.timeZone", zone)
        java.setDefault(java.getTimeZone(driver))
        os.environ["TZ"] = driver
        time.tzset()
        yield
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
        java.setDefault(default)
        os.environ.pop("TZ") if environment is None else os.environ.update(TZ=environment)
        time.tzset()


def wrong_rows(spark, format_, columns, sent, schemas, written=None, **given):
    """The records that became something else than expected, as bytes, what was found, and what was expected."""
    chosen = settings(format=format_, schema_registry_url="http://127.0.0.1:9", **given)
    decoded = decode_records(records(spark, [(None, data) for data, _ in sent]), chosen, schemas)
    rows, _ = parse_rows(decoded, columns, chosen)
    found = rows.orderBy("offset").select("is_valid", "row", "payload_type").toArrow().to_pylist()
    assert all(json.loads(each["payload_type"] or "{}") == json.loads(written) for each in found if written)
    actual = [plain(each["row"]) if each["is_valid"] else LETTER for each in found]
    expected = [LETTER if row is LETTER else plain(row) for _, row in sent]
    pairs = zip(sent, actual, expected, strict=True)
    return [(data, found, wanted) for (data, _), found, wanted in pairs if found != wanted]


def meaning_of(read, *given):
    try:
        return read(*given)
    except UnfitError:
        return LETTER


def some_rows(kind, scalar, number=60):
    """Rows with a few of the fields each."""
    fields = {name: drawn(each, scalar) for name, each in kind[1].items()}
    names = st.lists(st.sampled_from([*fields]), unique=True, min_size=1, max_size=4)
    rows = names.flatmap(lambda some: st.fixed_dictionaries({name: fields[name] for name in some}))
    return st.lists(rows, min_size=number, max_size=number)


def structs(scalars):
    """Structs of each scalar and of some nested kinds."""
    more = st.lists(nested([*scalars]), min_size=4, max_size=4)
    return more.map(lambda kinds: ("struct", {f"x{n}": each for n, each in enumerate([*scalars, *kinds])}))


def struct_and_rows(scalars, scalar):
    return structs(scalars).flatmap(lambda kind: st.tuples(st.just(kind), some_rows(kind, scalar)))


@st.composite
def avro_writers(draw):
    """A struct, and the schema and rows of two writers: some of the fields, in any order, of narrower types."""
    kind, writers = draw(structs(SCALARS)), []
    for narrow in (NARROW, {}):
        fields = "struct", dict(draw(st.permutations([*kind[1].items()]))[1:])
        schema = avro_schema(fields, lambda kind, narrow=narrow: avro_scalar(narrow.get(kind, kind)))[1]
        writers.append(
            (schema, draw(some_rows(fields, lambda kind, narrow=narrow: SCALARS[narrow.get(kind, kind)], 30)))
        )
    return kind, writers


def columns_of(kind, scalar=str):
    return T.StructType.fromDDL(", ".join(f"{name} {ddl(each, scalar)}" for name, each in kind[1].items()))


class DescribeValues:
    @pytest.fixture(autouse=True)
    def session(self, spark):
        conf = {"spark.sql.caseSensitive": "true", "spark.sql.mapKeyDedupPolicy": "LAST_WIN"}
        with settings_unless_set(spark, conf), in_zone(spark, "America/New_York", "Asia/Kolkata"):
            yield

    def it_stores_json_as_its_columns_take_it(self, spark):
        def check(given):
            kind, rows = given
            sent = [(text, meaning_of(record_of_json, kind, text)) for text in map(json_text, rows)]
            schemas = {1: RegisteredSchema("JSON", json.dumps(json_schema(kind)))}
            framed_ = [(framed(1, text.encode()), row) for text, row in sent]
            # Without a schema, change events have numbers with an exponent or many digits as doubles, and 1.0 as 1.
            short = [each for each in sent if not re.search(r"\d[eE]|\d{30}|\.0+\b", each[0])]
            dms = [(f'{{"data":{text},"metadata":{{"operation":"insert"}}}}', row) for text, row in short]
            debezium = [(f'{{"op":"c","after":{text}}}', row) for text, row in short]
            for format_, data in {
                "json": sent,
                "json_schema": framed_,
                "dms": dms,
                "debezium_json": debezium,
            }.items():
                assert wrong_rows(spark, format_, columns_of(kind), data, schemas) == []

        for_examples(check, MANY, given=struct_and_rows(SCALARS, any_json))

    @pytest.mark.parametrize("unit", UNITS)
    def it_coerces_what_lenient_columns_and_named_units_allow(self, spark, unit):
        def check(given):
            kind, rows = given
            read = partial(coerced, unit)
            sent = [(text, meaning_of(record_of_json, kind, text, read)) for text in map(json_text, rows)]
            options = {"coercion": "lenient", "epoch_units": {"*": unit}}
            assert wrong_rows(spark, "json", columns_of(kind), sent, {}, **options) == []

        for_examples(check, MANY, given=struct_and_rows(SCALARS, partial(loose_json, unit)))

    def it_stores_avro_as_fastavro_reads_it(self, spark):
        def check(given):
            (kind, writers), sent = given, []
            for number, (schema, rows) in enumerate(writers, 1):
                for row in rows:
                    written = avro_bytes(schema, row)
                    read = fastavro.schemaless_reader(io.BytesIO(written), schema)
                    sent.append((framed(number, written), {name: read.get(name) for name in kind[1]}))
                    sent += [(framed(number, bad), LETTER) for bad in (written[:-1], written + b"\0")][: len(row) % 3]
            schemas = {n: RegisteredSchema("AVRO", json.dumps(schema)) for n, (schema, _) in enumerate(writers, 1)}
            assert wrong_rows(spark, "avro", columns_of(kind), sent, schemas) == []

        for_examples(check, MANY, given=avro_writers())

    def it_stores_change_events_as_their_schema_means_them(self, spark):
        def check(given):
            kind, rows = given
            expected = [meaning_of(walk, kind, row, lambda name, value: CONNECT_KINDS[name][4](value)) for row in rows]
            row = connect_schema(kind)
            envelope = [{**row, "field": "before"}, {**row, "field": "after"}, {"field": "op", "type": "string"}]
            schema = {"type": "struct", "fields": envelope}
            payloads = ({"op": "c", "after": walk(kind, row, physical_json)} for row in rows)
            texts = [json_text({"schema": schema, "payload": payload}) for payload in payloads]
            of_row = avro_schema(kind, connect_avro)
            fields = {"before": of_row, "after": ["null", of_row[1]["name"]], "op": "string"}
            schema = {
                "type": "record",
                "name": "E",
                "fields": [{"name": n, "type": each} for n, each in fields.items()],
            }
            events = [framed(1, avro_bytes(schema, {"before": None, "after": row, "op": "c"})) for row in rows]
            schemas = {1: RegisteredSchema("AVRO", json.dumps(schema))}
            columns = columns_of(kind, lambda name: CONNECT_KINDS[name][0])
            for format_, data in {"debezium_json": texts, "debezium_avro": events}.items():
                assert (
                    wrong_rows(spark, format_, columns, [*zip(data, expected, strict=True)], schemas, columns.json())
                    == []
                )

        for_examples(check, MANY, given=struct_and_rows(CONNECT_KINDS, lambda name: CONNECT_KINDS[name][3]))
