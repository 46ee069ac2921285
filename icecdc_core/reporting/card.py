"""How a report looks: a card with inline styles, the same in a notebook, a page and a mail, on light and on dark."""

import re
import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any, NamedTuple

IN_SYNC, BEHIND, FAILED, NOTHING, UNKNOWN = "in sync", "behind", "failed", "nothing to do", "lag unknown"
UP_TO_DATE = "up to date"
_MOST_WORDS = 90  # characters
_GREEN, _AMBER, _RED, _GREY = "#1f7a6f", "#a85f00", "#b3243c", "#5b6672"
_COLOURS = {BEHIND: _AMBER, "differs": _AMBER, "changes": _AMBER, FAILED: _RED, NOTHING: _GREY, UNKNOWN: _GREY}


class Card(NamedTuple):
    """What a person reads first: a word, what the report is about, what came out, a few facts, and what to run next."""

    word: str
    title: str
    what: str
    facts: list[tuple[str, str]]
    command: str = ""


def command_for(job: str, table: str | None, index: str | None) -> str:
    if job == "ingest":
        return f"icecdc ingest --job {shlex.quote(index or '...')}"
    parts = [f"--{name} {shlex.quote(value)}" for name, value in (("table", table), ("index", index)) if value]
    return " ".join([f"icecdc {job}", *parts])


def moment(text: str) -> str:
    """An ISO time for people: to the second, in UTC."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return text
    return f"{time.astimezone(UTC) if time.tzinfo else time:%Y-%m-%d %H:%M:%S} UTC"


def lag_text(snapshots: int, seconds: float | None) -> str:
    return f"{snapshots:,} snapshots, {seconds or 0.0:,.0f} s behind" if snapshots else UP_TO_DATE


def in_few_words(message: str) -> str:
    """What an error says is wrong, for a cell of a table: without values and remedies."""
    words = re.split(r" \[|\.? Remedy: |:?\n", message, maxsplit=1)[0].rstrip(".")
    return words if len(words) <= _MOST_WORDS else f"{words[:_MOST_WORDS]}..."


def snapshots_text(snapshot_id: int | None, nested: Mapping[str, int | None]) -> str:
    others = ", ".join(f"{table} {each}" for table, each in nested.items())
    return f"snapshot {snapshot_id}" + (f" ({others})" if others else "")


_NEXT = {"config": "setup", "access": "setup", "data": "setup", "reexport": "export", "differs": "repair"}
_IS_SAFE = "No. The next run repeats or resumes what this one began, without loss and without duplicates."
_IS_LOST = "What icecdc wrote is safe, but the topic or the table has lost something: find out why before you go on."


def failure_card(report: Mapping[str, Any]) -> Card:
    state, job = str(report["state"]), str(report.get("job") or "run")
    table, index = report.get("table"), report.get("index")
    after = "" if report.get("seconds") is None else f", after {report['seconds']:,.1f} s"
    since = moment(report.get("behind_since", ""))
    facts = [
        ("Failed", moment(report["ended_at"]) + after),
        ("Since", f"the index lacks commits since {since}" if since else ""),
        ("Data at risk", _IS_LOST if state == "lost" else _IS_SAFE),
        ("What to do", str(report["remedy"])),
        ("Run id", str(report.get("run_id") or "")),
    ]
    message = str(report["message"]).removesuffix(f" Remedy: {report['remedy']}")  # which stands below
    what = f"{report['error']}: {message} (exit code {report['exit_code']})"
    next_job = job if job in ("ingest", "init") else _NEXT.get(state, job)
    if report["error"] == "SchemaChangeError":  # perhaps a parameter is wrong
        next_job = "setup"
    return Card(
        word=NOTHING if state == "locked" else FAILED,
        title=f"{job} of {index or table or '?'}",
        what=what,
        facts=facts,
        command=command_for(next_job, table, index),
    )


def card_html(card: Card) -> str:
    colour = _COLOURS.get(card.word, _GREEN)
    lines = f'<p style="margin: .6em 0; white-space: pre-line; overflow-wrap: anywhere">{escape(card.what)}</p>'
    for name, value in _facts(card):
        lines += (
            '<div style="display: flex; flex-wrap: wrap; margin: .15em 0"><span style="flex: 0 0 10.5em; opacity: .75">'
            f'{name}</span> <span style="flex: 1 1 16em; white-space: pre-line; overflow-wrap: anywhere">'
            f"{escape(value)}</span></div>"
        )
    return (
        f'<div style="border: 1px solid rgba(128, 138, 150, .45); border-left: 8px solid {colour}; border-radius: 6px; '
        'padding: .8em 1em; max-width: 60em; box-sizing: border-box; margin: .5em 0; line-height: 1.5">'
        f'<span style="background: {colour}; color: #fff; border-radius: 4px; padding: .15em .6em; font-size: 1.2em; '
        f'font-weight: bold">{escape(card.word.upper())}</span> '
        f'<b style="font-size: 1.1em; overflow-wrap: anywhere">{escape(card.title)}</b>{lines}</div>'
    )


Bar = tuple[str, float, str, str]
"""A name, a value, a remark, and the word of a card with its colour."""


def bars_html(title: str, bars: Sequence[Bar]) -> str:
    longest, lines = max((value for _, value, *_ in bars), default=0) or 1, f"<b>{escape(title)}</b>"
    for name, value, remark, word in bars:
        colour, width = _COLOURS.get(word, _GREEN), f"max(3px, {100 * value / longest:.1f}%)"
        lines += (
            '<div style="display: flex; flex-wrap: wrap; gap: 0 .8em; align-items: center; margin: .15em 0">'
            f'<span style="flex: 0 0 15em; overflow-wrap: anywhere">{escape(name)}</span> <span style="flex: 1 1 8em">'
            f'<span style="display: block; height: .9em; border-radius: 3px; background: {colour}; width: {width}">'
            f'</span></span> <span style="flex: 0 0 29.5em">{value:,}; {escape(remark)}</span></div>'
        )
    return f'<div style="max-width: 60em; margin: .8em 0; line-height: 1.5">{lines}</div>' if bars else ""


def card_text(card: Card) -> str:
    lines = [f"{name:<14}  {value}" for name, value in _facts(card)]
    return "\n".join(filter(None, [f"{card.word.upper()}  {card.title}", card.what, *lines]))


def _facts(card: Card) -> list[tuple[str, str]]:
    facts = [(name, value) for name, value in card.facts if value]
    if card.command:
        with_options = "" if " --file " in card.command else " (with the options of this run; with --file also --only)"
        facts.append(("Run next", card.command + with_options))
    return facts
