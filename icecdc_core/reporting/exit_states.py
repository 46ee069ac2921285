"""How a run ended, in one word and one exit code for each: what a scheduler needs to decide what to do next."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from icecdc_core.errors import IcecdcError, shorten
from icecdc_core.secrets import mask_secrets


class ExitState(NamedTuple):
    code: int
    meaning: str
    action: str


EXIT_STATES: dict[str, ExitState] = {
    "ok": ExitState(0, "done, or nothing to do", "nothing"),
    "failed": ExitState(1, "an unexpected error", "see the log and please report it"),
    "config": ExitState(2, "a parameter or the environment is wrong", "correct it; a retry does not help"),
    "changes": ExitState(
        2, "a plan found something to do (a wrong parameter of a plan ends with 1)", "review it, then sync"
    ),
    "data": ExitState(
        3, "rows or documents cannot be indexed", "correct the rows, or allow them; a retry does not help"
    ),
    "reexport": ExitState(
        4,
        "the changes can no longer be read",
        "follow the remedy: correct a parameter, run the export, or set on_history_gap or on_schema_change",
    ),
    "retry": ExitState(5, "a service did not answer, or not in time", "run again; alert if it persists"),
    "locked": ExitState(
        6, "another run has locked the index", "nothing, the other run does the work; run a validation again"
    ),
    "access": ExitState(7, "credentials or permissions were refused", "correct them; a retry does not help"),
    "differs": ExitState(
        8,
        "a validation found a difference, or syncs found documents missing",
        "sync if the index is behind; else replay dead letters, validate with repair, and find out who else writes the "
        "index",
    ),
    "partial": ExitState(
        9, "an ingest could not write some of its tables", "remove the cause; the next run reads their records again"
    ),
    "lost": ExitState(
        10, "a topic lost records, or a table lost what an ingest wrote", "find out why, then follow the remedy"
    ),
    "behind": ExitState(
        11, "an index lacks changes, or a table records", "run a sync or an ingest; if one runs, wait for it"
    ),
    "unknown": ExitState(
        12,
        "whether an index, or a table of an ingest, is up to date is not known",
        "give status the parameters of the sync or ingest; --tables asks Spark",
    ),
    "lagging": ExitState(
        13,
        "an index is later than its freshness_slo, or did not get in time what a wait was for",
        "see whether a sync polls; if it fails, do what it says",
    ),
}


def state_of(error: BaseException | None) -> str:
    """The state of a run that ended with this error; None: it did what it was asked for."""
    return "ok" if error is None else error.state if isinstance(error, IcecdcError) else "failed"


def exit_code(state: str, job: str | None) -> int:
    """A plan ends as one of Terraform: 2 means changes, so its own failures never do."""
    return 1 if (job, state) == ("plan", "config") else EXIT_STATES[state].code


def utc_now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


LONGEST_MESSAGE = 20_000
REPORT = "icecdc_report"  # the attribute of an error that holds the report of the run that it ended


def failure_report(error: BaseException, facts: dict[str, Any]) -> dict[str, Any]:
    """Return the report of a failed run, as a scheduler reads it; the error may have it already."""
    if known := getattr(error, REPORT, None):
        return dict(known)
    state, now = state_of(error), datetime.now(UTC)
    lag = facts.get("lag_seconds") if facts.get("lag_snapshots") else None
    if lag is not None:  # it was read when the run began
        lag += (facts.get("seconds") or 0) - facts.get("lag_read_at", 0)
    about = {name: facts.get(name) for name in ("job", "table", "index", "run_id", "seconds", "stage")}
    text = shorten(str(error), LONGEST_MESSAGE) if isinstance(error, IcecdcError) else type(error).__name__
    remedy = getattr(error, "remedy", "")
    if isinstance(error, KeyboardInterrupt):
        text, remedy = "The run was interrupted", "run it again; the next run finishes what this one began"
    # Each of several problems names its own remedy, and an error raised on an executor arrives as text.
    remedies = re.findall(r"Remedy: (.*?)\.?$", text, re.MULTILINE)
    return {
        **about,
        "state": state,
        "exit_code": exit_code(state, about["job"]),
        "error": type(error).__name__,
        "message": text,
        "remedy": remedy or "; ".join(remedies) or EXIT_STATES[state].action,
        "ended_at": now.isoformat(timespec="seconds"),
        "behind_since": (now - timedelta(seconds=lag)).isoformat(timespec="seconds") if lag else "",
    }


def reason_without_values(error: BaseException) -> str:
    """Return why a run failed without its message, which may quote a row: the class, what it means and the remedy."""
    kind, state = type(error).__name__, EXIT_STATES[state_of(error)]
    remedy = error.remedy if isinstance(error, IcecdcError) else ""
    return shorten(mask_secrets(f"{kind}: {state.meaning}; the log has the details. Remedy: {remedy or state.action}"))
