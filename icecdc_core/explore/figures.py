"""What the parts of the exploration show themselves with: tables, paragraphs and figures as HTML."""

from __future__ import annotations

import base64
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PIXELS_PER_INCH = 160


def as_html(figure: Figure) -> str:
    """A figure as an image inside HTML."""
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=_PIXELS_PER_INCH, transparent=True)
    width, height = (int(inches * 84) for inches in figure.get_size_inches())
    text = base64.b64encode(buffer.getvalue()).decode()
    return f'<img alt="figure" width="{width}" height="{height}" src="data:image/png;base64,{text}">'


LONGEST_VALUE = 120
"""Characters of a value that a cell shows."""

COLOURS: Mapping[str, str] = {
    "insert": "rgba(42, 157, 143, .22)",
    "update": "rgba(51, 101, 138, .28)",
    "delete": "rgba(209, 73, 91, .20)",
    "before": "rgba(209, 73, 91, .20)",
    "after": "rgba(42, 157, 143, .22)",
}
"""The background of cells, by what they say."""

_SHORT = 48
_NUMBER = "text-align: right; font-variant-numeric: tabular-nums"


class Part(ABC):
    """A part of the exploration, which shows itself as HTML, and as one line where there is none."""

    @property
    @abstractmethod
    def line(self) -> str:
        """The part in a few words."""

    @abstractmethod
    def _repr_html_(self) -> str: ...

    def __repr__(self) -> str:
        return self.line


class Cell(NamedTuple):
    """A cell of a table."""

    text: str
    kind: str = ""
    before: str | None = None


def value_text(value: Any) -> str:
    """A value of a document on one line, as JSON unless it is a string."""
    if value is None:
        return "null"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"


def table(head: Sequence[str], rows: Iterable[Sequence[str | Cell]]) -> str:
    """Return an HTML table; every text in it is escaped."""
    rows = [list(row) for row in rows]
    sides = ["right" if rows and _is_number(cell) else "left" for cell in (rows[0] if rows else head)]
    heads = "".join(
        f'<th style="text-align: {side}">{escape(name)}</th>' for side, name in zip(sides, head, strict=True)
    )
    lines = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f'<div style="overflow-x: auto"><table><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table></div>'


def paragraphs(*texts: str) -> str:
    """Return each text that is not empty as a paragraph."""
    return "".join(f"<p>{escape(text)}</p>" for text in texts if text)


def heading(text: str) -> str:
    """Return a small heading."""
    return f'<p style="margin: 1em 0 .3em"><b>{escape(text)}</b></p>'


def _cell(given: str | Cell) -> str:
    cell = given if isinstance(given, Cell) else Cell(given)
    styles = ["vertical-align: top", _NUMBER if _is_number(given) else "text-align: left"]
    is_short = len(cell.text) + len(cell.before or "") <= _SHORT
    styles.append("white-space: nowrap" if is_short else "min-width: 24em; overflow-wrap: anywhere")
    if cell.kind:
        styles.append(f"background: {COLOURS[cell.kind]}")
    before = "" if cell.before is None else f"<s>{escape(cell.before)}</s> → "
    return f'<td style="{"; ".join(styles)}">{before}{escape(cell.text)}</td>'


def _is_number(given: str | Cell) -> bool:
    """Whether a text is a count; ids of snapshots are longer."""
    return isinstance(given, str) and given.replace(",", "").isdecimal() and len(given) < 18
