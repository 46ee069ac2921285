"""The spec of an index: the mapping and settings that its user chose, and which changes of them leave it right.

| change | indexed documents | what a sync does |
|---|---|---|
| a dynamic setting, such as `refresh_interval` | stay right | sets it |
| `search_analyzer`, `search_quote_analyzer` or `meta` of a field | stay right | sets it |
| the mapping of a column that the table got since | have no such field | adds it |
| a type, an analyzer, a multi-field, a pipeline, a static setting, ... | are wrong | follows `on_schema_change` |
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from icecdc_core.config.values import leaves

MAPPING, SETTINGS, DIGEST = "mapping", "settings", "spec"
SPEC_KEYS = frozenset({MAPPING, SETTINGS, DIGEST})
"""The parts of a stored selection that are the spec."""

_SEARCH_ONLY = frozenset({"search_analyzer", "search_quote_analyzer", "meta"})
# Settings that OpenSearch changes on an open index, and that change no document.
_DYNAMIC = frozenset(
    {
        *("number_of_replicas", "auto_expand_replicas", "refresh_interval", "gc_deletes", "priority"),
        *("max_result_window", "max_inner_result_window", "max_rescore_window", "max_docvalue_fields_search"),
        *("max_script_fields", "max_ngram_diff", "max_shingle_diff", "max_refresh_listeners", "max_terms_count"),
        *("max_regex_length", "analyze.max_token_count", "highlight.max_analyzed_offset", "query.default_field"),
        *("mapping.total_fields.limit", "mapping.depth.limit", "mapping.nested_fields.limit"),
        *("mapping.nested_objects.limit", "mapping.field_name_length.limit", "search.idle.after"),
        *("knn.algo_param.ef_search", "search.default_pipeline"),
    }
)
_DYNAMIC_PARTS = ("routing.allocation.", "search.slowlog.", "indexing.slowlog.", "merge.policy.", "unassigned.")


@dataclass(frozen=True)
class SpecChange:
    """A difference between the spec that an index was built with and the current one.

    Attributes:
        path: Where it is, such as `mapping.title.analyzer`.
        was: The value that the index was built with; None: there was none.
        now: The current value; None: there is none.
        in_place: Whether every document that is already indexed stays right.
    """

    path: str
    was: Any
    now: Any
    in_place: bool

    def __str__(self) -> str:
        texts = ["not set" if value is None else json.dumps(value) for value in (self.was, self.now)]
        return f"{self.path} was {texts[0]}, is {texts[1]}"


def stored_spec(mapping: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec as positions keep it; empty if nothing was chosen, as in positions of older releases.

    Args:
        mapping: The mapping of fields that the user chose.
        settings: The index settings that the user chose.
    """
    if not mapping and not settings:
        return {}
    return {MAPPING: dict(mapping), SETTINGS: dict(settings), DIGEST: digest(mapping, settings)}


def digest(mapping: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """Return a digest that differs if the spec means something else.

    Args:
        mapping: The mapping of fields that the user chose.
        settings: The index settings that the user chose; their order and spelling make no difference.
    """
    parts = [dict(leaves(mapping)), _settings({SETTINGS: settings})]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def spec_changes(
    stored: Mapping[str, Any], current: Mapping[str, Any], new_columns: Collection[str] = ()
) -> list[SpecChange]:
    """Compare two specs, as ``stored_spec`` returns them; parts of a selection that are no spec do not matter.

    Args:
        stored: The spec that the index was built with.
        current: The spec now.
        new_columns: Fields that no indexed document has yet.
    """
    if stored.get(DIGEST) == current.get(DIGEST):
        return []
    changes = []
    was, now = (dict(_options(each.get(MAPPING) or {})) for each in (stored, current))
    search_only = {path for path, option in (*was, *now) if option in _SEARCH_ONLY}
    for path, before, after in _differences(
        *({path: each[path, option] for path, option in each} for each in (was, now))
    ):
        in_place = path.partition(".")[0] in new_columns or path in search_only
        changes.append(SpecChange(f"{MAPPING}.{path}", before, after, in_place))
    for path, was, now in _differences(_settings(stored), _settings(current)):
        changes.append(SpecChange(f"{SETTINGS}.{path}", was, now, _is_dynamic(path)))
    return changes


def _options(fields: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[tuple[str, str], Any]]:
    """The options of all fields: each value by its path and the name of its option, which a field may have too."""
    for name, field in fields.items():
        if not isinstance(field, Mapping) or not field:
            yield (f"{prefix}{name}", ""), field
            continue
        for option, value in field.items():
            path = f"{prefix}{name}.{option}"
            if option in ("properties", "fields") and isinstance(value, Mapping) and value:
                yield from _options(value, f"{path}.")
            else:
                yield from (((path + inner, option), each) for inner, each in _inside(value))


def _inside(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        yield from ((f".{path}", each) for path, each in leaves(value))
    else:
        yield "", value


def dynamic_settings(stored: Mapping[str, Any], current: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings to change on an index in place; None resets one to OpenSearch's default.

    Args:
        stored: The spec that the index was built with.
        current: The spec now.
    """
    return {path: now for path, _, now in _differences(_settings(stored), _settings(current)) if _is_dynamic(path)}


def _settings(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The settings by their dotted names without `index.`, with values as OpenSearch returns them: texts."""
    return {
        name.removeprefix("index."): [_text(item) for item in value] if isinstance(value, list) else _text(value)
        for name, value in leaves(spec.get(SETTINGS) or {})
        if value is not None
    }


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_dynamic(path: str) -> bool:
    return path in _DYNAMIC or path.startswith(_DYNAMIC_PARTS)


def _differences(was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    for path in sorted(was.keys() | now.keys()):
        if was.get(path) != now.get(path):
            yield path, was.get(path), now.get(path)
