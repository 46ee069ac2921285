"""How a run ended, in one word and one exit code for each: what a scheduler needs to decide what to do next."""

from __future__ import annotations

from typing import NamedTuple

from icecdc_core import errors
from icecdc_core.errors import IcecdcError


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
        "follow the remedy: run the export, or set on_history_gap or on_schema_change",
    ),
    "retry": ExitState(5, "a service did not answer, or not in time", "run again; alert if it persists"),
    "locked": ExitState(
        6, "another run has locked the index", "nothing, the other run does the work; run a repair again"
    ),
    "access": ExitState(7, "credentials or permissions were refused", "correct them; a retry does not help"),
    "differs": ExitState(
        8, "a validation found a difference", "validate with repair; find out who else writes the index"
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
