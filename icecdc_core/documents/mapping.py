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

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any

from pyspark.sql import types as T

from icecdc_core.columns import OWN_PREFIX, RESERVED
from icecdc_core.errors import ConfigError, UnsupportedTypeError

Properties = dict[str, dict[str, Any]]
OBJECTS = ("object", "nested")
"""The types of fields with fields of their own."""


def locate_field(properties: Properties, path: str, may_add: bool = True) -> tuple[dict[str, Any], str]:
    """Return the dictionary that has the field, or in which it belongs, and its key there."""
    if path in properties:
        return properties, path
    parts = path.split(".")
    for count in range(len(parts) - 1, 0, -1):
        outer = properties.get(".".join(parts[:count]))
        if outer is None:
            continue
        rest = ".".join(parts[count:])
        if rest in outer.get("fields", {}):
            return outer["fields"], rest
        if outer.get("type", "object") in OBJECTS and outer.get("enabled") is not False:
            return locate_field(
                outer.setdefault("properties", {}) if may_add else outer.get("properties", {}), rest, may_add
            )
    return properties, path


def find_field(properties: Properties, path: str) -> dict[str, Any] | None:
    """Return the field or the multi-field at a path; None if there is none."""
    holder, name = locate_field(properties, path, may_add=False)
    return holder.get(name)


