"""Figures and tables for a notebook: plain data become one matplotlib figure, or HTML."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from html import escape
from io import BytesIO
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from icecdc_core.dependencies import required

with required("matplotlib", "notebook"):
    from matplotlib import rc_context
    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, MaxNLocator


INSERTED, UPDATED, DELETED, NEUTRAL, BACKGROUND = "#2a9d8f", "#d98e25", "#d1495b", "#4a86b5", "#9aa5b1"
# The background is transparent, and this grey can be read on white and on black alike.
TEXT = "#7d8590"
WIDTH = 9.0
_PIXELS_PER_INCH = 160
STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    # Texts are names and values, in which a dollar sign is no formula.
    "text.parse_math": False,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 12,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": TEXT,
    "axes.facecolor": "none",
    "axes.labelcolor": TEXT,
    "xtick.color": TEXT,
    "ytick.color": TEXT,
    "text.color": TEXT,
    "axes.titlecolor": TEXT,
}


class NotebookFigure(Figure):
    """A figure that shows itself as a cell's result, with or without pyplot, and is never shown twice."""

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        buffer = BytesIO()
        FigureCanvasAgg(self).print_figure(buffer, format="png", dpi=_PIXELS_PER_INCH)
        size = self.get_size_inches() * 84
        return buffer.getvalue(), {"width": int(size[0]), "height": int(size[1])}


class Chart(NamedTuple):
    """Horizontal bars, each with a name, its stacked values with their colours, and a label."""

    title: str
    bars: Sequence[tuple[str, Sequence[tuple[float, str]], str]]
    xlabel: str = ""
    width: float = 1.0


def draw(*charts: Chart, text: str = "") -> Figure:
    """Return a figure of charts side by side; without a bar only the text, because empty charts would say less."""
    with rc_context(STYLE):
        most = max((len(chart.bars) for chart in charts), default=0)
        if not most:
            figure, (axes,) = panels(1, height=0.6)
            axes.text(0.0, 0.5, text, ha="left", va="center", transform=axes.transAxes, color=TEXT)
            axes.set_axis_off()
            return figure
        figure, found = panels(len(charts), height=1.5 + 0.36 * most, width_ratios=[chart.width for chart in charts])
        for axes, chart in zip(found, charts, strict=True):
            _draw_bars(axes, chart)
            if chart is not charts[0] and [bar[0] for bar in chart.bars] == [bar[0] for bar in charts[0].bars]:
                axes.set_yticks([])
        return figure


def panels(count: int, height: float, **grid: Any) -> tuple[Figure, Sequence[Axes]]:
    """Return a figure with so many axes side by side."""
    figure = NotebookFigure(figsize=(WIDTH, height), layout="constrained", facecolor="none")
    axes = figure.subplots(1, count, squeeze=False, gridspec_kw=grid)[0]
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.08)  # type: ignore[union-attr, call-arg]
    return figure, list(axes)


def _draw_bars(axes: Axes, chart: Chart) -> None:
    places = range(len(chart.bars))
    for place, (_, parts, label) in zip(places, chart.bars, strict=True):
        end = 0.0
        for value, colour in parts:
            axes.barh(place, value, left=end, color=colour, height=0.6)
            end += value
        axes.annotate(
            label, (end, place), xytext=(5, 0), textcoords="offset points", va="center", fontsize=9, color=TEXT
        )
    axes.set_yticks(places, [name for name, _, _ in chart.bars])
    axes.tick_params(axis="y", left=False)
    axes.set_ylim(max(len(chart.bars), 2) - 0.5, -0.5)
    longest = max((sum(value for value, _ in parts) for _, parts, _ in chart.bars), default=0)
    axes.set_xlim(0, longest * 1.4 or 1)
    are_counts = all(isinstance(value, Integral) for _, parts, _ in chart.bars for value, _ in parts)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=4, min_n_ticks=2, integer=are_counts))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: count_text(value)))
    axes.set_axisbelow(True)
    axes.grid(axis="x", color=TEXT, alpha=0.25, linewidth=0.8)
    axes.set_title(chart.title)
    axes.set_xlabel(chart.xlabel)


