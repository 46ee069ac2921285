"""Why a run failed, for systems that more people read than the log: no value of a row, no secret."""

from __future__ import annotations

import re

from icecdc_core import errors
from icecdc_core.errors import IcecdcError
from icecdc_core.reporting.exit_states import EXIT_STATES, state_of
from icecdc_core.secrets import masked, shortened

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
        return shortened(masked(f"{kind}: {error}"))
    remedy = error.remedy if isinstance(error, IcecdcError) else ""
    return shortened(masked(f"{kind}: {state.meaning}; the log has the details. Remedy: {remedy or state.action}"))
