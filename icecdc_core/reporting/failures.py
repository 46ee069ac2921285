"""The report of a failed run, as a scheduler reads it; needs no Spark, so that a missing one is reported too."""

from __future__ import annotations

import re
from typing import Any

from icecdc_core.errors import IcecdcError
from icecdc_core.reporting.exit_states import EXIT_STATES, exit_code, state_of
from icecdc_core.secrets import shorten

LONGEST_MESSAGE = 20_000
_INTERRUPTED = "The run was interrupted"
_AFTER_AN_INTERRUPT = "run it again; the next run finishes or repeats what this one began"
REPORT = "icecdc_report"
"""The attribute of an error that holds the report of the run that it ended."""


def failure_report(error: BaseException, facts: dict[str, Any]) -> dict[str, Any]:
    """Return the report of a failed run, as a scheduler reads it."""
    state = state_of(error)
    known = {name: facts.get(name) for name in ("job", "table", "index", "run_id", "seconds", "stage")}
    text = shorten(str(error), LONGEST_MESSAGE) if isinstance(error, IcecdcError) else type(error).__name__
    remedy = getattr(error, "remedy", "")
    if isinstance(error, KeyboardInterrupt):
        text, remedy = _INTERRUPTED, _AFTER_AN_INTERRUPT
    # Each of several problems names its own remedy, and an error raised on an executor arrives as text.
    remedies = re.findall(r"Remedy: (.*?)\.?$", text, re.MULTILINE)
    return {
        **known,
        "state": state,
        "exit_code": exit_code(state),
        "error": type(error).__name__,
        "message": text,
        "remedy": remedy or "; ".join(remedies) or EXIT_STATES[state].action,
    }


def failure_of(error: BaseException) -> dict[str, Any] | None:
    """Return the report of the run that this error ended; None if no run had begun."""
    report: dict[str, Any] | None = getattr(error, REPORT, None)
    return report
