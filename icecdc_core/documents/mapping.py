"""The explicit index mapping of a table's columns; OpenSearch guesses no field.

| column | field | reason |
|---|---|---|
| boolean, long, float, double | the same | |
| byte, short, int | `integer` | |
| decimal | `double` | range queries need a number; only the index rounds, `_source` has the exact text |
| string, uuid | `text` with `.keyword` | full-text and exact search; `.keyword` skips strings above 8191 characters |
| date, timestamp, timestamp_ntz | `date` | any year, unlike `date_nanos`; only the index has milliseconds |
| binary, fixed | `binary` | stored, not searchable |
| struct | `object` | |
| array | that of its element | an array of structs is an `object`, not `nested`: no hidden documents |
| map | `flat_object` | keys are data and must not add fields to the mapping |
| variant | `object`, not enabled | it may be any JSON, a number or an object: stored, not searchable |
| unknown | `object`, not enabled | its values are always null |

docs/types.md has the same table for Iceberg's types, with their JSON and whether they can be identifiers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from pyspark.sql import types as T

from icecdc_core.columns import OWN_PREFIX, RESERVED
from icecdc_core.documents.field_types import check_fields
from icecdc_core.documents.merged_mapping import merge_properties
from icecdc_core.errors import UnsupportedTypeError

_STORED_ONLY: dict[str, Any] = {"type": "object", "enabled": False}

# UTF-8 needs up to 4 bytes for a character, and Lucene accepts terms of up to 32766 bytes.
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
    T.VariantType: _STORED_ONLY,
    T.NullType: _STORED_ONLY,
}

# Names that OpenSearch 2.19 refuses at the top of a document; inside a struct they are ordinary names.
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


def index_mapping(
    schema: T.StructType, mapping: Mapping[str, Any] | None = None, pipeline_fields: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the explicit mapping of a table's columns; OpenSearch refuses fields without a mapping."""
    check_supported(schema)
    merged = merge_properties(generated_properties(schema), mapping or {}, pipeline_fields)
    check_fields(schema, merged)
    return {"dynamic": "strict", "properties": merged}


def generated_properties(schema: T.StructType) -> dict[str, dict[str, Any]]:
    """Return the fields that a document's columns have without a mapping of the user."""
    return {field.name: _field_mapping(field.dataType) for field in schema.fields}


def index_limits(
    schema: T.StructType, mapping: Mapping[str, Any] | None = None, pipeline_fields: Sequence[str] = ()
) -> dict[str, int]:
    """Return the index settings that a wide or deep mapping needs, such as `mapping.total_fields.limit`."""
    properties = index_mapping(schema, mapping, pipeline_fields)["properties"]
    fields, depth = _field_count(properties), _depth(properties)
    limits = {}
    if fields > _DEFAULT_FIELD_LIMIT:
        limits["mapping.total_fields.limit"] = 2 * fields
    if depth > _DEFAULT_DEPTH_LIMIT:
        limits["mapping.depth.limit"] = 2 * depth
    return limits


def check_supported(schema: T.StructType) -> None:
    """Check that a document can have the types and names of all columns."""
    for field in schema.fields:
        if field.name.split(".")[0] in METADATA_FIELDS:
            raise _unsupported_error(field.name, "is a metadata field of OpenSearch, so no column can have that name")
        if field.name.lower() in RESERVED or field.name.lower().startswith(OWN_PREFIX):
            raise _unsupported_error(field.name, "is a name that icecdc reserves, so no column can have it")
    _check_names(schema, "")
    for field in schema.fields:
        _check_type(field.name, field.dataType)


def _check_names(struct: T.StructType, prefix: str) -> None:
    """OpenSearch reads dots as paths: `a.b` is the field `b` of the object `a`."""
    names = {field.name for field in struct.fields}
    for name in struct.fieldNames():
        parts = name.split(".")
        if not name or (len(parts) > 1 and any(not part.strip() for part in parts)):
            raise _unsupported_error(prefix + name, "has an empty name, or a name with an empty part between dots")
        for count in range(1, len(parts)):
            if (outer := ".".join(parts[:count])) in names:
                raise _unsupported_error(
                    prefix + name, f"conflicts with '{prefix}{outer}': OpenSearch reads dots as paths"
                )


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
        raise _unsupported_error(path, f"has the type {data_type.simpleString()}, which a document cannot have")


def _field_mapping(data_type: T.DataType) -> dict[str, Any]:
    if isinstance(data_type, T.ArrayType):
        return _field_mapping(data_type.elementType)
    if isinstance(data_type, T.MapType):
        return {"type": "flat_object"}
    if isinstance(data_type, T.StructType):
        properties = {field.name: _field_mapping(field.dataType) for field in data_type.fields}
        return {"type": "object", "dynamic": "strict", "properties": properties}
    return _simple_field(data_type) or {}


def _simple_field(data_type: T.DataType) -> dict[str, Any] | None:
    found = next((field for known, field in _SIMPLE_FIELDS.items() if isinstance(data_type, known)), None)
    return deepcopy(found)


def _field_count(properties: dict[str, Any]) -> int:
    """The number of fields as OpenSearch counts them, with objects and sub-fields."""
    return sum(
        1 + name.count(".") + _field_count({**field.get("properties", {}), **field.get("fields", {})})
        for name, field in properties.items()
    )


def _depth(properties: dict[str, Any]) -> int:
    return max(
        (1 + name.count(".") + _depth(field.get("properties", {})) for name, field in properties.items()), default=0
    )


def _unsupported_error(column: str, problem: str) -> UnsupportedTypeError:
    return UnsupportedTypeError(
        f"Column '{column}' {problem}",
        subject="column",
        value=column,
        remedy="leave it out with the columns parameter, or rename or cast it in the table",
    )
