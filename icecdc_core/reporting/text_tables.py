"""Tables as plain text, for a terminal and for the log of a scheduler."""

from __future__ import annotations

import re
from collections.abc import Sequence


def text_table(rows: Sequence[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """Return rows as text with aligned columns; a line break within a cell becomes a blank."""
    cells = [[re.sub(r"\s+", " ", cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for row in cells:
        aligned = [
            cell.rjust(width) if column in numbers else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(aligned).rstrip())
    return "\n".join(lines)
