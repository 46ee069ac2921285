"""Checks and conversions of single parameter values, from strings as jobs pass them; pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import Any

from pydantic_core import PydanticCustomError

from icecdc_core.secrets import Properties, is_reference

_INDEX_FORBIDDEN = re.compile(r'[\\/*?"<>|\s,#:]')
_TABLE_PART = re.compile(r"`((?:[^`]|``)+)`|([^`.\s]+)")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(rf"(?P<number>\d+(\.\d+)?)\s*(?P<unit>{'|'.join(UNIT_SECONDS)})")
_MAX_INDEX_BYTES = 255
# The physical index and its write alias are named after the index: `<index>--<epoch of up to 19 digits>--write`.
MAX_TARGET_BYTES = _MAX_INDEX_BYTES - len(f"--{2**63 - 1}--write")

MAX_LEASE_SECONDS = 3600.0
"""The longest lease: how long an index stays locked after a run died on another machine."""


def refused(message: str, remedy: str, *, show: bool = True) -> PydanticCustomError:
    """The problem with a value.

    Args:
        message: What is wrong, as the end of a sentence that begins with the parameter.
        remedy: What to do.
        show: Whether messages may show the value.
    """
    return PydanticCustomError("refused", "{message}", {"message": message, "remedy": remedy, "show": show})


def table_parts(text: str) -> tuple[str, ...]:
    """Split `catalog.namespace.table`, any part back-quoted, into its parts without the quotes.

    Raises:
        PydanticCustomError: The text is no table name, or has fewer than three parts or an unusable one.
    """
    remedy = "name it catalog.namespace.table, as Spark does; put parts with dots or blanks in back-quotes"
    parts: list[str] = []
    rest = text
    while True:
        match = _TABLE_PART.match(rest)
        if match is None:
            raise refused("is not a table name", remedy)
        parts.append(match[1].replace("``", "`") if match[1] else match[2])
        rest = rest[match.end() :]
        if not rest:
            break
        if not rest.startswith("."):
            raise refused("is not a table name", remedy)
        rest = rest[1:]
    if len(parts) < 3:
        raise refused("must have three parts: catalog.namespace.table", remedy)
    if not re.fullmatch(r"[A-Za-z0-9_-]+", parts[0]):
        raise refused("has a catalog name Spark cannot be configured with", "use letters, digits, _ and -")
    if any(not part.strip() or _CONTROL.search(part) for part in parts):
        raise refused("has a blank name part or one with control characters", remedy)
    return tuple(parts)


def table_name(text: str) -> str:
    """A table name with at least three parts.

    Raises:
        PydanticCustomError: The text is no such name.
    """
    table_parts(text)
    return text


def optional_table_name(text: str) -> str:
    """A table name with at least three parts, or an empty string.

    Raises:
        PydanticCustomError: The text is neither.
    """
    return table_name(text) if text else text


def index_name(text: str, max_bytes: int = _MAX_INDEX_BYTES) -> str:
    """A name that OpenSearch accepts for an index.

    Args:
        text: The name.
        max_bytes: How long the name may be in UTF-8; OpenSearch allows 255 bytes.

    Raises:
        PydanticCustomError: OpenSearch would refuse the name.
    """
    wrong = ""
    if text != text.lower():
        wrong = "has upper-case letters"
    elif found := _INDEX_FORBIDDEN.search(text):
        wrong = f"contains {found[0]!r}"
    elif text.startswith(("_", "-", "+")):
        wrong = f"starts with {text[0]!r}"
    elif text in (".", "..") or _CONTROL.search(text):
        wrong = "is not a name"
    elif len(text.encode()) > max_bytes:
        wrong = f"is longer than {max_bytes} bytes"
    if wrong:
        raise refused(
            f"{wrong}, which OpenSearch refuses in an index name",
            f"use lower-case letters, digits, - and _, up to {max_bytes} bytes; start with a letter or digit",
        )
    return text


def target_index_name(text: str) -> str:
    """The name of an index, short enough for the longer names of its physical indexes.

    Raises:
        PydanticCustomError: OpenSearch would refuse the name, or that of a physical index.
    """
    return index_name(text, MAX_TARGET_BYTES)


def secret_reference(text: str) -> str:
    """A reference to a secret, or an empty string; a secret itself is refused and not shown.

    Raises:
        PydanticCustomError: The text is neither.
    """
    if text and not is_reference(text):
        raise refused(
            "must be a reference to a secret, not the secret itself (value not shown)",
            "use env:NAME (environment variable) or secret:scope/key (Databricks secret)",
            show=False,
        )
    return text


def no_reference(text: str) -> str:
    """A string that is used as it is; a reference to a secret would be taken literally, so it is refused.

    Raises:
        PydanticCustomError: The string is a reference.
    """
    if is_reference(text):
        raise refused("takes no reference", "give the value itself; an index file reads a variable by ${env:NAME}")
    return text


def column_names(value: object) -> object:
    """Column names from a list, a JSON array or a comma-separated string; no blank names, no duplicates.

    Raises:
        PydanticCustomError: The value is no such list, or has a blank name or the same name twice.
    """
    names: object = value
    if isinstance(value, str):
        is_array = value.startswith("[")
        names = json_array(value, 'write ["a","b"] or a,b') if is_array else [n.strip() for n in value.split(",")]
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise refused("is not a list of column names", 'give a list, a JSON array such as ["a","b"], or a,b')
    if any(not name.strip() for name in names):
        raise refused("has a blank column name", "remove it; an empty list means all columns or the default")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise refused(f"names columns twice: {', '.join(twice)}", "name each column once")
    return list(names)


def json_array(text: str, remedy: str) -> object:
    """The value of a string that begins like a JSON array.

    Args:
        text: The string.
        remedy: How to write the parameter, for the error.

    Raises:
        PydanticCustomError: The string is not valid JSON, has a key twice, or has NaN or Infinity.
    """
    try:
        return _json_value(text)
    except (ValueError, RecursionError) as error:
        raise refused(f"is not a JSON array: {_json_problem(error)}", remedy) from error


def _json_value(text: str) -> object:
    """The value of a JSON text; a key that is there twice and NaN are errors, as in every other form."""
    return json.loads(text, object_pairs_hook=_with_keys_once, parse_constant=_no_constant)


def _with_keys_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError("a key is there twice")
        found[key] = value
    return found


def _no_constant(_: str) -> object:
    raise ValueError("NaN and Infinity are no JSON")


def _json_problem(error: ValueError | RecursionError) -> str:
    """What is wrong with a JSON text, without a part of it: it may hold secrets."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at character {error.pos}"
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error).partition(":")[0]


