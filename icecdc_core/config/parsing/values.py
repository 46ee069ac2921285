"""Checks and conversions of single parameter values, from strings as jobs pass them; pure."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import Any

from icecdc_core.config.parsing.json_values import parse_json_array
from icecdc_core.config.parsing.parameter_problem import parameter_problem
from icecdc_core.secrets import is_reference


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
        return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).astimezone(timezone.utc)
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
