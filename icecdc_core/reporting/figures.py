"""Figures: each function turns plain data into one matplotlib figure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from html import escape
from io import BytesIO
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from icecdc_core.dependencies import required

if TYPE_CHECKING:
    import pandas as pd


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


def run_figure(report: Mapping[str, Any]) -> Figure:
    """What a run wrote, beside the time its stages took."""
    with rc_context(STYLE):
        if report["strategy"] == "none":
            return _sentence(f"Up to date: {report['index']} has every change of {report['table']}")
        figure, (written, stages) = panels(2, height=2.9)
        bars = [("upserts", report["upserts"], INSERTED), ("deletes", report["deletes"], DELETED)]
        bars += [("rejected", report["rejected"], UPDATED)] if report["rejected"] else []
        if report["already_applied"]:
            bars.append(("already applied", report["already_applied"], BACKGROUND))
        _horizontal_bars(written, bars, count_text)
        written.set_title(f"Documents written to {report['index']}")
        carried = report["carryovers_removed"]
        written.set_xlabel("documents" + (f"\n{carried:,} carryovers removed first" if carried else ""))
        _draw_stages(stages, report["stage_seconds"], report["seconds"])
        return figure


def ingest_figure(report: Mapping[str, Any]) -> Figure:
    """Rows an ingest wrote into each table (the twelve with the most), beside the time its stages took."""
    with rc_context(STYLE):
        if not report["tables"] and not report["records"]:
            return _sentence("Up to date: the topics have no new records")
        most = sorted(report["tables"].items(), key=lambda item: -item[1]["rows"])[:12]
        bars = [(name.rpartition(".")[2].strip("`"), table["rows"], INSERTED) for name, table in most]
        bars += [("deletes", report["deletes"], DELETED)] if report["deletes"] else []
        bars += [("dead letters", report["dead_letters"], UPDATED)]
        figure, (written, stages) = panels(2, height=2.0 + 0.3 * len(bars))
        _horizontal_bars(written, bars, count_text)
        written.set_title("Rows written, by table")
        written.set_xlabel("rows")
        _draw_stages(stages, report["stage_seconds"], report["seconds"])
        return figure


def changes_figure(changes: pd.DataFrame) -> Figure:
    """What each snapshot changed."""
    with rc_context(STYLE):
        if changes.empty:
            return _sentence("No new snapshot in this run")
        height = 1.7 + 0.42 * len(changes)
        if "rows_added" in changes:
            figure, (added, removed) = panels(2, height=height, sharey=True)
            _draw_by_snapshot(added, changes, {"rows_added": INSERTED}, "Rows added, by snapshot")
            _draw_by_snapshot(removed, changes, {"rows_removed": DELETED}, "Rows removed, by snapshot")
            return figure
        figure, (real, carried) = panels(2, height=height, width_ratios=(3, 1.25), sharey=True)
        colours = {"inserted": INSERTED, "updated": UPDATED, "deleted": DELETED}
        _draw_by_snapshot(real, changes, colours, "Rows that changed, by snapshot", _change_text)
        real.legend(loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=3, frameon=False, handlelength=1)
        _draw_by_snapshot(carried, changes, {"carryovers_removed": BACKGROUND}, "Carryover removed")
        carried.set_xlabel("rows (own scale)")
        return figure


def rows_and_documents_figure(counts: Mapping[str, int]) -> Figure:
    """Rows in the table against documents in the index."""
    with rc_context(STYLE):
        figure, (axes,) = panels(1, height=1.9)
        _draw_rows_and_documents(axes, counts["rows"], counts["documents"])
        return figure


def validation_figure(report: Mapping[str, Any]) -> Figure:
    """Rows against documents, the differences, and the time every stage took."""
    with rc_context(STYLE):
        figure, (counts, differences, stages) = panels(3, height=3.0, width_ratios=(1.1, 0.95, 1.25))
        _draw_rows_and_documents(counts, report["source_rows"], report["index_documents"])
        found = [("missing", report["missing"], DELETED), ("extra", report["extra"], UPDATED)]
        _horizontal_bars(differences, [*found, ("stale", report["stale"], "#7b5ea7")], count_text)
        differences.set_title(
            "Equal in every field" if report["ok"] else "NOT equal", color=INSERTED if report["ok"] else DELETED
        )
        repaired = report["repaired"]
        differences.set_xlabel("documents" + (f", {repaired:,} repaired" if repaired else ""))
        _draw_stages(stages, report["stage_seconds"], report["seconds"])
        return figure


_LABEL: dict[str, Any] = {
    "xytext": (5, 0),
    "textcoords": "offset points",
    "va": "center",
    "fontsize": 9,
    "color": TEXT,
}


def panels(count: int, height: float, **grid: Any) -> tuple[Figure, Sequence[Axes]]:
    """Return a figure with so many axes side by side."""
    figure = NotebookFigure(figsize=(WIDTH, height), layout="constrained", facecolor="none")
    sharey = grid.pop("sharey", False)
    axes = figure.subplots(1, count, squeeze=False, sharey=sharey, gridspec_kw=grid)[0]
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.08)  # type: ignore[union-attr, call-arg]
    return figure, list(axes)


def _horizontal_bars(axes: Axes, bars: Sequence[tuple[str, float, str]], text: Any) -> None:
    values = [value for _, value, _ in bars]
    places = list(range(len(bars)))
    axes.barh(places, values, color=[colour for _, _, colour in bars], height=0.58)
    for place, value in zip(places, values, strict=True):
        axes.annotate(text(value), (value, place), **_LABEL)
    axes.set_yticks(places, [name for name, _, _ in bars])
    axes.tick_params(axis="y", left=False)
    axes.invert_yaxis()
    axes.set_xlim(0, max([*values, 1e-9]) * 1.35 if any(values) else 1)
    if any(values):
        _label_values(axes, counts=all(isinstance(value, int) for value in values))
    else:
        axes.set_xticks([0])


def _draw_rows_and_documents(axes: Axes, rows: int, documents: int) -> None:
    same = rows == documents
    bars = [
        ("rows in table", rows, NEUTRAL),
        ("documents in index", documents, INSERTED if same else DELETED),
    ]
    _horizontal_bars(axes, bars, lambda value: f"{int(value):,}")
    axes.set_title("Table and index")
    axes.set_xlabel("" if same else f"difference {documents - rows:+,}")


def _draw_stages(axes: Axes, stage_seconds: Mapping[str, float], seconds: float) -> None:
    axes.set_title(f"Time per stage ({seconds:,.1f} s)")
    if not stage_seconds:
        _say(axes, "nothing to do")
        return
    bars = [(name.replace("_", " "), value, NEUTRAL) for name, value in stage_seconds.items()]
    _horizontal_bars(axes, bars, lambda value: f"{value:,.1f} s")
    axes.set_xlabel("seconds")


def _draw_by_snapshot(
    axes: Axes,
    changes: pd.DataFrame,
    colours: Mapping[str, str],
    title: str,
    text: Callable[[Mapping[Any, Any]], str] | None = None,
) -> None:
    """Draw one stacked bar for each snapshot, a part for each column."""
    rows = changes.to_dict("records")
    places = list(range(len(rows)))
    ends = [0] * len(rows)
    for column, colour in colours.items():
        counts = [int(count) for count in changes[column]]
        axes.barh(places, counts, left=ends, color=colour, height=0.62, label=column)
        ends = [end + count for end, count in zip(ends, counts, strict=True)]
    for place, end, row in zip(places, ends, rows, strict=True):
        label = text(row) if text else count_text(end) if end else "none"
        axes.annotate(label, (end, place), **_LABEL)
    axes.set_yticks(places, [_snapshot_label(row) for row in rows])
    axes.tick_params(axis="y", left=False)
    if not axes.yaxis_inverted():
        axes.invert_yaxis()
    axes.set_xlim(0, max([*ends, 1]) * 1.45)
    axes.set_title(title, pad=30)
    axes.set_xlabel("rows")
    _label_values(axes)


def _label_values(axes: Axes, counts: bool = True) -> None:
    axes.xaxis.set_major_locator(MaxNLocator(nbins=4, min_n_ticks=2, integer=counts))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: count_text(value)))
    axes.set_axisbelow(True)
    axes.grid(axis="x", color=TEXT, alpha=0.25, linewidth=0.8)


def count_text(value: float) -> str:
    """A count that fits a label: 950, 12.3 k, 1.2 M."""
    for limit, divisor, unit in ((1e6, 1e6, " M"), (1e4, 1e3, " k")):
        if abs(value) >= limit:
            return f"{value / divisor:,.1f}".removesuffix(".0") + unit
    return f"{value:,.1f}".removesuffix(".0")


def _change_text(row: Mapping[Any, Any]) -> str:
    signs = (("inserted", "+"), ("updated", "~"), ("deleted", "-"))
    parts = [f"{sign}{count_text(row[name])}" for name, sign in signs if row[name]]
    return "  ".join(parts) or "no row changed"


def _snapshot_label(row: Mapping[Any, Any]) -> str:
    committed = row["committed_at"]
    moment = committed.strftime("%H:%M:%S") if hasattr(committed, "strftime") else str(committed)
    return f"{row['operation']}  {moment}\n…{str(row['snapshot_id'])[-6:]}"


def _sentence(text: str) -> Figure:
    """Return a figure that is only a sentence: empty charts would say less."""
    figure, (axes,) = panels(1, height=0.6)
    _say(axes, text, left=True)
    return figure


def _say(axes: Axes, text: str, left: bool = False) -> None:
    place, side = (0.0, "left") if left else (0.5, "center")
    axes.text(place, 0.5, text, ha=side, va="center", transform=axes.transAxes, color=TEXT)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)


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
        names = [str(name) for name in self.columns]
        rows = [
            [
                Cell(cell_text(value, name), right=_is_number(value, name))
                for name, value in zip(names, row, strict=True)
            ]
            for row in self.itertuples(index=False, name=None)
        ]
        head = [Cell(name, right=cell.right) for name, cell in zip(names, rows[0], strict=True)]
        if named:
            head = [Cell(""), *head] if len(head) > 1 else []
            rows = [[Cell(str(label), tag="th"), *row] for label, row in zip(self.index, rows, strict=True)]
        return html_table(head, rows) + (f"<p>{escape(self.note)}</p>" if self.note else "")

    def __repr__(self) -> str:
        if self.empty:
            return self.empty_text
        return "\n".join(filter(None, (super().__repr__(), self.note)))


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


class Cell(NamedTuple):
    """A cell of a table; ``kind`` is one of `COLOURS`, ``before`` a value that it replaced."""

    text: str
    kind: str = ""
    before: str | None = None
    right: bool = False
    tag: str = "td"


COLOURS: Mapping[str, str] = {
    "insert": "rgba(42, 157, 143, .22)",
    "update": "rgba(51, 101, 138, .28)",
    "delete": "rgba(209, 73, 91, .20)",
    "before": "rgba(209, 73, 91, .20)",
    "after": "rgba(42, 157, 143, .22)",
}


def html_table(head: Sequence[Cell], rows: Iterable[Sequence[Cell]]) -> str:
    """Return an HTML table; every text in it is escaped."""
    heads = "".join(_cell(cell._replace(tag="th")) for cell in head)
    lines = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    heading = f"<thead><tr>{heads}</tr></thead>" if head else ""
    return f'<div style="overflow-x: auto"><table>{heading}<tbody>{lines}</tbody></table></div>'


def _cell(cell: Cell) -> str:
    is_long = len(cell.text) + len(cell.before or "") > _LONGEST_LINE or "\n" in cell.text
    style = _CELL.format(side="right" if cell.right else "left", wrap="pre-wrap" if is_long else "nowrap")
    if cell.kind:
        style += f"; background: {COLOURS[cell.kind]}"
    before = "" if cell.before is None else f"<s>{escape(cell.before)}</s> → "
    return f'<{cell.tag} style="{style}">{before}{escape(cell.text)}</{cell.tag}>'