def properties(value: object) -> Properties:
    """A mapping of strings, from a mapping or a JSON object; numbers and booleans become strings.

    Raises:
        PydanticCustomError: The value is no such mapping. The error does not show it, because it may hold secrets.
    """
    remedy = 'give a JSON object of strings, such as {"type":"rest","uri":"http://localhost:8181"}'
    if isinstance(value, str):
        try:
            value = _json_value(value)
        except (ValueError, RecursionError) as error:
            where = f"{_json_problem(error)} (value not shown: it may hold secrets)"
            raise refused(f"is not valid JSON: {where}", remedy, show=False) from None
    if not isinstance(value, Mapping):
        raise refused(f"is a {type(value).__name__}, not an object (value not shown)", remedy, show=False)
    texts: dict[str, str] = {}
    for key, item in value.items():
        if not isinstance(key, str) or not key.strip() or not isinstance(item, (str, bool, int, float)):
            raise refused(f"has no string under {key!r} (value not shown)", remedy, show=False)
        texts[key.strip()] = str(item).lower() if isinstance(item, bool) else str(item)
    return Properties(texts)


def expressions(value: object) -> object:
    """Spark SQL expressions from a list, a JSON array or one string; or a function from frame to frame.

    Raises:
        PydanticCustomError: The value is none of these, or has a blank expression.
    """
    remedy = (
        'give a list of strings as DataFrame.selectExpr takes them, such as ["* EXCEPT (email)", "lower(name) AS name"]'
    )
    if callable(value):
        return value
    if isinstance(value, str):
        value = json_array(value, remedy) if value.startswith("[") else [value]
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
        raise refused("is not a list of expressions", remedy)
    if any(not item.strip() for item in value):
        raise refused("has a blank expression", "remove it")
    return [item.strip() for item in value]