def field_names(properties: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Return the paths of all fields, objects and multi-fields included."""
    names = []
    for name, field in properties.items():
        names += [f"{prefix}{name}", *(f"{prefix}{name}.{each}" for each in field.get("fields", {}))]
        names += field_names(field.get("properties", {}), f"{prefix}{name}.")
    return names


def outer_paths(path: str) -> list[str]:
    """Return the paths of the fields around a path, outermost first."""
    parts = path.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def mapping_error(message: str, value: object, remedy: str, subject: str = "mapping") -> ConfigError:
    """Return the error for a wrong mapping."""
    return ConfigError(message, subject=subject, value=value, remedy=remedy)


def flatten_mapping(mapping: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return each field of a mapping by its path and without its inner fields, outer fields first."""
    found: dict[str, dict[str, Any]] = {}
    for path, field in _walk(mapping, ""):
        if path in found:
            raise mapping_error(
                f"The mapping has the field '{path}' twice",
                path,
                "give it once: by its path, or in the properties of the outer field",
            )
        found[path] = field
    return sorted(found.items(), key=lambda item: item[0].count("."))


def _walk(mapping: Mapping[str, Any], prefix: str) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for name, field in mapping.items():
        path = f"{prefix}{name}"
        if not isinstance(field, Mapping) or not isinstance(field.get("properties", {}), Mapping):
            raise mapping_error(
                f"The mapping of '{path}' is not an object",
                field,
                f'write it as in OpenSearch, such as {{"{path}": {{"type": "keyword"}}}}',
            )
        if not isinstance(name, str) or any(not part.strip() for part in path.split(".")):
            raise mapping_error(
                f"The mapping has the field '{path}', whose name has an empty part",
                path,
                "name the field as the document does; a dot leads into an object",
            )
        found.append((path, {option: value for option, value in field.items() if option != "properties"}))
        found += _walk(field.get("properties", {}), f"{path}.")
    return found


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


_SHOWN = 20


def require_no_column(generated: Properties, name: str) -> None:
    """Check that a field of a pipeline is not also a column."""
    closed = [
        each for each in outer_paths(name) if "properties" not in (find_field(generated, each) or {"properties": {}})
    ]
    is_column = any(each == name or each.startswith(f"{name}.") for each in field_names(generated))
    if is_column or closed:
        what = "a column of the documents" if is_column else f"inside the column '{closed[0]}'"
        raise mapping_error(
            f"The pipeline field '{name}' is {what}",
            name,
            "let the pipeline make a field of another name; what it changes in a column would always differ from the "
            "table",
            subject="pipeline_fields",
        )


def require_mapped(merged: Properties, name: str) -> None:
    """Check that a field of a pipeline has a mapping."""
    if not _is_accepted(merged, name):
        raise mapping_error(
            f"The pipeline field '{name}' has no mapping, and the index accepts only fields that have one",
            name,
            f'give it one in mapping, such as {{"{name}": {{"type": "keyword"}}}}',
            subject="pipeline_fields",
        )


def require_object(merged: Properties, path: str) -> None:
    """Check that the fields around a path are objects."""
    for outer in outer_paths(path):
        field = find_field(merged, outer)
        if field is not None and (field.get("type", "object") not in OBJECTS or field.get("enabled") is False):
            raise mapping_error(
                f"The field '{path}' is inside '{outer}', which is a field of the type {field.get('type', 'object')} "
                "without fields of its own",
                path,
                "map the outer field as object or nested, or choose another name",
            )


def check_references(merged: Properties) -> None:
    """Check that the fields which `copy_to` and field aliases name exist."""
    names = field_names(merged)
    for path in names:
        field = find_field(merged, path) or {}
        for target in copy_targets(field):
            if not _is_accepted(merged, target):
                raise mapping_error(
                    f"The field '{path}' is copied to '{target}', which has no mapping",
                    target,
                    f'give it one in mapping, such as {{"{target}": {{"type": "text"}}}}; the index accepts only '
                    "fields that have one",
                )
        if field.get("type") == "alias" and find_field(merged, str(field.get("path", ""))) is None:
            raise mapping_error(
                f"The field alias '{path}' is for '{field.get('path', '')}', which is no field",
                path,
                f"set its path to a field of the mapping ({first_names(names)})",
            )


def copy_targets(field: Mapping[str, Any]) -> list[str]:
    """Return the fields that a field is copied to."""
    targets = field.get("copy_to") or []
    return [targets] if isinstance(targets, str) else [str(each) for each in targets]


def open_columns(generated: Properties) -> list[str]:
    """Return the columns that are maps or variants: only the data show which fields they have."""
    fields = {name: find_field(generated, name) or {} for name in field_names(generated)}
    return [name for name, field in fields.items() if field.get("type") == "flat_object" or "enabled" in field]


def overlaps_any(path: str, fields: Iterable[str]) -> bool:
    """Return whether one of the fields is at a path, inside it or around it."""
    return any(path == each or each.startswith(f"{path}.") or path.startswith(f"{each}.") for each in fields)


def first_names(names: Sequence[str]) -> str:
    """Return the first names as a text."""
    shown = sorted(names)[:_SHOWN]
    return ", ".join(shown) + (", ..." if len(names) > len(shown) else "")


def _is_accepted(merged: Properties, path: str) -> bool:
    """Whether a document may have the field: it has a mapping, or an object around it accepts any field."""
    if find_field(merged, path) is not None or any(each.startswith(f"{path}.") for each in field_names(merged)):
        return True
    around = [find_field(merged, each) or {} for each in outer_paths(path)]
    return any(
        each.get("enabled") is False
        or each.get("type") == "flat_object"
        or str(each.get("dynamic", "strict")).lower() in ("true", "false")
        for each in around
    )


# Keys of a whole mapping in OpenSearch, which are no fields.
_WHOLE = {
    "properties": "give the fields directly, as {field: {type: ...}}",
    "_source": "leave it out; validation, repair and readers need the whole document in `_source`",
    "_routing": "leave it out; documents have no routing",
    "_meta": "leave it out; icecdc stores there which table an index belongs to",
    "dynamic": "leave it out; no document has other fields; for a map or a variant, set `dynamic` on an object",
    "dynamic_templates": "give each field directly; all fields are known, so no template is needed",
    "date_detection": "leave it out; no field is guessed",
    "numeric_detection": "leave it out; no field is guessed",
    "dynamic_date_formats": "leave it out; no field is guessed",
    "derived": "define derived fields in the search request",
}


def merge_properties(
    generated: Properties, mapping: Mapping[str, Any], pipeline_fields: Sequence[str] = ()
) -> Properties:
    """Merge the user's mapping over the generated fields."""
    for name in mapping:
        if name in _WHOLE and name not in generated:
            raise mapping_error(f"The mapping has '{name}', which is no field", name, _WHOLE[name])
    for name in pipeline_fields:
        require_no_column(generated, name)
    given = flatten_mapping(mapping)
    made = {*pipeline_fields, *(target for _, field in given for target in copy_targets(field))}
    made.update(open_columns(generated))
    merged = deepcopy(generated)
    for path, field in given:
        _merge_at(merged, path, field, made, [name for name, _ in given])
    for name in pipeline_fields:
        require_mapped(merged, name)
    check_references(merged)
    return merged


def merge_field(generated: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Merge one field of the user over a generated one, see the top of this module."""
    adds = "type" not in given or (given["type"] == generated.get("type") and generated.get("enabled") is not False)
    if adds:
        merged = _merge_deep(generated, given)
    elif given["type"] in OBJECTS and "properties" in generated:
        merged = {"dynamic": "strict", "properties": dict(generated["properties"]), **deepcopy(dict(given))}
    else:
        merged = with_date_format(deepcopy(dict(given)), generated)
    if merged.get("enabled") is False:
        # OpenSearch parses nothing inside, so the fields of a struct would only be clutter.
        merged = {option: value for option, value in merged.items() if option not in ("properties", "dynamic")}
    return merged


def _merge_at(merged: Properties, path: str, given: dict[str, Any], made: set[str], paths: Sequence[str]) -> None:
    holder, name = locate_field(merged, path)
    if name in holder:
        holder[name] = merge_field(holder[name], given)
        return
    known = field_names(merged)
    is_around = any(each.startswith(f"{path}.") for each in (*known, *paths))
    if given.get("type") != "alias" and not overlaps_any(path, made) and (given or not is_around):
        near = difflib.get_close_matches(path, known, n=1)
        hint = f"did you mean '{near[0]}'? " if near else ""
        raise mapping_error(
            f"The mapping has a field '{path}', which no document has",
            path,
            f"{hint}map the fields of the documents ({first_names(known)}); add a multi-field with `fields` of its "
            "field; name a field that an ingest pipeline makes in pipeline_fields",
        )
    require_object(merged, path)
    if "type" not in given and not is_around:
        raise mapping_error(
            f"The field '{path}' has no type in the mapping, and no document gives it one",
            path,
            f'add one, such as {{"{path}": {{"type": "keyword"}}}}',
        )
    if given:
        holder[name] = {"type": "object", **deepcopy(given)}


def _merge_deep(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = deepcopy(dict(below))
    for key, value in above.items():
        known = merged.get(key)
        # A multi-field with a type of its own replaces the generated one, as a field does.
        if isinstance(known, Mapping) and isinstance(value, Mapping) and "type" not in value:
            merged[key] = _merge_deep(known, value)
        else:
            merged[key] = deepcopy(value)
    return merged


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