def run_figure(report: Mapping[str, Any]) -> Figure:
    """What a run wrote, beside the time its stages took."""
    if report["strategy"] == "none":
        return draw(text=f"Up to date: {report['index']} has every change of {report['table']}")
    colours = {"upserts": INSERTED, "deletes": DELETED, "rejected": UPDATED, "already_applied": BACKGROUND}
    counts = {name: report[name] for name in colours if report[name] or name in ("upserts", "deletes")}
    carried = report["carryovers_removed"]
    return draw(
        _counts(
            f"Documents written to {report['index']}",
            counts,
            colours,
            "documents" + (f"\n{carried:,} carryovers removed first" if carried else ""),
        ),
        _stages(report),
    )


def ingest_figure(report: Mapping[str, Any]) -> Figure:
    """Rows an ingest wrote into each table (the twelve with the most), beside the time its stages took."""
    if not report["tables"] and not report["records"]:
        return draw(text="Up to date: the topics have no new records")
    most = sorted(report["tables"].items(), key=lambda item: -item[1]["rows"])[:12]
    rows = {name.rpartition(".")[2].strip("`"): table["rows"] for name, table in most}
    others = {"dead letters": report["dead_letters"], **({"deletes": report["deletes"]} if report["deletes"] else {})}
    colours = {"deletes": DELETED, "dead letters": UPDATED}
    return draw(_counts("Rows written, by table", {**rows, **others}, colours, "rows"), _stages(report))


def changes_figure(changes: pd.DataFrame) -> Figure:
    """What each snapshot changed."""

    def chart(title: str, colours: Mapping[str, tuple[str, str]], width: float = 1.0) -> Chart:
        bars = []
        for row in changes.to_dict("records"):
            counts = {name: int(row[name]) for name in colours}
            label = "  ".join(f"{colours[name][0]}{count_text(count)}" for name, count in counts.items() if count)
            committed = row["committed_at"]
            moment = f"{committed:%H:%M:%S}" if hasattr(committed, "strftime") else str(committed)
            name = f"{row['operation']}  {moment}\n…{str(row['snapshot_id'])[-6:]}"
            bars.append((name, [(counts[each], colours[each][1]) for each in counts], label or "none"))
        return Chart(title, bars, "rows", width)

    if "rows_added" in changes:
        charts = [chart("Rows added, by snapshot", {"rows_added": ("", INSERTED)})]
        charts.append(chart("Rows removed, by snapshot", {"rows_removed": ("", DELETED)}))
    else:
        kinds = {"inserted": ("+", INSERTED), "updated": ("~", UPDATED), "deleted": ("-", DELETED)}
        charts = [chart("Rows that changed, by snapshot", kinds, width=2.0)]
        charts.append(chart("Carryover removed", {"carryovers_removed": ("", BACKGROUND)}))
    return draw(*charts, text="No new snapshot in this run")


def rows_and_documents_figure(counts: Mapping[str, int]) -> Figure:
    """Rows in the table against documents in the index."""
    return draw(_rows_and_documents(counts["rows"], counts["documents"]))


def validation_figure(report: Mapping[str, Any]) -> Figure:
    """Rows against documents, the differences, and the time every stage took."""
    found = {name: report[name] for name in ("missing", "extra", "stale")}
    repaired = f", {report['repaired']:,} repaired" if report["repaired"] else ""
    return draw(
        _rows_and_documents(report["source_rows"], report["index_documents"]),
        _counts(
            "Equal in every field" if report["ok"] else "NOT equal",
            found,
            {"missing": DELETED, "extra": UPDATED, "stale": "#7b5ea7"},
            f"documents{repaired}",
        ),
        _stages(report),
    )


def _counts(title: str, counts: Mapping[str, int], colours: Mapping[str, str], xlabel: str) -> Chart:
    bars = [
        (name.replace("_", " "), [(count, colours.get(name, INSERTED))], count_text(count))
        for name, count in counts.items()
    ]
    return Chart(title, bars, xlabel)