def json_object(value: object) -> object:
    """A mapping with strings as keys, from a mapping or a JSON object.

    Raises:
        PydanticCustomError: The value is no such mapping.
    """
    remedy = 'give a JSON object, such as {"refresh_interval":"5s"}'
    if isinstance(value, str):
        try:
            value = _json_value(value)
        except (ValueError, RecursionError) as error:
            raise refused(f"is not valid JSON: {_json_problem(error)}", remedy) from None
    if not isinstance(value, Mapping) or not all(isinstance(key, str) and key.strip() for key in value):
        raise refused("is not an object", remedy)
    try:
        return json.loads(json.dumps(dict(value), allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        raise refused(
            "has a value that is no JSON", "give strings, numbers, booleans, null, lists and objects"
        ) from None


def leaves(nested: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The values in a nested mapping by their dotted paths, in order; an empty mapping is a value.

    Args:
        nested: The mapping.
        prefix: What every path begins with, such as `mapping.`.
    """
    for name, value in nested.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def duration(value: object) -> object:
    """A number of seconds, from a number or a text such as 500ms, 10s, 5m, 1h or 1d."""
    match = _DURATION.fullmatch(value.strip().lower()) if isinstance(value, str) else None
    return float(match["number"]) * UNIT_SECONDS[match["unit"]] if match else value


def reserved(value: object) -> object:
    """The value of a parameter that this release does not support: an empty one.

    Raises:
        PydanticCustomError: The value is not empty.
    """
    if value:
        raise refused("is not supported by this release", "leave it out")
    return ""


def start_point(text: str) -> str | int | datetime | None:
    """The meaning of `start_from`: None, `latest`, `earliest`, a snapshot id or a time in UTC.

    Raises:
        PydanticCustomError: The text is none of these, or a number that no snapshot id can be.
    """
    if text.lower() in ("", "latest", "earliest"):
        return text.lower() or None
    if re.fullmatch(r"-?\d+", text):
        if len(text) > 20 or not -(2**63) <= int(text) < 2**63:
            raise refused("has too many digits for a snapshot id", "take the id from the table's snapshots")
        return int(text)
    try:
        moment = datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", text))
        # The time in UTC can be before year 1 or after year 9999, which Python cannot represent.
        return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).astimezone(timezone.utc)
    except (ValueError, OverflowError):
        raise refused(
            "is neither latest, earliest, a snapshot id nor an ISO timestamp",
            "write for example latest or 2026-01-31T12:00:00Z (UTC when no zone is given)",
        ) from None


def start_text(value: object) -> object:
    """`start_from` as a checked string; a number is a snapshot id, a datetime a time.

    Raises:
        PydanticCustomError: `start_point` refuses the string.
    """
    if isinstance(value, datetime):
        value = value.isoformat()
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if isinstance(text, str):
        start_point(text)
    return text


def plain_name(text: str) -> str:
    """A name that is not blank and has no control characters.

    Raises:
        PydanticCustomError: The name is empty or has control characters.
    """
    if not text or _CONTROL.search(text):
        raise refused("is blank or has control characters", "give the name as the table's metadata has it")
    return text


def lower_case(value: Any) -> Any:
    """A choice in lower case: choices may be written in any case."""
    return value.lower() if isinstance(value, str) else value
