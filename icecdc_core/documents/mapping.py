"""Iceberg schema, as Spark gives it, to an explicit index mapping; nothing is ever mapped by guessing.

| column | field | because |
|---|---|---|
| boolean, long, float, double | the same | |
| byte, short, int | `integer` | |
| decimal | `double` | ranges want a number; only the index rounds, `_source` keeps the exact text |
| string, uuid | `text` with `.keyword` | full text and exact; `.keyword` leaves out texts above 8191 characters |
| date, timestamp, timestamp_ntz | `date` | any year, unlike `date_nanos`; only the index cuts to milliseconds |
| binary, fixed | `binary` | kept, not searchable |
| struct | `object` | |
| array | as its element | an array of structs is an `object`, not `nested`: no hidden documents |
| map | `flat_object` | keys are data: any key may come, and none of them may grow the mapping |
| variant | `object`, not enabled | any JSON may come, a number as well as an object: kept, not searchable |
| unknown | `object`, not enabled | it is always null |

docs/types.md says the same of Iceberg's types, with the JSON and the identifier each of them gives.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import types as T

from icecdc_core.columns import OWN_PREFIX, RESERVED
from icecdc_core.errors import UnsupportedTypeError

_KEPT: dict[str, Any] = {"type": "object", "enabled": False}

# UTF-8 needs up to 4 bytes a character and Lucene takes terms of up to 32766 bytes.
_KEYWORD_LIMIT = 8191
_DEFAULT_FIELD_LIMIT = 1000
_DEFAULT_DEPTH_LIMIT = 20

_SIMPLE_FIELDS: dict[type[T.DataType], dict[str, Any]] = {
    T.BooleanType: {"type": "boolean"},
    T.ByteType: {"type": "integer"},
    T.ShortType: {"type": "integer"},
    T.IntegerType: {"type": "integer"},
    T.LongType: {"type": "long"},
    T.FloatType: {"type": "float"},
    T.DoubleType: {"type": "double"},
    T.DecimalType: {"type": "double"},
    T.StringType: {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": _KEYWORD_LIMIT}}},
    T.DateType: {"type": "date", "format": "strict_date"},
    T.TimestampType: {"type": "date", "format": "strict_date_optional_time_nanos"},
    T.TimestampNTZType: {"type": "date", "format": "strict_date_optional_time_nanos"},
    T.BinaryType: {"type": "binary"},
    T.VariantType: _KEPT,
    T.NullType: _KEPT,
}

# What OpenSearch 2.19 refuses at the top of a document; inside a struct all of these are plain names.
METADATA_FIELDS = frozenset(
    {
        "_id",
        "_index",
        "_source",
        "_routing",
        "_version",
        "_seq_no",
        "_primary_term",
        "_field_names",
        "_ignored",
        "_doc_count",
        "_nested_path",
        "_data_stream_timestamp",
    }
)


def index_mapping(schema: T.StructType) -> dict[str, Any]:
    """The explicit mapping of a table's columns; fields that are not mapped are refused by OpenSearch.

    Raises:
        UnsupportedTypeError: A column's type or name cannot be held by a document.
    """
    check_supported(schema)
    return {"dynamic": "strict", "properties": {field.name: _mapped(field.dataType) for field in schema.fields}}


def index_limits(schema: T.StructType) -> dict[str, int]:
    """Index settings a wide or deep table needs (`mapping.total_fields.limit`, ...); empty for most tables."""
    properties = index_mapping(schema)["properties"]
    fields, depth = _field_count(properties), _depth(properties)
    limits = {}
    if fields > _DEFAULT_FIELD_LIMIT:
        limits["mapping.total_fields.limit"] = 2 * fields
    if depth > _DEFAULT_DEPTH_LIMIT:
        limits["mapping.depth.limit"] = 2 * depth
    return limits


def check_supported(schema: T.StructType) -> None:
    """Refuse columns whose type or name a document cannot hold.

    Raises:
        UnsupportedTypeError: Names the column, its type or what is wrong with its name, and the remedy.
    """
    for field in schema.fields:
        if field.name.split(".")[0] in METADATA_FIELDS:
            raise _refusal(field.name, "is a metadata field of OpenSearch, so no column can have that name")
        if field.name in RESERVED or field.name.lower().startswith(OWN_PREFIX):
            raise _refusal(field.name, "is a name that icecdc needs for itself, so no column can have it")
    _check_names(schema, "")
    for field in schema.fields:
        _check_type(field.name, field.dataType)


def _check_names(struct: T.StructType, prefix: str) -> None:
    """OpenSearch reads dots as paths: `a.b` is the field `b` of the object `a`."""
    names = {field.name for field in struct.fields}
    for name in struct.fieldNames():
        parts = name.split(".")
        if not name or (len(parts) > 1 and any(not part.strip() for part in parts)):
            raise _refusal(prefix + name, "has an empty name, or one with an empty part between dots")
        for count in range(1, len(parts)):
            if (outer := ".".join(parts[:count])) in names:
                raise _refusal(prefix + name, f"cannot stand beside '{prefix}{outer}': dots are read as paths")


def _check_type(path: str, data_type: T.DataType) -> None:
    if isinstance(data_type, T.StructType):
        _check_names(data_type, f"{path}.")
        for field in data_type.fields:
            _check_type(f"{path}.{field.name}", field.dataType)
    elif isinstance(data_type, T.ArrayType):
        _check_type(path, data_type.elementType)
    elif isinstance(data_type, T.MapType):
        _check_type(f"{path}.key", data_type.keyType)
        _check_type(f"{path}.value", data_type.valueType)
    elif _simple_field(data_type) is None:
        raise _refusal(path, f"has the type {data_type.simpleString()}, which a document cannot hold")


def _mapped(data_type: T.DataType) -> dict[str, Any]:
    if isinstance(data_type, T.ArrayType):
        return _mapped(data_type.elementType)
    if isinstance(data_type, T.MapType):
        return {"type": "flat_object"}
    if isinstance(data_type, T.StructType):
        properties = {field.name: _mapped(field.dataType) for field in data_type.fields}
        return {"type": "object", "dynamic": "strict", "properties": properties}
    return _simple_field(data_type) or {}


def _simple_field(data_type: T.DataType) -> dict[str, Any] | None:
    found = next((field for known, field in _SIMPLE_FIELDS.items() if isinstance(data_type, known)), None)
    return dict(found) if found else None


def _field_count(properties: dict[str, Any]) -> int:
    """Fields as OpenSearch counts them: objects and sub-fields too."""
    return sum(
        1 + name.count(".") + _field_count({**field.get("properties", {}), **field.get("fields", {})})
        for name, field in properties.items()
    )


def _depth(properties: dict[str, Any]) -> int:
    return max(
        (1 + name.count(".") + _depth(field.get("properties", {})) for name, field in properties.items()), default=0
    )


def _refusal(column: str, problem: str) -> UnsupportedTypeError:
    return UnsupportedTypeError(
        f"Column '{column}' {problem}",
        subject="column",
        value=column,
        remedy="leave it out with the columns parameter, or rename or cast it in the table",
    )
