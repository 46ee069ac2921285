"""Protobuf: protoc makes descriptors of a schema's .proto texts; by them, messages become JSON of typed columns.

Google's library reads the messages in Spark's Python workers. Spark's `from_protobuf` needs one more jar, and drops
what its descriptors lack.
"""

import base64
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from pyspark.sql import Column, functions as F, types as T

from icecdc_core.dependencies import keep_archive_caches
from icecdc_core.ingest.formats.schemas import MOST_NODES, RegisteredSchema

_DECODED = "payload string, payload_type string, op string, problem string, before string, envelope string"
_FILE = "schema_of_the_registry.proto"
_DOCUMENTS = {f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue")}
_TIMES = {"google.protobuf.Timestamp": T.TimestampType(), "google.protobuf.Duration": T.StringType()}
_NUMBERS = "Double", "Float", "Int64", "UInt64", "Int32", "UInt32"
_WRAPPERS = {f"google.protobuf.{name}Value" for name in (*_NUMBERS, "Bool", "String", "Bytes")}
_KINDS: dict[str, T.DataType] = {
    **dict.fromkeys(("INT32", "SINT32", "SFIXED32"), T.IntegerType()),
    **dict.fromkeys(("INT64", "SINT64", "SFIXED64", "UINT32", "FIXED32"), T.LongType()),
    **dict.fromkeys(("UINT64", "FIXED64"), T.DecimalType(20, 0)),
    **{"FLOAT": T.FloatType(), "DOUBLE": T.DoubleType(), "BOOL": T.BooleanType(), "BYTES": T.BinaryType()},
    **dict.fromkeys(("STRING", "ENUM"), T.StringType()),
}
_NOT_FINITE = {math.inf: "Infinity", -math.inf: "-Infinity"}

ToJson = Callable[[Any], Any]


def decode_protobuf(name: str, schema: RegisteredSchema, data: Column, tombstone: Column) -> Column:
    """Return the decode result of messages behind their message indexes, or of keys of tombstones."""
    files = _compile(schema.text, tuple((path, each.text) for path, each in schema.references.items()))

    @F.udf(returnType=_DECODED, useArrow=True)
    def decode(data: bytes | None, is_tombstone: bool) -> tuple[str | None, ...] | None:
        if data is None:  # it has another schema
            return None
        op = "delete" if is_tombstone else None
        try:
            payload, kind = _messages(files)(bytes(data))
        except Exception as error:
            reason = " ".join(str(error).split())[:300]
            return None, None, op, f"the bytes do not fit {name} ({reason})", None, None
        return payload, kind, op, None, None, None

    return decode(data, tombstone)


@lru_cache(1000)
def _compile(text: str, references: tuple[tuple[str, str], ...]) -> bytes:
    """Return the descriptors of a schema, and of all files that it imports, as protoc writes them."""
    with TemporaryDirectory(prefix="icecdc-protobuf-") as name:
        folder = Path(name).resolve()
        for path, content in (*references, (_FILE, text)):
            file = (folder / path).resolve()
            if not file.is_relative_to(folder):
                raise ValueError(f"the reference {path} is not below its folder")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content, encoding="utf-8")
        # A process of its own: protoc writes what is wrong to the standard error, and may end the process.
        arguments = [f"-I{folder}", "--include_imports", f"--descriptor_set_out={folder / 'set'}", f"{folder / _FILE}"]
        command = [sys.executable, "-P", "-m", "grpc_tools.protoc", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=60)
        if done.returncode:
            raise ValueError(done.stderr)
        return (folder / "set").read_bytes()


@lru_cache(100)
def _messages(files: bytes) -> Callable[[bytes], tuple[str, str]]:
    """Return what makes, in a Python worker, JSON and its type as Spark's of bytes."""
    keep_archive_caches()
    pool, described = descriptor_pool.DescriptorPool(), descriptor_pb2.FileDescriptorSet.FromString(files)
    for file in described.file:
        _remove_extensions(file)
        pool.Add(file)
    types = pool.FindFileByName(_FILE).message_types_by_name
    top = [types[each.name] for each in described.file[-1].message_type]

    @cache
    def message_type(indexes: tuple[int, ...]) -> tuple[Any, ToJson, str]:
        found: Any = None
        inner: Any = top
        for index in indexes:
            if index >= len(inner):
                raise ValueError(f"it has no message of the indexes {list(indexes)}")
            found = inner[index]
            # As Confluent's Java client counts them; protoc's messages for the entries of maps are in no .proto text.
            inner = [each for each in found.nested_types if not each.GetOptions().map_entry]
        kind = _struct_type(found, (), count())
        return message_factory.GetMessageClass(found), _to_json(found), kind.json()

    def decode(data: bytes) -> tuple[str, str]:
        indexes, start = _message_indexes(data)
        new_message, to_json, kind = message_type(indexes)
        message = new_message.FromString(data[start:])
        if missing := message.FindInitializationErrors():
            raise ValueError(f"required fields are missing: {', '.join(missing)}")
        size = message.ByteSize()
        message.DiscardUnknownFields()
        if message.ByteSize() != size:
            raise ValueError("there are fields that it does not have")
        return orjson.dumps(to_json(message), option=orjson.OPT_NON_STR_KEYS).decode(), kind

    return decode


