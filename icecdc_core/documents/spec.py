"""The spec of an index: the mapping and settings that its user chose, and which changes of them leave it right.

Most settings, options that only searches use, and the mapping of a new field are put in place; any other change follows
`on_schema_change`. Two spellings of the same are no change.
"""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from copy import deepcopy
from typing import Any

from pyspark.sql.types import StructType

from icecdc_core.config.values import iterate_leaves, iterate_settings
from icecdc_core.documents.mapping import (
    Properties,
    copy_targets,
    flatten_mapping,
    generated_properties,
    locate_field,
    merge_field,
)

# They change what is indexed, or how it is stored.
_NEED_EXPORT = (
    *("analysis.", "similarity.", "sort.", "store.", "codec", "number_of_shards", "number_of_routing_shards"),
    *("default_pipeline", "final_pipeline", "routing_partition_size", "soft_deletes.enabled", "mapping.coerce"),
    *("mapping.ignore_malformed", "load_fixed_bitset_filters_eagerly", "shard.check_on_startup"),
)


def needs_export(name: str) -> bool:
    return name == "knn" or name.startswith(_NEED_EXPORT)


MAPPING, SETTINGS, DIGEST = "mapping", "settings", "spec"
SPEC_KEYS = frozenset({MAPPING, SETTINGS, DIGEST})
"""The parts of a stored selection that are the spec."""

_SEARCH_ONLY = frozenset({"search_analyzer", "search_quote_analyzer", "meta"})
_INNER = ("properties", "fields")
_SHARDS = "number_of_shards"


def stored_spec(mapping: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec as positions keep it; empty if nothing was chosen."""
    if not mapping and not settings:
        return {}
    return {MAPPING: dict(mapping), SETTINGS: dict(settings), DIGEST: spec_digest(mapping, settings)}


def spec_digest(mapping: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """It is the same for another spelling of the same."""
    parts = [
        sorted([*key, value] for key, value in _options(_all_fields({}, mapping))),
        _settings({SETTINGS: settings}),
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def spec_changes(
    stored: Mapping[str, Any],
    current: Mapping[str, Any],
    new_fields: Collection[str] = (),
    schema: StructType | None = None,
    number_of_shards: int | None = None,
) -> dict[str, bool]:
    """Return what differs in the meaning of two specs, and whether an index can follow it in place."""
    if stored.get(DIGEST) == current.get(DIGEST):
        return {}
    changes = {}
    generated = {} if schema is None else generated_properties(schema)
    given = [spec.get(MAPPING) or {} for spec in (stored, current)]
    fields = {path for mapping in given for (path, _), _ in _options(mapping)}
    # Where nobody chose anything, a field differs only because one around it does.
    options = [_options(_all_fields(generated, mapping)) for mapping in given]
    sides = [{key: value for key, value in each if key[0] in fields} for each in options]
    for key, before, after in _differences(*sides):
        is_new = any(f"{key[0]}.".startswith(f"{field}.") for field in new_fields)
        in_place = key[1].partition(".")[0] in _SEARCH_ONLY or is_new
        changes[_change(f"{MAPPING}.{'.'.join(key)}", before, after)] = in_place
    was, now = _settings(stored), _settings(current)
    if _SHARDS in was and _SHARDS not in now and number_of_shards is not None:
        now[_SHARDS] = str(number_of_shards)
    for path, before, after in _differences(was, now):
        changes[_change(f"{SETTINGS}.{path}", before, after)] = not needs_export(path)
    return changes


def _change(path: str, *sides: Any) -> str:
    was, now = ("not set" if value is None else json.dumps(value) for value in sides)
    return f"{path} was {was}, is {now}"


def _all_fields(generated: Properties, mapping: Mapping[str, Any]) -> Properties:
    merged = deepcopy(generated)
    for path, field in flatten_mapping(mapping):
        holder, name = locate_field(merged, path)
        holder[name] = merge_field(holder.get(name, {}), field)
    return merged


def _options(properties: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[tuple[str, str], Any]]:
    """The options of all fields: values as texts, by the path of the field and the name of the option."""
    for name, field in properties.items():
        path = f"{prefix}{name}"
        if not field:
            yield (path, ""), None
        for option, value in field.items():
            if option in _INNER and isinstance(value, Mapping):
                yield from _options(value, f"{path}.")
            elif isinstance(value, Mapping) and value:
                yield from (((path, f"{option}.{inner}"), _text(each)) for inner, each in iterate_leaves(value))
            elif option == "copy_to":
                yield (path, option), copy_targets(field)  # one name, or a list
            elif (option, value) != ("type", "object"):  # the default
                yield (path, option), _text(value)


def dynamic_settings(stored: Mapping[str, Any], current: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings to change on an index in place; None resets one to OpenSearch's default."""
    return {path: now for path, _, now in _differences(_settings(stored), _settings(current)) if not needs_export(path)}


def _settings(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The settings by their dotted names, with values as OpenSearch returns them: texts."""
    return {name: _text(value) for name, value in iterate_settings(spec.get(SETTINGS) or {}) if value is not None}


def _text(value: Any) -> Any:
    """A value as OpenSearch reads it: `true` and `"true"` are the same, and so are `3` and `"3"`."""
    if isinstance(value, list):
        return [_text(item) for item in value]
    if isinstance(value, Mapping):
        return {name: _text(each) for name, each in value.items()}
    return value if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _differences(was: Mapping[Any, Any], now: Mapping[Any, Any]) -> Iterator[tuple[Any, Any, Any]]:
    for path in sorted({*was, *now}):
        if was.get(path) != now.get(path):
            yield path, was.get(path), now.get(path)
