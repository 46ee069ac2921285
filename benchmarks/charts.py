"""The figures of a run: how time grows, and the memory of every process over a large batch."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

INSERTED, UPDATED, DELETED, NEUTRAL = "#2a9d8f", "#d98e25", "#d1495b", "#4a86b5"
# The background is transparent, and this grey can be read on white and on black alike.
_TEXT = "#7d8590"
STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 12,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": _TEXT,
    "axes.facecolor": "none",
    "axes.labelcolor": _TEXT,
    "xtick.color": _TEXT,
    "ytick.color": _TEXT,
    "text.color": _TEXT,
    "axes.titlecolor": _TEXT,
}
GROWTH = "time against "
# Axes with a larger ratio of largest to smallest value are logarithmic.
_DECADE = 10
_COLOURS = {"executor JVM": NEUTRAL, "driver JVM": INSERTED, "Python workers": UPDATED, "driver Python": DELETED}


def draw(found: Mapping[str, Any], folder: Path) -> None:
    """Write ``growth.png`` and ``memory.png`` from what ``bench.json`` holds, for the parts that were measured."""
    growth = {title.removeprefix(GROWTH): s for title, s in found["seconds"].items() if title.startswith(GROWTH)}
    if growth:
        growth_figure(growth).savefig(folder / "growth.png", dpi=110)
    if found["memory"]:
        memory_figure(found["memory"]).savefig(folder / "memory.png", dpi=110)


def growth_figure(growth: Mapping[str, Mapping[str, Sequence[float]]]) -> Figure:
    """One chart for each thing that grows: the seconds of every round as dots, their medians as a line."""
    with rc_context(STYLE):
        figure, charts = _panels(len(growth), height=3.0)
        for axes, (what, seconds_of) in zip(charts, growth.items(), strict=True):
            sizes = [int(size) for size in seconds_of]
            medians = [statistics.median(seconds) for seconds in seconds_of.values()]
            axes.plot(sizes, medians, color=NEUTRAL, marker="o", markersize=5, linewidth=1.6)
            for size, seconds in zip(sizes, seconds_of.values(), strict=True):
                axes.plot([size] * len(seconds), seconds, linestyle="", marker=".", markersize=3, color=DELETED)
            _scaled(axes, sizes)
            bottom, top = min(map(min, seconds_of.values())), max(map(max, seconds_of.values()))
            if top > _DECADE * bottom:
                axes.set_yscale("log")
                for formatted in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
                    formatted(FuncFormatter(lambda value, _: _count_text(value)))
            else:
                axes.set_ylim(0, top * 1.15)
            axes.set_title(what.capitalize())
        charts[0].set_ylabel("seconds")
        return figure


def memory_figure(memory: Mapping[str, Any]) -> Figure:
    """The resident memory of every process over the run."""
    with rc_context(STYLE):
        figure, (axes,) = _panels(1, height=3.4)
        samples = memory["samples"]
        for kind, colour in _COLOURS.items():
            axes.plot([s["seconds"] for s in samples], [s[kind] for s in samples], color=colour, label=kind)
        axes.axhline(memory["executor_bytes"] / 1e6, color="#8d99a6", linestyle=":", label="executor's heap limit")
        times = memory["change_set_bytes"] / memory["executor_bytes"]
        spilled = memory["spilled_bytes"] / 1e9
        axes.set_title(f"A change set of {times:.0f} times the executor's heap ({spilled:.1f} GB spilled)")
        axes.set_xlabel("seconds")
        axes.set_ylabel("megabytes resident")
        axes.set_ylim(0, None)
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
        return figure


def _panels(count: int, height: float) -> tuple[Figure, Sequence[Axes]]:
    figure = Figure(figsize=(9.0, height), layout="constrained", facecolor="none")
    axes = figure.subplots(1, count, squeeze=False)[0]
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.08)  # type: ignore[union-attr, call-arg]
    return figure, list(axes)


def _count_text(value: float) -> str:
    """A count that fits a label: 950, 12.3 k, 1.2 M."""
    for limit, divisor, unit in ((1e6, 1e6, " M"), (1e4, 1e3, " k")):
        if abs(value) >= limit:
            return f"{value / divisor:,.1f}".removesuffix(".0") + unit
    return f"{value:,.1f}".removesuffix(".0")


def _scaled(axes: Axes, sizes: Sequence[int]) -> None:
    if max(sizes) > _DECADE * min(sizes):
        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(sizes)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _count_text(value)))
    axes.set_axisbelow(True)
    axes.grid(axis="y", color="#e4e9ee", linewidth=0.8)
