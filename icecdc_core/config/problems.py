"""Problems of parameters as sentences: the parameter, its value (never a secret) and the remedy."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from pydantic_core import ErrorDetails, PydanticCustomError

from icecdc_core.config.parsing.durations import parse_duration
from icecdc_core.config.parsing.json_values import iterate_leaves, parse_json_object
from icecdc_core.config.parsing.values import parse_column_names
from icecdc_core.secrets import looks_secret, redact


def combination_problems(given: Mapping[str, Any]) -> list[str]:
    """Problems of parameters that do not fit together."""
    problems = []
    names: dict[str, list[str]] = {}
    for parameter in ("columns", "identifier_columns"):
        try:
            names[parameter] = list(parse_column_names(given.get(parameter, [])))  # type: ignore[call-overload]
        except PydanticCustomError:
            names[parameter] = []
    outside = [name for name in names["identifier_columns"] if names["columns"] and name not in names["columns"]]
    if outside:
        problems.append(
            f"identifier_columns: {', '.join(outside)} not in columns={names['columns']!r}. "
            "Remedy: add them to columns, or leave columns empty to take all."
        )
    if given.get("select") and given.get("columns"):
        problems.append("select: given together with columns. Remedy: name the columns in select.")
    if given.get("opensearch_username") and not given.get("opensearch_password"):
        problems.append(
            f"opensearch_password: missing for opensearch_username={given['opensearch_username']!r}. "
            "Remedy: set it to env:NAME or secret:scope/key."
        )
    if given.get("opensearch_password") and not given.get("opensearch_username"):
        problems.append("opensearch_username: missing, though opensearch_password is set. Remedy: set it.")
    if given.get("opensearch_client_key") and not given.get("opensearch_client_cert"):
        problems.append("opensearch_client_cert: missing, though opensearch_client_key is set. Remedy: set it.")
    if given.get("opensearch_aws_region") and given.get("opensearch_username"):
        problems.append(
            "opensearch_aws_region: given together with opensearch_username. Remedy: sign requests or use a password."
        )
    if str(given.get("opensearch_url", "")).startswith("http:") and given.get("opensearch_client_cert"):
        problems.append("opensearch_client_cert: given for an http URL. Remedy: use https in opensearch_url.")
    problems += _setting_problems(given) + _lag_problems(given)
    if given.get("index") == given.get("positions_index", "icecdc-positions"):
        problems.append(
            f"index: {given.get('index')!r} is also the positions_index. Remedy: give the index another name."
        )
    return problems


def _lag_problems(given: Mapping[str, Any]) -> list[str]:
    """A target lag that the poll interval alone exceeds."""
    interval, target = (_seconds(given.get(name)) for name in ("poll_interval_seconds", "target_lag"))
    if not 0 < target < interval:
        return []
    return [
        f"target_lag: {given['target_lag']!r} is shorter than "
        f"poll_interval_seconds={given['poll_interval_seconds']!r}. "
        "Remedy: leave poll_interval_seconds out, so that the pause follows from target_lag, or raise target_lag."
    ]


def _seconds(value: Any) -> float:
    """A duration as a number; 0 when it is missing or wrong."""
    try:
        return float(parse_duration(value))  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return 0.0


def _setting_problems(given: Mapping[str, Any]) -> list[str]:
    """Index settings that are given twice: as a parameter and in `settings`, or in two spellings."""
    try:
        settings = parse_json_object(given.get("settings") or {})
    except PydanticCustomError:
        return []
    problems = []
    spellings: dict[str, str] = {}
    for spelling, _ in iterate_leaves(settings):  # type: ignore[arg-type]
        setting = spelling.removeprefix("index.")
        if setting in spellings:
            problems.append(f"settings: has {setting} twice. Remedy: keep one of its spellings.")
        spellings[setting] = spelling
    for parameter in ("number_of_shards", "number_of_replicas"):
        if parameter in spellings and parameter in given:
            problems.append(
                f"settings: has {spellings[parameter]}, which is given by the parameter {parameter}, too. "
                "Remedy: keep one of them."
            )
    return problems


def field_problem(details: ErrorDetails, given: Mapping[str, Any], help_texts: Mapping[str, str]) -> str:
    """Describe one of pydantic's errors."""
    name = str(details["loc"][0]) if details["loc"] else "parameters"
    if name not in help_texts:
        near = difflib.get_close_matches(name, help_texts, n=1)
        hint = f"did you mean {near[0]}" if near else "see parameters() of the configuration for all of them"
        # The value of a misspelt secret parameter is a secret, too.
        shown = _shown(f"{name} {near[0] if near else ''}", given.get(name))
        return f"{name}: unknown parameter [{name}={shown}]. Remedy: {hint}."
    help_text = help_texts[name].rstrip(".")
    if details["type"] == "missing":
        return f"{name}: missing. Remedy: set it ({help_text})."
    context = details.get("ctx") or {}
    message = details["msg"]
    value = f" [{name}={_shown(name, details['input'])}]" if context.get("show", True) else ""
    remedy = context.get("remedy") or f"set it as described: {help_text}"
    if name == "index" and not given.get("index"):
        remedy = f"set index, because the table's name cannot be used as its name; {remedy}"
    return f"{name}: {message[:1].lower()}{message[1:]}{value}. Remedy: {remedy}."


def _shown(name: str, value: object) -> str:
    """The value as a message shows it: short and without secrets."""
    try:
        text = repr("***" if looks_secret(name) and value else redact(name, value))
    except ValueError:  # Python refuses to write integers of thousands of digits
        text = f"a {type(value).__name__} of too many digits"
    return text if len(text) <= 200 else f"{text[:200]}..."