def _remove_extensions(message: Any) -> None:
    """Make fields that other messages add unknown ones, for which there is no column."""
    message.ClearField("extension")
    for each in (*getattr(message, "message_type", ()), *getattr(message, "nested_type", ())):
        _remove_extensions(each)


def _message_indexes(data: bytes) -> tuple[tuple[int, ...], int]:
    """Return which message it is, by the indexes of it and of those around it, and where the message starts."""
    numbers: list[int] = []
    at = number = shift = 0
    while not numbers or len(numbers) <= numbers[0]:
        if at == len(data) or shift > 28:
            raise ValueError("its message indexes are incomplete")
        number |= (data[at] & 0x7F) << shift
        shift += 7
        if data[at] < 0x80:
            numbers.append((number >> 1) ^ -(number & 1))  # zigzag
            number = shift = 0
            if numbers[-1] < 0:
                raise ValueError("its message indexes are negative")
        at += 1
    return tuple(numbers[1:]) or (0,), at


def _kind_of(field: Any) -> str:
    return str(descriptor_pb2.FieldDescriptorProto.Type.Name(field.type)).removeprefix("TYPE_")


def _is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _struct_type(message: Any, around: tuple[str, ...], expanded: Iterator[int]) -> T.StructType:
    """The columns of a message. One inside itself is a text, as is one without fields: both are JSON."""
    around = (*around, message.full_name)

    def value_type(field: Any) -> T.DataType:
        if next(expanded) > MOST_NODES:
            raise ValueError(f"it describes more than {MOST_NODES:,} values")
        inner = field.message_type
        if inner is None:
            return _KINDS[_kind_of(field)]
        if inner.full_name in _WRAPPERS:
            return value_type(inner.fields[0])
        if inner.full_name in _DOCUMENTS or inner.full_name in around or not inner.fields:
            return T.StringType()
        return _TIMES.get(inner.full_name) or _struct_type(inner, around, expanded)

    def column_type(field: Any) -> T.DataType:
        if _is_map(field):
            key, value = map(value_type, field.message_type.fields)
            return T.MapType(key, value)
        return T.ArrayType(value_type(field)) if field.is_repeated else value_type(field)

    return T.StructType([T.StructField(each.name, column_type(each), not each.is_required) for each in message.fields])


@lru_cache(1000)
def _to_json(message: Any) -> ToJson:
    """Return what makes the object of a message: with each field that is set, or cannot be unset."""

    @cache  # not before it is needed: a message may be inside itself
    def fields() -> list[tuple[str, bool, ToJson]]:
        return [(each.name, each.has_presence, _field_to_json(each)) for each in message.fields]

    return lambda value: {
        name: to_json(getattr(value, name))
        for name, may_be_unset, to_json in fields()
        if not may_be_unset or value.HasField(name)
    }


def _field_to_json(field: Any) -> ToJson:
    if _is_map(field):
        of_value = _value_to_json(field.message_type.fields[1])
        return lambda values: {key: of_value(value) for key, value in values.items()}
    of_item = _value_to_json(field)
    return (lambda values: [*map(of_item, values)]) if field.is_repeated else of_item


def _value_to_json(field: Any) -> ToJson:
    """Return what makes a value one of JSON that its column takes (docs/kafka-formats.md, "What fits a column")."""
    if message := field.message_type:
        if message.full_name in _TIMES:
            return lambda value: value.ToJsonString()
        if message.full_name in _DOCUMENTS:
            return lambda value: json_format.MessageToDict(value)
        if message.full_name in _WRAPPERS:
            of_inner = _value_to_json(message.fields[0])
            return lambda value: of_inner(value.value)
        return _to_json(message)
    if field.enum_type:  # in proto3, a number without a name is valid
        names = {each.number: each.name for each in reversed(field.enum_type.values)}
        return lambda number: names.get(number, str(number))
    if _kind_of(field) in ("FLOAT", "DOUBLE"):
        return lambda value: value if math.isfinite(value) else _NOT_FINITE.get(value, "NaN")
    if _kind_of(field) == "BYTES":
        return lambda value: base64.b64encode(value).decode()
    return lambda value: value
