"""What the parts of the exploration show themselves with: tables, paragraphs and figures as HTML."""

from __future__ import annotations

import base64
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from html import escape
from io import BytesIO
from typing import TYPE_CHECKING, Any

from icecdc_core.reporting.figures import Cell, html_table

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


def value_text(value: Any) -> str:
    """A value of a document on one line, as JSON unless it is a string."""
    if value is None:
        return "null"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"


def table(head: Sequence[str], rows: Iterable[Sequence[str | Cell]]) -> str:
    """Return an HTML table; texts that are counts are to the right."""
    cells = [[_aligned(cell) for cell in row] for row in rows]
    sides = [cell.right for cell in cells[0]] if cells else [False] * len(head)
    return html_table([Cell(name, right=right) for name, right in zip(head, sides, strict=True)], cells)


def paragraphs(*texts: str) -> str:
    """Return each text that is not empty as a paragraph."""
    return "".join(f"<p>{escape(text)}</p>" for text in texts if text)


def heading(text: str) -> str:
    """Return a small heading."""
    return f'<p style="margin: 1em 0 .3em"><b>{escape(text)}</b></p>'


def _aligned(given: str | Cell) -> Cell:
    """A cell; ids of snapshots are longer than counts."""
    if isinstance(given, Cell):
        return given
    return Cell(given, right=given.replace(",", "").isdecimal() and len(given) < 18)
