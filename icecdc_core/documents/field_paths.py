"""Fields of a mapping by their path, as OpenSearch reads it: `place.city` is the field `city` of the object `place`.

A key may itself have dots: a column `a.b` keeps its name, and the field `a.b.c` of that struct is found inside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from icecdc_core.errors import ConfigError

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
