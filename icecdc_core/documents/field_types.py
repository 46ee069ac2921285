"""Which field types a column can have: what fails for every document is refused before anything is written.

Other types and options are left to OpenSearch, which refuses them when it creates the index.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pyspark.sql import types as T

from icecdc_core.documents.field_paths import OBJECTS, Properties, find_field, mapping_error, outer_paths
from icecdc_core.errors import ConfigError

VECTOR = "knn_vector"
"""The field type of the k-NN plugin."""

_KINDS: tuple[tuple[type[T.DataType], str], ...] = (
    (T.BooleanType, "boolean"),
    (T.DecimalType, "decimal"),
    (T.NumericType, "number"),
    (T.StringType, "string"),
    (T.DateType, "date"),
    (T.TimestampType, "timestamp"),
    (T.TimestampNTZType, "timestamp"),
    (T.BinaryType, "binary"),
    (T.StructType, "struct"),
    (T.MapType, "map"),
)
_NUMBERS = frozenset({"number", "decimal", "string"})
_TEXTS = _NUMBERS | {"boolean", "date", "timestamp", "binary"}
_OBJECTS = frozenset({"struct", "map"})
# By field type: the kinds of values that it reads from JSON. Decimals, dates and binaries are texts there.
_READS: dict[str, frozenset[str]] = {
    **dict.fromkeys(("keyword", "text", "match_only_text", "wildcard", "search_as_you_type", "token_count"), _TEXTS),
    **dict.fromkeys(("byte", "short", "integer", "long", "unsigned_long"), _NUMBERS),
    **dict.fromkeys(("half_float", "float", "double", "scaled_float", "rank_feature"), _NUMBERS),
    **dict.fromkeys(("object", "nested", "flat_object", "rank_features", "percolator"), _OBJECTS),
    **dict.fromkeys(("integer_range", "long_range", "float_range", "double_range", "date_range"), _OBJECTS),
    **dict.fromkeys(("date", "date_nanos"), _NUMBERS | {"date", "timestamp"}),
    **dict.fromkeys(("ip", "semantic"), frozenset({"string"})),
    **dict.fromkeys(("geo_shape", "completion", "ip_range", "join"), _OBJECTS | {"string"}),
    "boolean": frozenset({"boolean", "string"}),
    "binary": frozenset({"binary", "string"}),
    "geo_point": _OBJECTS | {"string", "array of number"},
    VECTOR: frozenset({"array of number"}),
    "alias": frozenset(),
}
# A struct is a point if it has the fields of one of these sets, and no others.
_POINTS = ({"lat", "lon"}, {"type", "coordinates"}, {"geohash"})
_INNER = ("properties", "fields")
_BOUNDS = frozenset({"gte", "gt", "lte", "lt"})
_ISO = frozenset({"date_optional_time", "date_optional_time_nanos", "iso8601"})
# Formats that read our texts, without the prefix `strict_`.
_READABLE = {"date": _ISO | {"date", "year_month_day", "yyyy-MM-dd", "uuuu-MM-dd"}, "timestamp": _ISO}
_EXAMPLES = {"date": "2026-01-31", "timestamp": "2026-01-31T12:00:00.500000Z"}
_ISO_PATTERN = re.compile(r"(yyyy|uuuu)-MM-dd'T'HH:mm:ss\.(SSSSSS|n)")


def check_fields(schema: T.StructType, merged: Properties) -> None:
    """Check that each column fits its field, and that each vector has a dimension."""
    for column in schema.fields:
        _check_field(column.name, column.dataType, merged)
    _check_vectors(merged, "")


def has_field_type(mapping: object, field_type: str) -> bool:
    """Return whether a mapping of fields has a field of a type."""
    fields = [field for field in mapping.values() if isinstance(field, Mapping)] if isinstance(mapping, Mapping) else []
    return any(
        field.get("type") == field_type or any(has_field_type(field.get(inner), field_type) for inner in _INNER)
        for field in fields
    )


def with_date_format(field: dict[str, Any], generated: Mapping[str, Any]) -> dict[str, Any]:
    """Return a date field with the format of our dates, unless it has one: the default cannot read every year."""
    is_date = field.get("type") in ("date", "date_nanos") and generated.get("type") == "date"
    return {"format": generated["format"], **field} if is_date else field


def _check_field(path: str, data_type: T.DataType, merged: Properties) -> None:
    field = find_field(merged, path)
    element, arrays = data_type, 0
    while isinstance(element, T.ArrayType):
        element, arrays = element.elementType, arrays + 1
    kind = next((kind for known, kind in _KINDS if isinstance(element, known)), "")
    if field is None or not kind or field.get("enabled") is False:
        return
    field_type = str(field.get("type", "object"))
    accepted = _READS.get(field_type)
    is_read = accepted is None or kind in accepted or (arrays > 0 and f"array of {kind}" in accepted)
    if accepted is not None and (not is_read or (field_type == VECTOR and arrays > 1)):
        raise _unreadable_error(path, data_type, field_type, _ways(accepted))
    if kind == "map" and field_type in OBJECTS and "properties" not in field and _is_strict(path, field, merged):
        raise _unreadable_error(
            path, data_type, field_type, 'its keys have no mapping; leave the type out, or add "dynamic": true or false'
        )
    if isinstance(element, T.StructType):
        _check_struct(path, element, field_type)
        if field_type in OBJECTS:
            for inner in element.fields:
                _check_field(f"{path}.{inner.name}", inner.dataType, merged)
    if field_type in ("date", "date_nanos") and kind in _READABLE and not _reads(str(field.get("format", "")), kind):
        raise mapping_error(
            f"The field '{path}' has the format '{field['format']}', which cannot read strings such as "
            f"{_EXAMPLES[kind]}",
            path,
            "add ||strict_date_optional_time_nanos to the format, or make a string of that format in select with "
            "date_format()",
        )


def _check_struct(path: str, struct: T.StructType, field_type: str) -> None:
    names = set(struct.fieldNames())
    if field_type == "geo_point" and names not in _POINTS:
        raise _unreadable_error(
            path, struct, field_type, "a struct needs the fields lat and lon, and no others; make one in select"
        )
    if field_type.endswith("_range") and not names <= _BOUNDS:
        raise _unreadable_error(
            path, struct, field_type, "a struct may have the fields gte, gt, lte and lt; make one in select"
        )


def _is_strict(path: str, field: Mapping[str, Any], merged: Properties) -> bool:
    """Whether OpenSearch rejects a field inside this one; an object inherits that from the one around it."""
    around = [find_field(merged, each) or {} for each in reversed(outer_paths(path))]
    dynamic = next((each["dynamic"] for each in (field, *around) if "dynamic" in each), "strict")
    return str(dynamic).lower().startswith("strict")


def _reads(formats: str, kind: str) -> bool:
    names = [each.strip().removeprefix("strict_") for each in formats.split("||")]
    return not formats or any(name in _READABLE[kind] or bool(_ISO_PATTERN.match(name)) for name in names)


def _check_vectors(properties: Properties, prefix: str) -> None:
    for name, field in properties.items():
        _check_vectors(field.get("properties", {}), f"{prefix}{name}.")
        for inner, each in field.get("fields", {}).items():
            if each.get("type") == VECTOR:
                raise mapping_error(
                    f"The vector '{prefix}{name}.{inner}' is a multi-field, which gets the numbers one by one",
                    f"{prefix}{name}.{inner}",
                    "make it a field of its own in select",
                )
        if field.get("type") != VECTOR or "model_id" in field:
            continue
        dimension = field.get("dimension")
        if not str(dimension).isdecimal() or int(str(dimension)) < 1:
            raise mapping_error(
                f"The vector '{prefix}{name}' has no valid dimension",
                dimension,
                f'set it to the length of the arrays: {{"{name}": {{"type": "knn_vector", "dimension": 384}}}}',
            )


def _ways(accepted: frozenset[str]) -> str:
    if not accepted:
        return "a field alias is no field of a document; give the alias a name that no column has"
    return f"it reads {', '.join(sorted(accepted))}; choose another type, or cast the column in select"


def _unreadable_error(path: str, data_type: T.DataType, field_type: str, remedy: str) -> ConfigError:
    return mapping_error(
        f"The column '{path}' of the type {data_type.simpleString()} cannot be a field of the type {field_type}",
        path,
        remedy,
    )
