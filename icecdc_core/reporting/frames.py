"""Data frames that a person reads in a notebook: text to the left, numbers with separators, a sentence if empty."""

from __future__ import annotations

from collections.abc import Hashable
from datetime import datetime
from html import escape
from numbers import Integral, Real
from typing import Any

import numpy as np
import pandas as pd

# Numbers that name something: they are copied, not compared.
_NAMES = ("id", "offset", "partition", "batch")
_CELL = "text-align: {side}; vertical-align: top; white-space: {wrap}; overflow-wrap: anywhere; max-width: 60em"
_LONGEST_LINE = 40


class NotebookFrame(pd.DataFrame):
    """A frame that shows itself in a notebook; it behaves like any other.

    An index other than the numbers of the rows is shown as the first column. The heading is left out if such a frame
    has only one column.
    """

    _metadata = ("empty_text", "note")
    empty_text: str = ""
    note: str = ""

    @classmethod
    def of(cls, frame: pd.DataFrame, empty: str = "", note: str = "") -> NotebookFrame:
        """Return a frame with the texts that belong to it."""
        shown = cls(frame)
        shown.empty_text, shown.note = empty, note
        return shown

    def _repr_html_(self) -> str:
        if self.empty:
            return f"<p>{escape(self.empty_text)}</p>" if self.empty_text else ""
        named = not isinstance(self.index, pd.RangeIndex)
        heading = ""
        if not (named and len(self.columns) == 1):
            first = [_cell("", "", "th")] if named else []
            numbers = [_is_number(self[name].iloc[0], name) for name in self.columns]
            cells = [_cell(name, "", "th", right) for name, right in zip(self.columns, numbers, strict=True)]
            heading = f"<thead><tr>{''.join([*first, *cells])}</tr></thead>"
        labelled = zip(self.index if named else [None] * len(self), self._rows, strict=True)
        rows = "".join(self._row(label, row) for label, row in labelled)
        note = f"<p>{escape(self.note)}</p>" if self.note else ""
        return f"<table>{heading}<tbody>{rows}</tbody></table>{note}"

    def __repr__(self) -> str:
        if self.empty:
            return self.empty_text
        return "\n".join(filter(None, (super().__repr__(), self.note)))

    @property
    def _rows(self) -> list[tuple[Any, ...]]:
        return list(self.itertuples(index=False, name=None))

    def _row(self, label: Hashable | None, row: tuple[Any, ...]) -> str:
        first = "" if label is None else _cell(label, "", "th")
        cells = "".join(_cell(value, str(name), "td") for name, value in zip(self.columns, row, strict=True))
        return f"<tr>{first}{cells}</tr>"


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
    if isinstance(value, (bool, np.bool_)) or column.endswith(_NAMES):
        return False
    return isinstance(value, Real)


def _cell(value: object, column: str, tag: str, right: bool = False) -> str:
    text = cell_text(value, column)
    side = "right" if right or _is_number(value, column) else "left"
    style = _CELL.format(side=side, wrap="pre-wrap" if len(text) > _LONGEST_LINE or "\n" in text else "nowrap")
    return f'<{tag} style="{style}">{escape(text)}</{tag}>'
