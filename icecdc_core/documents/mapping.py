"""The explicit index mapping of a table's columns, see docs/types.md; OpenSearch guesses no field."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from itertools import accumulate
from typing import Any

from pyspark.sql import types as T

from icecdc_core.columns import is_reserved
from icecdc_core.errors import ConfigError, UnsupportedTypeError

Properties = dict[str, dict[str, Any]]
OBJECTS = ("object", "nested")
"""The types of fields with fields of their own."""


def locate_field(properties: Properties, path: str) -> tuple[dict[str, Any], str]:
    """Return the dictionary that has the field, or in which it belongs, and its key there."""
    if path in properties:
        return properties, path
    parts = path.split(".")
    for count in range(len(parts) - 1, 0, -1):
        outer, rest = properties.get(".".join(parts[:count])), ".".join(parts[count:])
        if outer is None:
            continue
        if rest in outer.get("fields", {}):
            return outer["fields"], rest
        if outer.get("type", "object") in OBJECTS and outer.get("enabled") is not False:
            return locate_field(outer.setdefault("properties", {}), rest)
    return properties, path


def field_names(properties: Mapping[str, Any], prefix: str = "") -> list[str]:
    names = []
    for name, field in properties.items():
        names += [f"{prefix}{name}", *(f"{prefix}{name}.{each}" for each in field.get("fields", {}))]
        names += field_names(field.get("properties", {}), f"{prefix}{name}.")
    return names


def flatten_mapping(mapping: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return each field of a mapping by its path and without its inner fields, outer fields first."""
    found: dict[str, dict[str, Any]] = {}
    waiting = [*mapping.items()]
    while waiting:
        path, field = waiting.pop(0)
        if not (_is_object(field, "properties") and _is_object(field, "fields")) or not all(
            isinstance(each, Mapping) for each in field.get("fields", {}).values()
        ):
            raise _mapping_error(f"of '{path}' is not an object", path)
        if path in found:
            raise _mapping_error(f"has the field '{path}' twice", path)
        found[path] = {option: value for option, value in field.items() if option != "properties"}
        waiting += [(f"{path}.{name}", inner) for name, inner in field.get("properties", {}).items()]
    return sorted(found.items(), key=lambda item: item[0].count("."))


def _is_object(field: Any, option: str) -> bool:
    return isinstance(field, Mapping) and isinstance(field.get(option, {}), Mapping)


def _mapping_error(problem: str, path: str, remedy: str = "") -> ConfigError:
    return ConfigError(
        f"The mapping {problem}",
        subject="mapping",
        value=path,
        remedy=remedy or 'give each field once, as in the properties of OpenSearch: {"title": {"type": "keyword"}}',
    )


VECTOR = "knn_vector"


def sample_document(schema: T.StructType, properties: Properties, prefix: str = "") -> dict[str, Any]:
    """Return a document by which a server shows whether fields accept these types; what values decide is left out."""
    found = {each.name: _sample(f"{prefix}{each.name}", each.dataType, properties) for each in schema.fields}
    return {name: sample for name, sample in found.items() if sample is not None}


def _sample(path: str, data_type: T.DataType, properties: Properties) -> Any:
    holder, name = locate_field(properties, path)
    field: Mapping[str, Any] = holder.get(name) or {}
    kind = field.get("type", "object")
    if isinstance(data_type, T.ArrayType):
        element = _sample(path, data_type.elementType, properties)
        # A vector of a model has a dimension that only the server knows.
        count = str({VECTOR: field.get("dimension", 0), "geo_point": 2}.get(kind, 1))
        return [element] * int(count) if element is not None and count.isdecimal() and int(count) else None
    if isinstance(data_type, T.StructType) and kind not in _BY_VALUES:
        return sample_document(data_type, properties, f"{path}.")
    if isinstance(data_type, T.MapType) and kind in OBJECTS:
        return sample_document(T.StructType().add("key", data_type.valueType), properties, f"{path}.")
    if isinstance(data_type, T.StringType):
        takes_any = all(each.get("type") in _TEXTS for each in (field, *field.get("fields", {}).values()))
        return "a" if takes_any else None
    if isinstance(data_type, T.NumericType) and "format" in field:
        return None
    return next((value for known, value in _SAMPLES.items() if isinstance(data_type, known)), None)


