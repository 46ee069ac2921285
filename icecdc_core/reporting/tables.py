"""Tables and texts as HTML that looks the same in a notebook and a page."""

from collections.abc import Iterable
from html import escape

import pandas as pd

_LEFT = ' style="text-align: left; vertical-align: top">'


class NotebookFrame(pd.DataFrame):
    """A frame that shows itself whole in a notebook, without the numbers of its rows; it behaves like any other."""

    def _repr_html_(self) -> str:
        return as_html(["There is nothing to show." if self.empty else self])


def as_html(parts: Iterable[str | pd.DataFrame]) -> str:
    """Return paragraphs and tables as HTML, every text escaped; what is empty is left out."""
    html = ""
    for part in parts:
        if isinstance(part, pd.DataFrame):
            if not part.empty:
                with pd.option_context("display.max_colwidth", None):
                    table = part.astype(object).where(part.notna(), "").to_html(index=False, border=0)
                table = table.replace("<td>", f"<td{_LEFT}").replace("<th>", f"<th{_LEFT}")
                html += f'<div style="overflow-x: auto">{table}</div>'
        elif part:
            html += f"<p>{escape(part)}</p>"
    return html
