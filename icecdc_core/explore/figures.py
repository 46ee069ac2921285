"""Figures of the exploration; they suit light and dark themes: no background, texts in mid grey."""

from __future__ import annotations

import base64
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple

from icecdc_core.dependencies import required
from icecdc_core.reporting.figures import DELETED, INSERTED, STYLE, TEXT, WIDTH, NotebookFigure, count_text

if TYPE_CHECKING:
    from icecdc_core.explore.differences import PartitionChanges
    from icecdc_core.explore.time_line import Entry


with required("matplotlib", "notebook"):
    from matplotlib import rc_context
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, MaxNLocator


INDEX, CHANGED = "#d1495b", "#5b8fb9"
_PIXELS_PER_INCH = 160
_MOST_PARTITIONS = 12


def time_line_figure(entries: Sequence[Entry]) -> Figure:
    """The snapshots as a graph, newest on top, beside the rows that each added and removed."""
    with rc_context(STYLE):
        if not entries:
            return _sentence_figure("The table has no snapshot yet")
        figure = _figure(1.1 + 0.34 * len(entries))
        graph, rows = figure.subplots(1, 2, sharey=True, gridspec_kw={"width_ratios": (1.7, 1)})
        _draw_graph(graph, entries)
        _draw_rows(rows, entries)
        return figure


def partitions_figure(partitions: Sequence[PartitionChanges]) -> Figure:
    """The changes of each partition, those with the most on top."""
    with rc_context(STYLE):
        shown = partitions[:_MOST_PARTITIONS]
        if not shown:
            return _sentence_figure("No changes")
        figure = _figure(1.2 + 0.34 * len(shown))
        axes = figure.subplots()
        places, ends = list(range(len(shown))), [0] * len(shown)
        for name, colour in (("inserts", INSERTED), ("updates", CHANGED), ("deletes", DELETED)):
            counts = [int(getattr(each, name)) for each in shown]
            axes.barh(places, counts, left=ends, color=colour, height=0.6, label=name)
            ends = [end + count for end, count in zip(ends, counts, strict=True)]
        for place, end in zip(places, ends, strict=True):
            _label(axes, count_text(end), (end, place), 5, "left")
        axes.set_yticks(
            places, [each.partition if len(each.partition) < 60 else "…" + each.partition[-58:] for each in shown]
        )
        axes.tick_params(axis="y", left=False)
        axes.invert_yaxis()
        _count_axis(axes, max(ends) * 1.15)
        axes.set_title("Changed rows by partition", pad=26)
        axes.legend(loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=3, frameon=False, handlelength=1)
        return figure


def as_html(figure: Figure) -> str:
    """A figure as an image inside HTML."""
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=_PIXELS_PER_INCH, transparent=True)
    width, height = (int(inches * 84) for inches in figure.get_size_inches())
    text = base64.b64encode(buffer.getvalue()).decode()
    return f'<img alt="figure" width="{width}" height="{height}" src="data:image/png;base64,{text}">'


def _draw_graph(axes: Axes, entries: Sequence[Entry]) -> None:
    places = {each.snapshot_id: place for place, each in enumerate(entries)}
    lanes = max(each.lane for each in entries)
    for place, each in enumerate(entries):
        parent = places.get(each.parent_id) if each.parent_id is not None else None
        if parent is not None:
            ends = [each.lane, entries[parent].lane]
            # A line goes down in its own lane and bends only at the parent.
            axes.plot([ends[0], ends[0], ends[1]], [place, parent - 0.5, parent], color=TEXT, linewidth=1.4, zorder=1)
        elif each.parent_id is not None:
            axes.plot([each.lane, each.lane], [place, place + 0.6], color=TEXT, linewidth=1.4, ls=":", zorder=1)
        colour = INDEX if each.has_index else CHANGED if each.is_reachable else "none"
        edge = INDEX if each.has_index else CHANGED if each.is_reachable else TEXT
        axes.scatter([each.lane], [place], s=70, color=colour, edgecolors=edge, linewidths=1.8, zorder=3)
        when = f"{each.committed_at:%m-%d %H:%M:%S}"
        axes.text(
            lanes + 0.6, place, f"…{str(each.snapshot_id)[-6:]}  {when}  {each.operation}", va="center", fontsize=9
        )
        if each.what:
            axes.text(
                lanes + 7.2,
                place,
                f"◀ {each.what}",
                va="center",
                fontsize=9,
                weight="bold",
                color=INDEX if each.has_index else TEXT,
            )
    axes.set_xlim(-0.6, lanes + 11)
    axes.set_ylim(len(entries) - 0.3, -0.7)
    axes.set_xticks([])
    axes.tick_params(axis="y", left=False, labelleft=False)
    axes.spines[:].set_visible(False)
    axes.set_title("Snapshots, newest on top")


def _draw_rows(axes: Axes, entries: Sequence[Entry]) -> None:
    places = list(range(len(entries)))
    added, removed = [each.rows_added for each in entries], [each.rows_removed for each in entries]
    axes.barh(places, added, color=INSERTED, height=0.55)
    axes.barh(places, [-count for count in removed], color=DELETED, height=0.55)
    for place, plus, minus in zip(places, added, removed, strict=True):
        if plus:
            _label(axes, f"+{count_text(plus)}", (plus, place), 4, "left")
        if minus:
            _label(axes, f"-{count_text(minus)}", (-minus, place), -4, "right")
        if not plus and not minus:
            _label(axes, "none", (0, place), 4, "left")
    axes.axvline(0, color=TEXT, linewidth=0.8)
    left, right = max([*removed, 1]), max([*added, 1])
    room = 0.28 * (left + right)
    axes.set_xlim(-left - room, right + room)
    axes.set_xticks([])
    axes.tick_params(axis="y", left=False, labelleft=False)
    axes.spines[:].set_visible(False)
    axes.set_title("Rows in files: removed, added")


def _count_axis(axes: Axes, end: float) -> None:
    axes.set_xlim(0, end or 1)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=4, min_n_ticks=2, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: count_text(value)))
    axes.set_axisbelow(True)
    axes.grid(axis="x", color=TEXT, alpha=0.25, linewidth=0.8)
    axes.set_xlabel("rows")


def _label(axes: Axes, text: str, at: tuple[float, float], offset: int, side: str) -> None:
    axes.annotate(
        text, at, xytext=(offset, 0), textcoords="offset points", va="center", ha=side, fontsize=9, color=TEXT
    )


def _figure(height: float) -> NotebookFigure:
    return NotebookFigure(figsize=(WIDTH, height), layout="constrained", facecolor="none")


def _sentence_figure(text: str) -> Figure:
    figure = _figure(0.8)
    axes = figure.subplots()
    axes.text(0.5, 0.5, text, ha="center", va="center", transform=axes.transAxes, fontsize=11)
    axes.set_axis_off()
    return figure


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