def copy_targets(field: Mapping[str, Any]) -> list[str]:
    targets = field.get("copy_to") or []
    return [str(each) for each in (targets if isinstance(targets, list) else [targets])]


def index_mapping(
    schema: T.StructType, mapping: Mapping[str, Any] | None = None, pipeline_fields: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the explicit mapping of a table's columns; OpenSearch refuses fields without a mapping."""
    check_supported(schema)
    generated, given = generated_properties(schema), flatten_mapping(mapping or {})
    # Only the data show which fields are in a map or a variant.
    columns = flatten_mapping(generated)
    made = {path for path, field in columns if field.get("type") == "flat_object" or "enabled" in field}
    made |= {*pipeline_fields, *(to for _, field in given for to in copy_targets(field))}
    merged = deepcopy(generated)
    for path, field in given:
        holder, name = locate_field(merged, path)
        if name in holder:
            holder[name] = merge_field(holder[name], field)
            continue
        known = field_names(merged)
        is_around = any(each.startswith(f"{path}.") for each in (*known, *(other for other, _ in given)))
        is_made = any(f"{path}.".startswith(f"{each}.") or each.startswith(f"{path}.") for each in made)
        if field.get("type") != "alias" and not is_made and (field or not is_around):
            raise _mapping_error(
                f"has a field '{path}', which no document has",
                path,
                f"map the fields of the documents ({', '.join(sorted(known)[:_SHOWN])}); add a multi-field with "
                "`fields` of its field; name a field that an ingest pipeline makes in pipeline_fields",
            )
        if field:
            holder[name] = {"type": "object", **deepcopy(field)}
    return {"dynamic": "strict", "properties": merged}


def merge_field(generated: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Merge one field of the user over a generated one: a type replaces it, other options are added to it."""
    adds = "type" not in given or (given["type"] == generated.get("type") and generated.get("enabled") is not False)
    if adds:
        merged = _merge_deep(generated, given)
    elif given["type"] in OBJECTS and "properties" in generated:
        merged = {"dynamic": "strict", "properties": dict(generated["properties"]), **deepcopy(dict(given))}
    else:
        merged = deepcopy(dict(given))
        if given["type"] == "date_nanos" and generated.get("type") == "date":  # its default cannot read every year
            merged = {"format": generated["format"], **merged}
    if merged.get("enabled") is False:
        # OpenSearch parses nothing inside, so the fields of a struct would only be clutter.
        merged = {option: value for option, value in merged.items() if option not in ("properties", "dynamic")}
    return merged


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
# What OpenSearch sets by default.
_LIMITS = {"mapping.total_fields.limit": 1000, "mapping.depth.limit": 20}

_SIMPLE_FIELDS: dict[type[T.DataType], dict[str, Any]] = {
    T.BooleanType: {"type": "boolean"},
    T.LongType: {"type": "long"},
    T.IntegralType: {"type": "integer"},
    T.FloatType: {"type": "float"},
    T.FractionalType: {"type": "double"},
    T.StringType: {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": _KEYWORD_LIMIT}}},
    T.DateType: {"type": "date", "format": "strict_date"},
    T.TimestampType: {"type": "date", "format": "strict_date_optional_time_nanos"},
    T.TimestampNTZType: {"type": "date", "format": "strict_date_optional_time_nanos"},
    T.BinaryType: {"type": "binary"},
    T.VariantType: _STORED_ONLY,
    T.NullType: _STORED_ONLY,
}

# The types of fields that accept every text, or none.
_TEXTS = ("text", "keyword", "alias")
# The types of fields that accept a struct or not by its values.
_BY_VALUES = ("geo_shape", "xy_shape", "completion", "join")
_SAMPLES: dict[type[T.DataType], Any] = {
    T.BooleanType: True,
    T.DecimalType: "1.5",
    T.NumericType: 1,
    T.DateType: "2026-01-31",
    T.TimestampType: "2026-01-31T12:00:00.500000Z",
    T.TimestampNTZType: "2026-01-31T12:00:00.500000",
    T.BinaryType: "AAA=",
}
_SHOWN = 20

# Names that OpenSearch 2.19 refuses at the top of a document; inside a struct they are ordinary names.
METADATA_FIELDS = frozenset(
    (
        *("_id", "_index", "_source", "_routing", "_version", "_seq_no", "_primary_term", "_field_names", "_ignored"),
        *("_doc_count", "_nested_path", "_data_stream_timestamp"),
    )
)


def generated_properties(schema: T.StructType) -> dict[str, dict[str, Any]]:
    return {field.name: _field_mapping(field.dataType) for field in schema.fields}


def index_limits(
    schema: T.StructType, mapping: Mapping[str, Any] | None = None, pipeline_fields: Sequence[str] = ()
) -> dict[str, int]:
    """Return the index settings that a wide or deep mapping needs, such as `mapping.total_fields.limit`."""
    names = field_names(index_mapping(schema, mapping, pipeline_fields)["properties"])
    # OpenSearch reads dots as paths.
    fields = {outer for name in names for outer in accumulate(name.split("."), "{}.{}".format)}
    depth = max((1 + name.count(".") for name in fields), default=0)
    return {
        name: 2 * size
        for (name, limit), size in zip(_LIMITS.items(), (len(fields), depth), strict=True)
        if size > limit
    }


def check_supported(schema: T.StructType) -> None:
    for field in schema.fields:
        if field.name.split(".")[0] in METADATA_FIELDS:
            raise _unsupported_error(field.name, "is a metadata field of OpenSearch, so no column can have that name")
        if is_reserved(field.name):
            raise _unsupported_error(field.name, "is a name that icecdc reserves, so no column can have it")
    _check_type("", schema)


def _check_type(path: str, data_type: T.DataType) -> None:
    if isinstance(data_type, T.StructType):
        prefix = f"{path}." if path else ""
        for field in data_type.fields:
            name, parts = prefix + field.name, field.name.split(".")
            if not field.name or (len(parts) > 1 and any(not part.strip() for part in parts)):
                raise _unsupported_error(name, "has an empty name, or a name with an empty part between dots")
            for outer in accumulate(parts, "{}.{}".format):
                if outer != field.name and outer in data_type.names:
                    raise _unsupported_error(name, f"conflicts with '{prefix}{outer}': OpenSearch reads dots as paths")
            _check_type(name, field.dataType)
    elif isinstance(data_type, T.ArrayType):
        _check_type(path, data_type.elementType)
    elif isinstance(data_type, T.MapType):
        _check_type(f"{path}.key", data_type.keyType)
        _check_type(f"{path}.value", data_type.valueType)
    elif not _field_mapping(data_type):
        raise _unsupported_error(path, f"has the type {data_type.simpleString()}, which a document cannot have")


def _field_mapping(data_type: T.DataType) -> dict[str, Any]:
    if isinstance(data_type, T.ArrayType):
        return _field_mapping(data_type.elementType)
    if isinstance(data_type, T.MapType):
        return {"type": "flat_object"}
    if isinstance(data_type, T.StructType):
        return {"type": "object", "dynamic": "strict", "properties": generated_properties(data_type)}
    return deepcopy(next((each for kind, each in _SIMPLE_FIELDS.items() if isinstance(data_type, kind)), {}))


def _unsupported_error(column: str, problem: str) -> UnsupportedTypeError:
    return UnsupportedTypeError(
        f"Column '{column}' {problem}",
        subject="column",
        value=column,
        remedy="leave it out with the columns parameter, or rename or cast it in the table",
    )
