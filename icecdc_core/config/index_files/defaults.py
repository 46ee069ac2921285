"""The defaults of an index file merged with what an index says: the index wins, whatever the spelling.

| defaults | index | merged |
|---|---|---|
| `settings: {index: {codec: zstd}}` | `settings: {codec: default}` | `settings: {codec: default}` |
| `number_of_shards: 2` | `settings: {number_of_shards: 3}` | `settings: {number_of_shards: 3}` |
| `mapping: {title: {type: text, analyzer: english}}` | `mapping: {title: {boost: 2}}` | all three options |
| `mapping: {title: {type: text, analyzer: english}}` | `mapping: {title: {type: keyword}}` | a plain `keyword` |
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from icecdc_core.config.parsing.json_values import iterate_leaves

_AS_PARAMETERS = ("number_of_shards", "number_of_replicas")


def with_defaults(defaults: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of an index."""
    below = dict(defaults)
    own = {name for name in _AS_PARAMETERS if name in entry}
    if isinstance(given := entry.get("settings"), Mapping):
        own |= {path.removeprefix("index.") for path, _ in iterate_leaves(given)}
        below = {name: value for name, value in below.items() if name not in _AS_PARAMETERS or name not in own}
    if isinstance(settings := below.get("settings"), Mapping):
        below["settings"] = _without(settings, own, "")
    merged = _merge_mappings(below, entry)
    if isinstance(fields := entry.get("mapping"), Mapping) and isinstance(below.get("mapping"), Mapping):
        merged["mapping"] = _merge_fields(below["mapping"], fields)
    return merged


def _without(settings: Mapping[str, Any], names: Collection[str], prefix: str) -> dict[str, Any]:
    """Nested settings without those of these dotted names."""
    left: dict[str, Any] = {}
    for name, value in settings.items():
        path = f"{prefix}{name}".removeprefix("index.")
        if isinstance(value, Mapping) and value:
            inner = _without(value, names, "" if path == "index" else f"{path}.")
            left |= {name: inner} if inner else {}
        elif path not in names:
            left[name] = value
    return left


def _merge_mappings(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        lower = below.get(key)
        merged[key] = (
            _merge_mappings(lower, value) if isinstance(lower, Mapping) and isinstance(value, Mapping) else value
        )
    return merged


def _merge_fields(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for name, field in above.items():
        lower = below.get(name)
        if isinstance(lower, Mapping) and isinstance(field, Mapping):
            merged[name] = _merge_field(lower, field)
        else:
            merged[name] = field
    return merged


def _merge_field(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """A field of another type has other options, so it keeps none of the defaults."""
    if "type" in below and "type" in above and below["type"] != above["type"]:
        return dict(above)
    merged = _merge_mappings(below, above)
    for inner in ("properties", "fields"):
        if isinstance(below.get(inner), Mapping) and isinstance(above.get(inner), Mapping):
            merged[inner] = _merge_fields(below[inner], above[inner])
    return merged
