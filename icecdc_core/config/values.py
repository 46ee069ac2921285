"""What users write, as typed values: strings, lists, JSON, durations, names and URLs.

In: the value of a parameter. Out: the typed value, or an error that names what is wrong and the remedy.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from pydantic_core import PydanticCustomError

from icecdc_core.secrets import Properties, is_reference


def parameter_problem(message: str, remedy: str, *, show: bool = True) -> PydanticCustomError:
    """The problem with a value."""
    return PydanticCustomError("refused", "{message}", {"message": message, "remedy": remedy, "show": show})


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
    """Spark SQL expressions from a list, a JSON array or one string; or a function from frame to frame."""
    remedy = (
        'give a list of strings as DataFrame.selectExpr takes them, such as ["* EXCEPT (email)", "lower(name) AS name"]'
    )
    if callable(value):
        return value
    if isinstance(value, str):
        value = parse_json_array(value, remedy) if value.startswith("[") else [value]
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
        raise parameter_problem("is not a list of expressions", remedy)
    if any(not item.strip() for item in value):
        raise parameter_problem("has a blank expression", "remove it")
    return [item.strip() for item in value]


def check_reserved(value: object) -> object:
    """The value of a parameter that this release does not support: an empty one."""
    if value:
        raise parameter_problem("is not supported by this release", "leave it out")
    return ""


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
    """`start_from` as a checked string; a number is a snapshot id, a datetime a time."""
    if isinstance(value, datetime):
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


_INDEX_FORBIDDEN = re.compile(r'[\\/*?"<>|\s,#:]')
_TABLE_PART = re.compile(r"`((?:[^`]|``)+)`|([^`.\s]+)")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_MAX_INDEX_BYTES = 255
# The physical index and its write alias are named after the index: `<index>--<epoch of up to 19 digits>--write`.
MAX_TARGET_BYTES = _MAX_INDEX_BYTES - len(f"--{2**63 - 1}--write")


def split_table_name(text: str) -> tuple[str, ...]:
    """Split `catalog.namespace.table`, any part back-quoted, into its parts without the quotes."""
    remedy = "name it catalog.namespace.table, as Spark does; put parts with dots or blanks in back-quotes"
    parts: list[str] = []
    rest = text
    while True:
        match = _TABLE_PART.match(rest)
        if match is None:
            raise parameter_problem("is not a table name", remedy)
        parts.append(match[1].replace("``", "`") if match[1] else match[2])
        rest = rest[match.end() :]
        if not rest:
            break
        if not rest.startswith("."):
            raise parameter_problem("is not a table name", remedy)
        rest = rest[1:]
    if len(parts) < 3:
        raise parameter_problem("must have three parts: catalog.namespace.table", remedy)
    if not re.fullmatch(r"[A-Za-z0-9_-]+", parts[0]):
        raise parameter_problem("has a catalog name Spark cannot be configured with", "use letters, digits, _ and -")
    if any(not part.strip() or _CONTROL.search(part) for part in parts):
        raise parameter_problem("has a blank name part or one with control characters", remedy)
    return tuple(parts)


def check_table_name(text: str) -> str:
    """A table name with at least three parts."""
    split_table_name(text)
    return text


def check_optional_table_name(text: str) -> str:
    """A table name with at least three parts, or an empty string."""
    return check_table_name(text) if text else text


def check_index_name(text: str, max_bytes: int = _MAX_INDEX_BYTES) -> str:
    """A name that OpenSearch accepts for an index."""
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
        raise parameter_problem(
            f"{wrong}, which OpenSearch refuses in an index name",
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
    """An http(s) URL of a node or load balancer, without credentials."""
    remedy = "write it as http://host:port or https://host:port"
    if "@" in text:
        raise parameter_problem(
            "must not carry credentials (value not shown)",
            f"{remedy}, and use opensearch_username and opensearch_password",
            show=False,
        )
    try:
        parts = urlsplit(text)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid or re.search(r"\s", text):
        raise parameter_problem("is not an http or https URL", remedy)
    if parts.query or parts.fragment:
        raise parameter_problem("has a query or fragment", remedy, show=False)
    return text.rstrip("/")


def check_cluster_url(text: str) -> str:
    """A URL as `check_url` checks it, and not of OpenSearch Serverless."""
    url = check_url(text)
    if _SERVERLESS_HOST.search(f".{urlsplit(url).hostname}"):
        raise _serverless_problem()
    return url


def check_aws_service(value: Any) -> Any:
    """The service to sign requests for; Serverless is refused with the reason."""
    if value == "aoss":
        raise _serverless_problem()
    return value


def _serverless_problem() -> PydanticCustomError:
    return parameter_problem(
        "is for OpenSearch Serverless (aoss), which is not supported: it has neither _refresh nor GET /, so an index "
        "could be written there but never proven equal to its table",
        "use a domain of Amazon OpenSearch Service (opensearch_aws_service=es) or any other OpenSearch cluster",
    )


def check_optional_url(text: str) -> str:
    """A URL as `check_url` checks it, or an empty string."""
    return check_url(text) if text else text


def check_catalog_properties(given: Properties) -> Properties:
    """Catalog properties, refused when a URL has credentials in it."""
    return _without_credentials(given, find_urls_with_credentials(given))


def check_spark_conf(given: Properties) -> Properties:
    """Spark settings, refused when a URL of a catalog has credentials in it."""
    return _without_credentials(given, find_urls_with_credentials(given, CATALOG_SETTINGS))


def find_urls_with_credentials(given: Mapping[str, str], prefix: str = "") -> list[str]:
    """Find http(s) URLs with a user or a password in them."""
    # Clients repeat the URL in errors and logs, and Spark shows it in its settings.
    credentials = re.compile(r"\s*https?://.*@", re.IGNORECASE | re.DOTALL)
    return [name for name, value in given.items() if name.startswith(prefix) and credentials.match(value)]


def _without_credentials(given: Properties, found: Sequence[str]) -> Properties:
    if found:
        raise parameter_problem(
            f"must not carry credentials in a URL, as {', '.join(map(repr, found))} does (value not shown)",
            URL_REMEDY,
            show=False,
        )
    return given
