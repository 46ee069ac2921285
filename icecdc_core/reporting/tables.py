"""Tables as HTML with inline styles alone, so they look the same in a notebook, a page and a mail.

Texts have the colour of the page and backgrounds are translucent, so they can be read on light and on dark.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from html import escape
from numbers import Integral, Real
from typing import NamedTuple

import numpy as np
import pandas as pd

# Numbers that name something: they are copied, not compared.
_NAMES = ("id", "offset", "partition", "batch")
_CELL = "text-align: {side}; vertical-align: top; white-space: {wrap}; overflow-wrap: anywhere; max-width: 60em"
_LONGEST_LINE = 40
_NEW, _OLD = "rgba(42, 157, 143, .25)", "rgba(128, 138, 150, .3)"
_COLOURS = {"insert": _NEW, "after": _NEW, "update": "rgba(74, 134, 181, .28)", "delete": _OLD, "before": _OLD}


class Cell(NamedTuple):
    """A value of a table with a background, by its kind, and the value that it replaced."""

    text: str
    kind: str = ""
    before: str | None = None


class Heading(str):
    """A text above a table."""


class NotebookFrame(pd.DataFrame):
    """A frame that shows itself in a notebook, without the numbers of its rows; it behaves like any other."""

    def _repr_html_(self) -> str:
        return as_html(["There is nothing to show."] if self.empty else [self])


def as_html(parts: Iterable[str | pd.DataFrame]) -> str:
    """Return paragraphs, headings and tables as HTML, every text escaped; what is empty is left out."""
    html = ""
    for part in parts:
        if isinstance(part, pd.DataFrame):
            html += "" if part.empty else _table(part)
        elif part:
            html += f"<p><b>{escape(part)}</b></p>" if isinstance(part, Heading) else f"<p>{escape(part)}</p>"
    return html


def _table(frame: pd.DataFrame) -> str:
    names = [str(name) for name in frame.columns]
    first = zip(names, frame.iloc[0], strict=True)
    lines = "".join(_cell("th", Cell(name), _is_number(value, name)) for name, value in first)
    lines = f"<thead><tr>{lines}</tr></thead>"
    for row in frame.itertuples(index=False, name=None):
        lines += "<tr>"
        for name, value in zip(names, row, strict=True):
            cell = value if isinstance(value, Cell) else Cell(cell_text(value, name))
            lines += _cell("td", cell, _is_number(value, name))
        lines += "</tr>"
    return f'<div style="overflow-x: auto"><table>{lines}</table></div>'


def _cell(tag: str, cell: Cell, is_number: bool = False) -> str:
    is_long = len(cell.text) + len(cell.before or "") > _LONGEST_LINE or "\n" in cell.text
    style = _CELL.format(side="right" if is_number else "left", wrap="pre-wrap" if is_long else "nowrap")
    style += "; min-width: 24em" if is_long else ""
    style += f"; background: {_COLOURS[cell.kind]}" if cell.kind else ""
    before = "" if cell.before is None else f"<s>{escape(cell.before)}</s> → "
    return f'<{tag} style="{style}">{before}{escape(cell.text)}</{tag}>'


def cell_text(value: object, column: str = "") -> str:
    """Return a value as a person reads it: 12,345, yes (or nothing), 2026-01-31 12:00:00 UTC; "" for none."""
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else ""
    if value is None or value is pd.NaT or (isinstance(value, float) and value != value):
        return ""
    if isinstance(value, Integral):
        return str(value) if column.endswith(_NAMES) else f"{int(value):,}"
    if isinstance(value, Real):
        return f"{float(value):,.1f}"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}{' UTC' if value.tzinfo is not None else ''}"
    return str(value)


def _is_number(value: object, column: str) -> bool:
    return type(value) is not bool and isinstance(value, Real) and not column.endswith(_NAMES)
