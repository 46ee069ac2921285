"""Lists and mappings from JSON, as jobs pass them in strings; strict, and no error shows a secret; pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from icecdc_core.config.parsing.parameter_problem import parameter_problem
from icecdc_core.secrets import Properties


def parse_json_array(text: str, remedy: str) -> object:
    """The value of a string that begins like a JSON array."""
    try:
        return _json_value(text)
    except (ValueError, RecursionError) as error:
        raise parameter_problem(f"is not a JSON array: {_json_problem(error)}", remedy) from error


def parse_json_object(value: object) -> object:
    """A mapping with strings as keys, from a mapping or a JSON object."""
    remedy = 'give a JSON object, such as {"refresh_interval":"5s"}'
    if isinstance(value, str):
        try:
            value = _json_value(value)
        except (ValueError, RecursionError) as error:
            raise parameter_problem(f"is not valid JSON: {_json_problem(error)}", remedy) from None
    if not isinstance(value, Mapping) or not all(isinstance(key, str) and key.strip() for key in value):
        raise parameter_problem("is not an object", remedy)
    try:
        return json.loads(json.dumps(dict(value), allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        raise parameter_problem(
            "has a value that JSON cannot represent", "give strings, numbers, booleans, null, lists and objects"
        ) from None


def parse_properties(value: object) -> Properties:
    """A mapping of strings, from a mapping or a JSON object; numbers and booleans become strings."""
    remedy = 'give a JSON object of strings, such as {"type":"rest","uri":"http://localhost:8181"}'
    if isinstance(value, str):
        try:
            value = _json_value(value)
        except (ValueError, RecursionError) as error:
            where = f"{_json_problem(error)} (value not shown: it may hold secrets)"
            raise parameter_problem(f"is not valid JSON: {where}", remedy, show=False) from None
    if not isinstance(value, Mapping):
        raise parameter_problem(f"is a {type(value).__name__}, not an object (value not shown)", remedy, show=False)
    texts: dict[str, str] = {}
    for key, item in value.items():
        if not isinstance(key, str) or not key.strip() or not isinstance(item, (str, bool, int, float)):
            raise parameter_problem(f"has no string under {key!r} (value not shown)", remedy, show=False)
        texts[key.strip()] = str(item).lower() if isinstance(item, bool) else str(item)
    return Properties(texts)


def iterate_leaves(nested: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The values in a nested mapping by their dotted paths, in order; an empty mapping is a value."""
    for name, value in nested.items():
        if isinstance(value, Mapping) and value:
            yield from iterate_leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _json_value(text: str) -> object:
    """The value of a JSON text; a key that occurs twice and NaN are errors, as in every other form."""
    return json.loads(text, object_pairs_hook=_require_unique_keys, parse_constant=_refuse_constant)


def _require_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError("a key occurs twice")
        found[key] = value
    return found


def _refuse_constant(_: str) -> object:
    raise ValueError("NaN and Infinity are not allowed")


def _json_problem(error: ValueError | RecursionError) -> str:
    """What is wrong with a JSON text, without a part of it: it may hold secrets."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at character {error.pos}"
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error).partition(":")[0]
