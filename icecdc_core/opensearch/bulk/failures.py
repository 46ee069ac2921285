"""Failures that end a bulk write: plain data, because they travel from the executors, and the typed errors of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opensearchpy.exceptions import OpenSearchException

from icecdc_core.errors import (
    IcecdcError,
    IndexNotFoundError,
    OpenSearchAuthError,
    OpenSearchRequestError,
    OpenSearchUnreachableError,
)
from icecdc_core.opensearch.client import Connection, typed_error
from icecdc_core.secrets import shorten

_ERRORS: dict[str, type[IcecdcError]] = {
    error.__name__: error
    for error in (IndexNotFoundError, OpenSearchAuthError, OpenSearchRequestError, OpenSearchUnreachableError)
}


def failure_error(failure: Mapping[str, Any]) -> IcecdcError:
    """Return the typed error of a failure."""
    details = dict(failure)
    return _ERRORS[details.pop("error")](details.pop("message"), **details)


def alias_missing(alias: str) -> dict[str, Any]:
    """Return the failure for a write alias that does not exist."""
    return _failure(
        IndexNotFoundError(
            f"The write alias '{alias}' is gone: the index was deleted while it was written",
            subject="index",
            value=alias,
            remedy="run the export again; it builds a new index behind the alias",
        )
    )


def writes_refused(alias: str, status: int, error: Mapping[str, Any]) -> dict[str, Any]:
    """Return the failure for an index that accepts no writes."""
    return _failure(
        OpenSearchRequestError(
            shorten(f"OpenSearch rejects all writes: {status} {error.get('type')}: {error.get('reason')}"),
            subject="index",
            value=alias,
            remedy="remove the cause (a write block, a full disk, missing permissions), then run again",
        )
    )


def retries_exhausted(reason: Any, seconds: float) -> dict[str, Any]:
    """Return the failure for operations that the cluster refused until the retries ended."""
    return _failure(
        OpenSearchUnreachableError(
            f"OpenSearch kept refusing documents for {seconds:g} s: {shorten(str(reason))}",
            subject="retry_timeout_seconds",
            value=seconds,
            remedy="relieve the cluster (disk space, write queue) or allow more time; the position did not move",
        )
    )


def request_failed(error: OpenSearchException, connection: Connection) -> dict[str, Any]:
    """Return the failure for a request that failed as a whole."""
    known = typed_error(error, connection.url, "a bulk request", connection.username)
    return _failure(known if isinstance(known, IcecdcError) else OpenSearchRequestError(str(known)))


def _failure(error: IcecdcError) -> dict[str, Any]:
    return {
        "error": type(error).__name__,
        "message": error.message,
        "subject": error.subject,
        "value": error.value,
        "remedy": error.remedy,
    }
