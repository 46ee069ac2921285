"""How a run ended, in one word and one exit code for each: what a scheduler needs to decide what to do next."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from icecdc_core import errors
from icecdc_core.errors import IcecdcError
from icecdc_core.secrets import mask_secrets, shorten


class ExitState(NamedTuple):
    """A way for a run to end."""

    code: int
    meaning: str
    action: str


EXIT_STATES: dict[str, ExitState] = {
    "ok": ExitState(0, "done, or nothing to do", "nothing"),
    "failed": ExitState(1, "an unexpected error", "see the log and please report it"),
    "config": ExitState(2, "a parameter or the environment is wrong", "correct it; a retry does not help"),
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
        6, "another run has locked the index", "nothing, the other run does the work; run a repair again"
    ),
    "access": ExitState(7, "credentials or permissions were refused", "correct them; a retry does not help"),
    "differs": ExitState(
        8,
        "a validation or a status found a difference",
        "follow the remedy; after a validation, validate with repair and find out who else writes the index",
    ),
    "partial": ExitState(
        9, "an ingest could not write some of its tables", "remove the cause; the next run reads their records again"
    ),
    "lost": ExitState(
        10,
        "a topic lost records, or a table lost what an ingest wrote",
        "find out why, then follow the remedy",
    ),
}
"""Every state with its exit code, its meaning and what to do about it."""

_STATES: dict[type[IcecdcError], str] = {
    errors.ConfigError: "config",
    errors.ColumnNotFoundError: "config",
    errors.IdentifierColumnsError: "config",
    errors.TableNotFoundError: "config",
    errors.IndexConflictError: "config",
    errors.PositionError: "config",
    errors.JavaNotFoundError: "config",
    errors.DependencyError: "config",
    errors.UnsupportedTypeError: "config",
    errors.PortInUseError: "config",
    errors.DuplicateIdentifierError: "data",
    errors.RejectedDocumentsError: "data",
    errors.DataReadError: "data",
    errors.TableReplacedError: "reexport",
    errors.HistoryGapError: "reexport",
    errors.HiddenHistoryError: "reexport",
    errors.SchemaChangeError: "reexport",
    errors.IndexNotFoundError: "reexport",
    errors.DocumentVersionError: "reexport",
    errors.CatalogError: "retry",
    errors.OpenSearchUnreachableError: "retry",
    errors.OpenSearchRequestError: "retry",
    errors.DownloadError: "retry",
    errors.DiskFullError: "retry",
    errors.SparkJobError: "retry",
    errors.ServiceStartError: "retry",
    errors.FencedError: "locked",
    errors.TableLockedError: "locked",
    errors.OpenSearchAuthError: "access",
    errors.SecretError: "access",
    errors.IndexDiffersError: "differs",
    errors.SchemaRegistryError: "retry",
    errors.KafkaError: "retry",
    errors.KafkaUnreachableError: "retry",
    errors.KafkaAuthError: "access",
    errors.TopicNotFoundError: "config",
    errors.LostOffsetsError: "lost",
    errors.TopicReplacedError: "lost",
    errors.TableResetError: "lost",
    errors.ConcurrentIngestError: "locked",
    errors.IngestWriteError: "retry",
}


def state_of(error: BaseException | None) -> str:
    """The state of a run that ended with this error; None: it did what it was asked for."""
    if error is None:
        return "ok"
    return next((_STATES[kind] for kind in type(error).__mro__ if kind in _STATES), "failed")


def exit_code(state: str) -> int:
    """The exit code of a state."""
    return EXIT_STATES[state].code


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


# The messages of these have names, counts and addresses only. An error of any other class, a new one too, may quote a
# row: an answer that was cut off has ids of documents, and a condition fails with the value that it met.
_WITHOUT_VALUES = frozenset(
    {
        errors.CatalogError,
        errors.ColumnNotFoundError,
        errors.ConcurrentIngestError,
        errors.DependencyError,
        errors.DiskFullError,
        errors.FencedError,
        errors.HiddenHistoryError,
        errors.HistoryGapError,
        errors.IndexConflictError,
        errors.IndexDiffersError,
        errors.IndexNotFoundError,
        errors.KafkaAuthError,
        errors.KafkaError,
        errors.KafkaUnreachableError,
        errors.LostOffsetsError,
        errors.OpenSearchAuthError,
        errors.PositionError,
        errors.SchemaChangeError,
        errors.SchemaRegistryError,
        errors.SecretError,
        errors.TableLockedError,
        errors.TableNotFoundError,
        errors.TableReplacedError,
        errors.TableResetError,
        errors.TopicNotFoundError,
        errors.TopicReplacedError,
        errors.UnsupportedTypeError,
    }
)
# Expressions, which a changed selection shows, may have values: `region = 'EU'`.
_EXPRESSIONS = re.compile(r"\b(select|row_filter)=")


def reason_without_values(error: BaseException) -> str:
    """Return why a run failed: the message of an error that has no values, else what its class means."""
    kind, state = type(error).__name__, EXIT_STATES[state_of(error)]
    if type(error) in _WITHOUT_VALUES and not _EXPRESSIONS.search(str(error)):
        return shorten(mask_secrets(f"{kind}: {error}"))
    remedy = error.remedy if isinstance(error, IcecdcError) else ""
    return shorten(mask_secrets(f"{kind}: {state.meaning}; the log has the details. Remedy: {remedy or state.action}"))
