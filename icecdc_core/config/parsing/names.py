"""Names of tables, branches and indexes: which ones Spark and OpenSearch accept; pure."""

from __future__ import annotations

import re

from icecdc_core.config.parsing.parameter_problem import parameter_problem

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
