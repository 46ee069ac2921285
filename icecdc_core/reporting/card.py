"""How a report looks: a card with what came out in a word and a colour, one figure, and all values below.

Styles are inline, so it looks the same in a notebook, a page and a mail. Texts have the colour of the page and most
backgrounds are translucent, so they can be read on light and on dark.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from datetime import datetime
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

from icecdc_core.reporting.exit_states import EXIT_STATES

if TYPE_CHECKING:
    from icecdc_core.reporting.reports import Report

IN_SYNC, BEHIND, FAILED, NOTHING, UNKNOWN = "in sync", "behind", "failed", "nothing to do", "lag unknown"
_GREEN, _AMBER, _RED, _GREY = "#1f7a6f", "#a85f00", "#b3243c", "#5b6672"
_COLOURS = {BEHIND: _AMBER, "differs": _AMBER, FAILED: _RED, NOTHING: _GREY, UNKNOWN: _GREY}
_FRAME = (
    "border: 1px solid {line}; border-left: 8px solid {colour}; border-radius: 6px; padding: .8em 1em; "
    "max-width: 60em; box-sizing: border-box"
)
_WORD = (
    "background: {colour}; color: #fff; border-radius: 4px; padding: .15em .6em; font-size: 1.2em; font-weight: bold"
)
_LINE = "rgba(128, 138, 150, .45)"
_MUTED = "opacity: .75"


class Card(NamedTuple):
    """What a person reads first: a word, what the report is about, what came out, a few facts, and what to run next."""

    word: str
    title: str
    what: str
    facts: list[tuple[str, str]]
    command: str = ""


def command_for(job: str, table: str | None, index: str | None) -> str:
    """Return the command that runs a job on an index."""
    if job == "ingest":
        return f"icecdc ingest --job {shlex.quote(index or '...')}"
    parts = [f"--{name} {shlex.quote(value)}" for name, value in (("table", table), ("index", index)) if value]
    return " ".join([f"icecdc {job}", *parts])


def moment(text: str) -> str:
    """Return an ISO time as a person reads it."""
    return f"{datetime.fromisoformat(text):%Y-%m-%d %H:%M:%S} UTC" if text else ""


def snapshots_text(snapshot_id: int | None, nested: Mapping[str, int | None]) -> str:
    """Return the snapshot of a table and those of its nested tables as a person reads them."""
    others = ", ".join(f"{table} {each}" for table, each in nested.items())
    return f"snapshot {snapshot_id}" + (f" ({others})" if others else "")


_SAFE = (
    "No. What is read stays as it is. Positions and offsets move after what they stand for is written: the next run "
    "repeats or resumes what this one began, without loss and without duplicates."
)
_LOST = (
    "What icecdc wrote is safe. But the topic or the table no longer has everything that was in it, so find out why "
    "before you go on."
)
_NEXT = {"config": "setup", "access": "setup", "data": "setup", "reexport": "export", "differs": "repair"}


def failure_card(report: Mapping[str, Any]) -> Card:
    """Return the card of a run that failed, from the report of its failure."""
    state, job = str(report["state"]), str(report.get("job") or "run")
    table, index = report.get("table"), report.get("index")
    ingests = job == "ingest"
    seconds = report.get("seconds")
    when = moment(report.get("ended_at", "")) + ("" if seconds is None else f", after {seconds:,.1f} s")
    stage = f", in the stage {report['stage']}" if report.get("stage") else ""
    since = moment(report.get("behind_since", ""))
    log = "the log at log_path" if ingests else command_for("status", None, index)
    facts = [
        ("Failed", when + stage),
        ("Since", f"the index lacks commits since {since}" if since else f"the last run, see {log}"),
        ("Data at risk", _LOST if state == "lost" else _SAFE),
        ("What to do", str(report["remedy"])),
        ("Shows more", f"{log}; {report['error']} on the page Errors of the documentation"),
        ("Run id", str(report.get("run_id") or "")),
    ]
    message = str(report["message"])
    if message.count("Remedy: ") == 1:  # which stands below
        message = message.partition(" Remedy: ")[0]
    what = f"{report['error']}: {message} (exit code {report['exit_code']}: {EXIT_STATES[state].meaning})"
    next_job = job if job in ("ingest", "init") else _NEXT.get(state, job)
    word = NOTHING if state == "locked" else FAILED
    return Card(word, f"{job} of {index or table or '?'}", what, facts, command_for(next_job, table, index))


def _more_options(command: str) -> str:
    """What a command needs besides, as a person has to give it again."""
    if not command or " --file " in command:
        return ""
    if " --index " not in command:
        return "with the options of this run"
    return "with the options of this run; for an index of a file: --file and --only instead of table and index"


def card_html(card: Card) -> str:
    """Return a card as HTML, every text escaped."""
    colour = _COLOURS.get(card.word, _GREEN)
    lines = f'<p style="margin: .6em 0; white-space: pre-line; overflow-wrap: anywhere">{escape(card.what)}</p>'
    lines += "".join(_pair(name, escape(value)) for name, value in card.facts if value)
    if card.command:
        code = f'<code style="overflow-wrap: anywhere">{escape(card.command)}</code>'
        lines += _pair("Run next", f'{code} <span style="{_MUTED}">{escape(_more_options(card.command))}</span>')
    return (
        f'<div style="{_FRAME.format(line=_LINE, colour=colour)}; margin: .5em 0; line-height: 1.5">'
        f'<span style="{_WORD.format(colour=colour)}">{escape(card.word.upper())}</span> '
        f'<b style="font-size: 1.1em; overflow-wrap: anywhere">{escape(card.title)}</b>{lines}</div>'
    )


def card_text(card: Card) -> str:
    """Return a card as plain text, for a terminal."""
    more = _more_options(card.command)
    facts = [*card.facts, ("Run next", f"{card.command} ({more})" if more else card.command)]
    lines = [f"{name:<14}  {value}" for name, value in facts if value]
    return "\n".join(filter(None, [f"{card.word.upper()}  {card.title}", card.what, *lines]))


def _pair(name: str, html: str) -> str:
    name = f'<span style="flex: 0 0 10.5em; {_MUTED}">{escape(name)}</span> '
    value = f'<span style="flex: 1 1 16em; white-space: pre-line; overflow-wrap: anywhere">{html}</span>'
    return f'<div style="display: flex; flex-wrap: wrap; margin: .15em 0">{name}{value}</div>'


def rewritten_figure(report: Mapping[str, Any]) -> str:
    """Rows that the table's commits rewrote, rows that really changed, and documents written, each with a bar.

    Empty if the commits rewrote nothing but what changed: an update is two rows there, the old one and the new one.
    """
    written, rewritten = report["upserts"] + report["deletes"], report["rows_rewritten"] or 0
    changed = written + report["already_applied"] + report["rejected"]
    if rewritten <= 2 * changed:
        return ""
    note = "an updated row counts twice, old and new; compactions are left out"
    others = "the others are carryovers (rows of rewritten files that stayed the same) or not selected"
    kinds = f"{report['upserts']:,} upserts, {report['deletes']:,} deletes"
    html = ""
    for count, colour, label, about in (
        (rewritten, "#8a94a0", "rows rewritten by the table's commits", note),
        (changed, "#4a86b5", "rows really changed", f"{changed / rewritten:.2%}; {others}"),
        (written, "#2a9d8f", f"documents {'to write' if report['dry_run'] else 'written'}", kinds),
    ):
        text = f'<b>{count:,}</b> {label} <span style="{_MUTED}; font-size: .9em">({about})</span>'
        width = max(100 * count / rewritten, 0.4 if count else 0)
        bar = f'<div style="background: {colour}; width: {width:.1f}%; height: 14px; border-radius: 3px"></div>'
        bar = f'<div style="background: rgba(128, 138, 150, .15); border-radius: 3px">{bar}</div>'
        html += f'<div style="max-width: 60em; margin: .7em 0; line-height: 1.5">{text}{bar}</div>'
    return html


def report_html(report: Report | Mapping[str, Any]) -> str:
    """Return a report as HTML: the card, the figure, and all values folded; of a failed run the card."""
    if isinstance(report, Mapping):
        return card_html(failure_card(report))
    values = "".join(
        _pair(name, f'{escape(text)} <span style="{_MUTED}; font-size: .9em">{escape(meaning)}</span>')
        for name, text, meaning in report.values()
    )
    values = f'<details style="margin: .5em 0"><summary>All values</summary>{values}</details>'
    return card_html(report.card()) + report.figure() + values


def report_page(report: Report | Mapping[str, Any]) -> str:
    """Return a report as an HTML page that needs nothing else."""
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>icecdc</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<style>:root { color-scheme: light dark } body { font: 16px/1.5 system-ui, sans-serif; margin: 1em auto; "
        "max-width: 60em; padding: 0 .8em } code { font-family: ui-monospace, monospace }</style></head>"
        f"<body>{report_html(report)}</body></html>\n"
    )
