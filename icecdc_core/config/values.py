"""What users write, as typed values: strings, lists, JSON, durations, names and URLs."""

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, date, datetime
from functools import partial
from numbers import Integral
from typing import Any
from urllib.parse import urlsplit

from pydantic_core import PydanticCustomError

from icecdc_core.quoting import quoted
from icecdc_core.secrets import Properties, is_reference


def parameter_problem(message: str, remedy: str, *, show: bool = True) -> PydanticCustomError:
    return PydanticCustomError("refused", "{message}", {"message": message, "remedy": remedy, "show": show})


def parse_json(text: str, kind: str, remedy: str, *, show: bool = True) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        hidden = "" if show else " (value not shown: it may hold secrets)"
        raise parameter_problem(f"is not {kind}: {error}{hidden}", remedy, show=show) from None


def parse_json_object(value: object) -> object:
    remedy = 'give a JSON object, such as {"refresh_interval":"5s"}'
    value = parse_json(value, "valid JSON", remedy) if isinstance(value, str) else value
    if not isinstance(value, Mapping) or not all(isinstance(key, str) and key.strip() for key in value):
        raise parameter_problem("is not an object", remedy)
    try:
        return json.loads(json.dumps(dict(value), allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        raise parameter_problem("has a value that JSON cannot represent", remedy) from None


def parse_properties(value: object) -> Properties:
    """A mapping of strings, from a mapping or a JSON object; numbers and booleans become strings."""
    remedy = 'give a JSON object of strings, such as {"type":"rest","uri":"http://localhost:8181"}'
    value = parse_json(value, "valid JSON", remedy, show=False) if isinstance(value, str) else value
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


def iterate_settings(settings: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The settings of an index by their dotted names; they may be nested or dotted, with or without `index.`."""
    return ((path.removeprefix("index."), value) for path, value in iterate_leaves(settings))


def check_no_reference(text: str) -> str:
    """A string that is used as it is; a reference to a secret would be taken literally, so it is refused."""
    if is_reference(text):
        raise parameter_problem(
            "cannot be a reference to a secret", "give the value itself; an index file reads a variable by ${env:NAME}"
        )
    return text


def expand_path(text: str) -> str:
    path = os.path.expanduser(text)
    if path.startswith("~"):
        raise parameter_problem("is in the home folder of a user who is not known", "write the whole path")
    return path


def check_new_file(path: str) -> str:
    if os.path.exists(path):  # which refuses nothing, unlike Path
        raise parameter_problem("exists already", "name another file, or remove this one")
    if not os.path.isdir(os.path.dirname(os.path.abspath(path))):
        raise parameter_problem("is in a folder that does not exist", "make the folder, or name another file")
    return path


def _list_of(kind: str, value: object, remedy: str, split: Callable[[str], list[str]]) -> list[str]:
    if isinstance(value, str):
        value = parse_json(value, "a JSON array", remedy) if value.startswith("[") else split(value)
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) and item.strip() for item in value):
        raise parameter_problem(f"is not a list of {kind}", remedy)
    return list(value)


def parse_column_names(value: object) -> list[str]:
    remedy = 'give a list, a JSON array such as ["a","b"], or a,b, each column once'
    names = _list_of("column names", value, remedy, lambda text: [name.strip() for name in text.split(",")])
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise parameter_problem(f"names columns twice: {', '.join(twice)}", remedy)
    return names


def parse_expressions(value: object) -> list[str]:
    remedy = 'give strings as DataFrame.selectExpr takes them, such as ["* EXCEPT (email)", "lower(name) AS name"]'
    return [item.strip() for item in _list_of("expressions", value, remedy, lambda text: [text])]


def parse_start_point(text: str) -> str | int | datetime | None:
    if text.lower() in ("", "latest", "earliest"):
        return text.lower() or None
    try:
        if not re.fullmatch(r"-?\d+", text):
            moment = datetime.fromisoformat(text.upper())
            # The time in UTC can be before year 1 or after year 9999, which Python cannot represent.
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
        if -(2**63) <= int(text) < 2**63:
            return int(text)
    except (ValueError, OverflowError):
        pass
    raise parameter_problem(
        "is neither latest, earliest, a snapshot id nor an ISO timestamp",
        "write for example latest or 2026-01-31T12:00:00Z (UTC when no zone is given)",
    )


def parse_start_from(value: object) -> object:
    if isinstance(value, date):
        value = value.isoformat()
    text = value if isinstance(value, bool) or not isinstance(value, Integral) else str(value)
    if isinstance(text, str):
        parse_start_point(text)
    return text


def check_part(text: str) -> str:
    match = re.fullmatch(r"(\d{1,4})/(\d{1,4})", text)
    if text not in ("", "auto") and not (match and 1 <= int(match[1]) <= int(match[2])):
        raise parameter_problem(
            "is neither auto nor a part such as 3/100", "write auto, or the number of a part/of all"
        )
    return "" if match and int(match[2]) == 1 else text


_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

MAX_LEASE_SECONDS = 3600.0  # how long an index may stay locked after a run died on another machine


def parse_duration(value: object) -> object:
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)\s*", value.lower()) if isinstance(value, str) else None
    return float(match[1]) * _UNIT_SECONDS[match[2]] if match else value


_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_INDEX_FORBIDDEN = re.compile(r'^[-_+]|^\.\.?$|[\\/*?"<>|\s,#:\x00-\x1f\x7f]')
_MAX_INDEX_BYTES = 255
# The physical index and its write alias are named after the index: `<index>--<epoch of up to 19 digits>--WRITE`.
MAX_TARGET_BYTES = _MAX_INDEX_BYTES - len(f"--{2**63 - 1}--WRITE")
_PART = r"(?:`(?:[^`]|``)+`|[^`.\s]+)"
_TABLE = re.compile(rf"(`?)[A-Za-z0-9_-]+\1(?:\.{_PART}){{2,}}")


def split_table_name(text: str) -> tuple[str, ...]:
    """Split `catalog.namespace.table`, any part back-quoted, into its parts without the quotes."""
    quoted = re.findall(_PART, text) if _TABLE.fullmatch(text) else []
    parts = [part[1:-1].replace("``", "`") if part.startswith("`") else part for part in quoted]
    if not parts or any(not part.strip() or _CONTROL.search(part) for part in parts):
        raise parameter_problem(
            "must have three parts: catalog.namespace.table",
            "name it as Spark does, the catalog in letters, digits, _ and -, other parts with dots or blanks in "
            "back-quotes",
        )
    return tuple(parts)


def join_table_name(parts: Iterable[str]) -> str:
    """The one spelling of a name: back-quotes only where a part needs them."""
    return ".".join(part if re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", part) else quoted(part) for part in parts)


def check_table_name(text: str) -> str:
    return join_table_name(split_table_name(text)) if text else text


def check_namespace(text: str) -> str:
    """A namespace with its catalog, or a table in it; or an empty string."""
    try:
        check_table_name(text and f"{text}.any")
    except PydanticCustomError:
        raise parameter_problem("must begin with catalog.namespace", "name it as Spark does") from None
    return text


def check_index_name(text: str, max_bytes: int = _MAX_INDEX_BYTES) -> str:
    if text != text.lower() or _INDEX_FORBIDDEN.search(text) or len(text.encode()) > max_bytes:
        raise parameter_problem(
            "is not a name that OpenSearch accepts for an index",
            f"use lower-case letters, digits, - and _, up to {max_bytes} bytes; start with a letter or digit",
        )
    return text


def check_url(text: str) -> str:
    try:
        parts = urlsplit(text)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False
    secret = re.search("[@?#]", text) is not None
    if text and (not is_valid or secret or re.search(r"\s", text)):
        raise parameter_problem(
            f"is not an http or https URL without credentials and query{' (value not shown)' if secret else ''}",
            "write it as http://host:port or https://host:port; user name and password are parameters of their own",
            show=not secret,
        )
    scheme, colon, rest = text.partition(":")
    return scheme.lower() + colon + rest.rstrip("/")


def check_urls(given: Properties, prefix: str = "") -> Properties:
    # Clients repeat the URL in errors and logs, and Spark shows it in its settings.
    credentials = r"(?is)\s*https?://.*@"
    if found := [name for name, value in given.items() if name.startswith(prefix) and re.match(credentials, value)]:
        raise parameter_problem(
            f"must not carry credentials in a URL, as {', '.join(map(repr, found))} does (value not shown)",
            "write the URL as https://host:port/path, and give credential or token (for other catalogs their own "
            "property) as env:NAME or secret:scope/key",
            show=False,
        )
    return given


check_spark_conf = partial(check_urls, prefix="spark.sql.catalog.")
