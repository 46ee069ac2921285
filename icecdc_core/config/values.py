"""What users write, as typed values: strings, lists, JSON, durations, names and URLs.

In: the value of a parameter. Out: the typed value, or an error that names what is wrong and the remedy.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from typing import Any
from urllib.parse import urlsplit

from pydantic_core import PydanticCustomError

from icecdc_core.secrets import Properties, is_reference


def parameter_problem(message: str, remedy: str, *, show: bool = True) -> PydanticCustomError:
    """The problem with a value."""
    return PydanticCustomError("refused", "{message}", {"message": message, "remedy": remedy, "show": show})


def _loaded(text: str, kind: str, remedy: str, *, show: bool = True) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:  # its text would repeat a part of the value, which may be a secret
        reason = f"{error.msg} at character {error.pos}" if isinstance(error, json.JSONDecodeError) else str(error)
        hidden = "" if show else " (value not shown: it may hold secrets)"
        raise parameter_problem(f"is not {kind}: {reason.partition(':')[0]}{hidden}", remedy, show=show) from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) != len(pairs):
        raise ValueError("a key occurs twice")
    return found


def parse_json_array(text: str, remedy: str) -> object:
    """The value of a string that begins like a JSON array."""
    return _loaded(text, "a JSON array", remedy)


def parse_json_object(value: object) -> object:
    """A mapping with strings as keys, from a mapping or a JSON object."""
    remedy = 'give a JSON object, such as {"refresh_interval":"5s"}'
    value = _loaded(value, "valid JSON", remedy) if isinstance(value, str) else value
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
    value = _loaded(value, "valid JSON", remedy, show=False) if isinstance(value, str) else value
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


def check_secret_reference(text: str) -> str:
    """A reference to a secret, or an empty string; a secret itself is refused and not shown."""
    if text and not is_reference(text):
        raise parameter_problem(
            "must be a reference to a secret, not the secret itself (value not shown)",
            "use env:NAME (environment variable) or secret:scope/key (Databricks secret)",
            show=False,
        )
    return text


def check_no_reference(text: str) -> str:
    """A string that is used as it is; a reference to a secret would be taken literally, so it is refused."""
    if is_reference(text):
        raise parameter_problem(
            "cannot be a reference to a secret", "give the value itself; an index file reads a variable by ${env:NAME}"
        )
    return text


def parse_column_names(value: object) -> object:
    """Column names from a list, a JSON array or a comma-separated string; no blank names, no duplicates."""
    names: object = value
    if isinstance(value, str):
        is_array = value.startswith("[")
        names = parse_json_array(value, 'write ["a","b"] or a,b') if is_array else [n.strip() for n in value.split(",")]
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise parameter_problem("is not a list of column names", 'give a list, a JSON array such as ["a","b"], or a,b')
    if any(not name.strip() for name in names):
        raise parameter_problem("has a blank column name", "remove it; an empty list means all columns or the default")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise parameter_problem(f"names columns twice: {', '.join(twice)}", "name each column once")
    return list(names)


def parse_expressions(value: object) -> object:
    """Spark SQL expressions from a list, a JSON array or one string."""
    remedy = (
        'give a list of strings as DataFrame.selectExpr takes them, such as ["* EXCEPT (email)", "lower(name) AS name"]'
    )
    if isinstance(value, str):
        value = parse_json_array(value, remedy) if value.startswith("[") else [value]
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) and item.strip() for item in value):
        raise parameter_problem("is not a list of expressions", remedy)
    return [item.strip() for item in value]


def parse_start_point(text: str) -> str | int | datetime | None:
    """The meaning of `start_from`: None, `latest`, `earliest`, a snapshot id or a time in UTC."""
    if text.lower() in ("", "latest", "earliest"):
        return text.lower() or None
    if re.fullmatch(r"-?\d+", text):
        if len(text) > 20 or not -(2**63) <= int(text) < 2**63:
            raise parameter_problem("has too many digits for a snapshot id", "take the id from the table's snapshots")
        return int(text)
    try:
        moment = datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", text))
        # The time in UTC can be before year 1 or after year 9999, which Python cannot represent.
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise parameter_problem(
            "is neither latest, earliest, a snapshot id nor an ISO timestamp",
            "write for example latest or 2026-01-31T12:00:00Z (UTC when no zone is given)",
        ) from None


def parse_start_from(value: object) -> object:
    """`start_from` as a checked string; a number is a snapshot id, a date or datetime a time."""
    if isinstance(value, date):
        value = value.isoformat()
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if isinstance(text, str):
        parse_start_point(text)
    return text


def to_lower_case(value: Any) -> Any:
    """A choice in lower case: choices may be written in any case."""
    return value.lower() if isinstance(value, str) else value


UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

MAX_LEASE_SECONDS = 3600.0
"""The longest lease: how long an index stays locked after a run died on another machine."""


def parse_seconds(text: str, units: Mapping[str, float] = UNIT_SECONDS) -> float | None:
    """Return the seconds of a number with a unit, in any case; None if the text is no such duration."""
    match = re.fullmatch(rf"(\d+(?:\.\d+)?)\s*({'|'.join(units)})", text.strip().lower())
    return float(match[1]) * units[match[2]] if match else None


def parse_duration(value: object) -> object:
    """A number of seconds, from a number or a text such as 500ms, 10s, 5m, 1h or 1d; any other value as it is."""
    seconds = parse_seconds(value) if isinstance(value, str) else None
    return value if seconds is None else seconds


_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_INDEX_FORBIDDEN = re.compile(r'^[-_+]|^\.\.?$|[\\/*?"<>|\s,#:\x00-\x1f\x7f]')
_MAX_INDEX_BYTES = 255
# The physical index and its write alias are named after the index: `<index>--<epoch of up to 19 digits>--write`.
MAX_TARGET_BYTES = _MAX_INDEX_BYTES - len(f"--{2**63 - 1}--write")
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


def check_table_name(text: str) -> str:
    """A table name with at least three parts, or an empty string."""
    if text:
        split_table_name(text)
    return text


def check_index_name(text: str, max_bytes: int = _MAX_INDEX_BYTES) -> str:
    """A name that OpenSearch accepts for an index."""
    if text != text.lower() or _INDEX_FORBIDDEN.search(text) or len(text.encode()) > max_bytes:
        raise parameter_problem(
            "is not a name that OpenSearch accepts for an index",
            f"use lower-case letters, digits, - and _, up to {max_bytes} bytes; start with a letter or digit",
        )
    return text


def check_target_index_name(text: str) -> str:
    """The name of an index, short enough for the longer names of its physical indexes."""
    return check_index_name(text, MAX_TARGET_BYTES)


def check_plain_name(text: str) -> str:
    """A name that is not blank and has no control characters."""
    if not text or _CONTROL.search(text):
        raise parameter_problem("is blank or has control characters", "give the name as the table's metadata has it")
    return text


_SERVERLESS_HOST = re.compile(r"\.aoss\.([^/]+\.)?(amazonaws\.com|amazonaws\.com\.cn|on\.aws|api\.aws)")
CATALOG_SETTINGS = "spark.sql.catalog."
URL_REMEDY = (
    "write the URL as https://host:port/path, and give credential or token (for other catalogs their own property) as "
    "env:NAME or secret:scope/key"
)


def check_url(text: str) -> str:
    """An http(s) URL of a node or load balancer, without credentials; or an empty string."""
    remedy = "write it as http://host:port or https://host:port"
    if "@" in text:
        remedy = f"{remedy}, and use the parameters for user name and password"
        raise parameter_problem("must not carry credentials (value not shown)", remedy, show=False)
    try:
        parts = urlsplit(text)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False
    if text and (not is_valid or re.search(r"\s", text)):
        raise parameter_problem("is not an http or https URL", remedy)
    if text and (parts.query or parts.fragment):
        raise parameter_problem("has a query or fragment", remedy, show=False)
    return text.rstrip("/")


def check_cluster_url(text: str) -> str:
    """A URL as `check_url` checks it, and not of OpenSearch Serverless."""
    url = check_url(text)
    if _SERVERLESS_HOST.search(f".{urlsplit(url).hostname}"):
        raise parameter_problem(
            "is for OpenSearch Serverless (aoss), which is not supported: it has neither _refresh nor GET /, so an "
            "index could be written there but never proven equal to its table",
            "use a domain of Amazon OpenSearch Service (opensearch_aws_service=es) or any other OpenSearch cluster",
        )
    return url


def check_catalog_properties(given: Properties) -> Properties:
    """Catalog properties, refused when a URL has credentials in it."""
    return _without_credentials(given)


def check_spark_conf(given: Properties) -> Properties:
    """Spark settings, refused when a URL of a catalog has credentials in it."""
    return _without_credentials(given, CATALOG_SETTINGS)


def find_urls_with_credentials(given: Mapping[str, str], prefix: str = "") -> list[str]:
    """Find http(s) URLs with a user or a password in them."""
    # Clients repeat the URL in errors and logs, and Spark shows it in its settings.
    credentials = re.compile(r"\s*https?://.*@", re.IGNORECASE | re.DOTALL)
    return [name for name, value in given.items() if name.startswith(prefix) and credentials.match(value)]


def _without_credentials(given: Properties, prefix: str = "") -> Properties:
    if found := find_urls_with_credentials(given, prefix):
        raise parameter_problem(
            f"must not carry credentials in a URL, as {', '.join(map(repr, found))} does (value not shown)",
            URL_REMEDY,
            show=False,
        )
    return given