def _rows_and_documents(rows: int, documents: int) -> Chart:
    colour, difference = (INSERTED, "") if rows == documents else (DELETED, f"difference {documents - rows:+,}")
    bars = [("rows in table", [(rows, NEUTRAL)], f"{rows:,}")]
    bars.append(("documents in index", [(documents, colour)], f"{documents:,}"))
    return Chart("Table and index", bars, difference)


def _stages(report: Mapping[str, Any]) -> Chart:
    seconds = report["stage_seconds"].items()
    bars = [(name.replace("_", " "), [(value, NEUTRAL)], f"{value:,.1f} s") for name, value in seconds]
    return Chart(f"Time per stage ({report['seconds']:,.1f} s)", bars, "seconds" if bars else "nothing to do")


def count_text(value: float) -> str:
    """A count that fits a label: 950, 12.3 k, 1.2 M."""
    for limit, divisor, unit in ((1e6, 1e6, " M"), (1e4, 1e3, " k")):
        if abs(value) >= limit:
            return f"{value / divisor:,.1f}".removesuffix(".0") + unit
    return f"{value:,.1f}".removesuffix(".0")


# Numbers that name something: they are copied, not compared.
_NAMES = ("id", "offset", "partition", "batch")
_CELL = "text-align: {side}; vertical-align: top; white-space: {wrap}; overflow-wrap: anywhere; max-width: 60em"
_LONGEST_LINE = 40
_GREEN, _BLUE, _RED = "rgba(42, 157, 143, .22)", "rgba(51, 101, 138, .28)", "rgba(209, 73, 91, .20)"
_COLOURS = {"insert": _GREEN, "after": _GREEN, "update": _BLUE, "delete": _RED, "before": _RED}


class Cell(NamedTuple):
    """A value of a table with a background, by its kind, and the value that it replaced."""

    text: str
    kind: str = ""
    before: str | None = None


class Heading(str):
    """A text above a table."""


class NotebookFrame(pd.DataFrame):
    """A frame that shows itself in a notebook; it behaves like any other.

    An index other than the numbers of the rows is shown as the first column. The heading is left out if such a frame
    has only one column.
    """

    _metadata = ("empty_text",)
    empty_text: str = ""

    @classmethod
    def of(cls, frame: pd.DataFrame, empty: str = "") -> NotebookFrame:
        """Return a frame with the text that it shows if it is empty."""
        shown = cls(frame)
        shown.empty_text = empty
        return shown

    def _repr_html_(self) -> str:
        return as_html([self.empty_text] if self.empty else [self])

    def __repr__(self) -> str:
        return self.empty_text if self.empty else super().__repr__()


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
    is_named = not isinstance(frame.index, pd.RangeIndex)
    head, lines = "", ""
    if not is_named or len(names) > 1:
        first = zip(names, frame.iloc[0], strict=True)
        cells = "".join(_cell("th", Cell(name), _is_number(value, name)) for name, value in first)
        head = f"<thead><tr>{_cell('th', Cell('')) if is_named else ''}{cells}</tr></thead>"
    for label, row in zip(frame.index, frame.itertuples(index=False, name=None), strict=True):
        lines += f"<tr>{_cell('th', Cell(str(label))) if is_named else ''}"
        for name, value in zip(names, row, strict=True):
            cell = value if isinstance(value, Cell) else Cell(cell_text(value, name))
            lines += _cell("td", cell, _is_number(value, name))
        lines += "</tr>"
    return f'<div style="overflow-x: auto"><table>{head}<tbody>{lines}</tbody></table></div>'


def _cell(tag: str, cell: Cell, is_number: bool = False) -> str:
    is_long = len(cell.text) + len(cell.before or "") > _LONGEST_LINE or "\n" in cell.text
    style = _CELL.format(side="right" if is_number else "left", wrap="pre-wrap" if is_long else "nowrap")
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
