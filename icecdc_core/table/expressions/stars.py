"""The `*` of `select` in a table with columns that Spark cannot read.

Spark knows the table without these columns. So a `*` must leave them out by name, and the name must not reach Spark:

    * EXCEPT (t, email)      without t      * EXCEPT (email)
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from icecdc_core.columns import quoted
from icecdc_core.errors import UnsupportedTypeError

_LITERAL = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
# A `*` that stands for all columns; one that multiplies follows an operand.
_STAR = re.compile(r"(?:^|[(,])\s*(?:(?P<alias>\w+|`[^`]+`)\s*\.\s*)?\*")
_EXCEPT = re.compile(r"\*\s*EXCEPT\s*\((?P<names>[^()]*)\)", re.IGNORECASE)
_NAME = re.compile(r"(?:`(?:[^`]|``)*`|[^,`])+")


def require_readable_stars(unreadable: Mapping[str, str], texts: Sequence[str], alias: str) -> None:
    """Refuse a `*` that stands for a column that Spark cannot read, too."""
    for name, problem in unreadable.items():
        if any(star_includes(text, name, alias) for text in texts):
            raise UnsupportedTypeError(
                f"Column '{name}' {problem}, and select takes it in",
                subject="column",
                value=name,
                remedy=f"make select a list of expressions with the columns by name or * EXCEPT ({quoted(name)}) "
                "(Spark 4.1 and newer), or change it in the table",
            )


def star_includes(text: str, column: str, alias: str) -> bool:
    """Return whether a `*` of an expression stands for a column, too."""
    text = _LITERAL.sub("''", text)
    for star in _STAR.finditer(text):
        if (star["alias"] or alias).strip("`").lower() == alias.lower():
            excepted = _EXCEPT.match(text, star.end() - 1)
            if excepted is None or column.lower() not in map(_plain, _names(excepted)):
                return True
    return False


def without_excepted(text: str, columns: Collection[str]) -> str:
    """Return an expression in which no `*` leaves out these columns by name."""
    unknown = {column.lower() for column in columns}

    def kept(excepted: re.Match[str]) -> str:
        names = [name for name in _names(excepted) if _plain(name) not in unknown]
        return f"* EXCEPT ({', '.join(names)})" if names else "*"

    return _EXCEPT.sub(kept, text) if unknown else text


def _names(excepted: re.Match[str]) -> list[str]:
    return [name.strip() for name in _NAME.findall(excepted["names"])]


def _plain(name: str) -> str:
    return (name[1:-1].replace("``", "`") if name.startswith("`") and name.endswith("`") else name).lower()
