"""`${env:NAME}` in the texts of a file, replaced by environment variables; pure but for the variables."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

_SUBSTITUTION = re.compile(
    r"(?P<literal>\$\$\{)|\$\{env:(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<has_default>:-(?P<default>[^}]*))?\}|\$\{"
)


def substitute_variables(
    value: Any,
    place: str,
    problems: list[str],
    is_secret: Callable[[str, str], bool] = lambda place, text: False,
    remedy: str = "write env:{} as the whole value; it is read when it is needed",
) -> Any:
    """Replace `${env:NAME}` and `${env:NAME:-default}` in all texts of a value; `$${` is a literal `${`.

    The values are read from YAML before, and what is put in is not looked at again, so a variable can hold any text.
    """
    if isinstance(value, dict):
        return {
            key: substitute_variables(item, f"{place}.{key}", problems, is_secret, remedy)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [substitute_variables(item, place, problems, is_secret, remedy) for item in value]
    if not isinstance(value, str) or "${" not in value:
        return value
    names: list[str] = []
    found: list[str] = []

    def text_of(match: re.Match[str]) -> str:
        if match["literal"]:
            return "${"
        if not match["name"]:
            found.append(f"{place}: has ${{ that begins no reference. Remedy: write ${{env:NAME}}, or $${{ for a ${{.")
            return ""
        names.append(match["name"])
        text = os.environ.get(match["name"])
        # As in a shell, the default also stands for an empty variable.
        text = match["default"] if match["has_default"] and not text else text
        if text is None:
            found.append(
                f"{place}: the environment variable {match['name']} is not set. "
                f"Remedy: export it, or write ${{env:{match['name']}:-default}}."
            )
        return text or ""

    result = _SUBSTITUTION.sub(text_of, value)
    if names and (is_secret(place, value) or is_secret(place, result)):
        # The secret would be part of the configuration, which logs and reports show.
        found = [
            f"{place}: may hold a secret, so it must not be written into it from a variable (value not shown). "
            f"Remedy: {remedy.format(names[0])}."
        ]
    problems += found
    return result
