"""Asking ``FileLists`` in the JVM about many files at once.

Large collections stay in the JVM, where ``FileLists`` loops over them, and texts cross as one joined string, because a
py4j call costs about 0.1 ms and a table may have a hundred thousand files.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from icecdc_core.session.jvm import fetch_text

_SEPARATOR = "\0"


def join_texts(parts: Iterable[str]) -> str:
    """Return texts in the form in which ``FileLists`` takes several."""
    return _SEPARATOR.join(parts)


def split_texts(answer: Any) -> list[str]:
    """Return the texts in an answer of ``FileLists``."""
    joined = fetch_text(answer)
    return joined.split(_SEPARATOR) if joined else []


def parse_numbers(parts: Iterable[str]) -> list[int]:
    """Return texts as numbers."""
    return [int(text) for text in parts]


def read_facts(lists: Any, files: Any, name: str) -> list[str]:
    """Return a fact about each file of a list."""
    return split_texts(lists.texts(files, name))
