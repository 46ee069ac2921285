"""The user's mapping merged over the generated one, field by field.

A field with another `type` is what the user writes; nothing generated is left of it, except the fields of a struct that
becomes `nested`. A field without a `type`, or with the generated one, adds its options to the generated field.

| generated | given | merged |
|---|---|---|
| `text` with `.keyword` | `{"type": "keyword"}` | `keyword` |
| `text` with `.keyword` | `{"type": "text", "analyzer": "english"}` | `text`, `english`, with `.keyword` |
| `text` with `.keyword` | `{"fields": {"raw": {"type": "wildcard"}}}` | `text` with `.keyword` and `.raw` |
| `object` with `city` | `{"type": "nested"}` | `nested` with `city` |
| `object` with `lat` and `lon` | `{"type": "geo_point"}` | `geo_point` |
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from icecdc_core.documents.field_paths import (
    OBJECTS,
    Properties,
    field_names,
    flatten_mapping,
    locate_field,
    mapping_error,
)
from icecdc_core.documents.field_types import with_date_format
from icecdc_core.documents.fields_without_columns import (
    check_references,
    copy_targets,
    first_names,
    open_columns,
    overlaps_any,
    require_mapped,
    require_no_column,
    require_object,
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
