"""The result of bulk requests: counts, samples of rejected documents, dead letters, and the failure that ended them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from icecdc_core.errors import RejectedDocumentsError
from icecdc_core.opensearch.bulk.counts import Counts

SAMPLES = 20
"""Rejected documents that a result shows."""

FAILED_DEAD_LETTERS = 1000
"""Dead letters that are kept of a batch that fails: enough to see what is wrong with its documents."""

# By the status of the first rejected document.
_REMEDIES = {
    200: "correct the ingest pipeline, or leave the rows out with `row_filter`",
    409: "find out who else writes to the index, then run the export (it builds a new index behind the alias, without "
    "downtime)",
}


@dataclass(frozen=True)
class BulkResult:
    """What happened to the operations of one or more bulk requests; results are added with ``+``."""

    counts: Counts = Counts()  # noqa: RUF009 (it is frozen)
    rejected_samples: list[dict[str, Any]] = field(default_factory=list)
    dead_letters: list[dict[str, Any]] = field(default_factory=list)
    failure: dict[str, Any] | None = None
    newest_version: int = 0
    newest_id: str = ""

    def __add__(self, other: BulkResult) -> BulkResult:
        """Return the result of both; of two failures the first one stays."""
        newest = max(self, other, key=lambda result: result.newest_version)
        return BulkResult(
            self.counts + other.counts,
            [*self.rejected_samples, *other.rejected_samples][:SAMPLES],
            [*self.dead_letters, *other.dead_letters],
            self.failure or other.failure,
            newest.newest_version,
            newest.newest_id,
        )

    def to_json(self) -> str:
        """Return the result as the text that an executor sends to the driver."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> BulkResult:
        """Read what `to_json` wrote."""
        found = json.loads(text)
        return cls(Counts(**found.pop("counts")), **found)


def require_accepted(result: BulkResult, max_rejected_documents: int, before: int = 0) -> None:
    """Check that no more documents were rejected than allowed."""
    rejected = result.counts.rejected + before
    if result.counts.rejected and rejected > max_rejected_documents:
        first = result.rejected_samples[0]
        remedy = _REMEDIES.get(first["status"], "correct the rows or leave the column out with `columns`")
        error = RejectedDocumentsError(
            f"At least {rejected} documents were rejected, {max_rejected_documents} are allowed; "
            f"the first is '{first['id']}': {first['reason']}",
            subject="max_rejected_documents",
            value=max_rejected_documents,
            remedy=f"{remedy}, or allow that many rejected documents",
        )
        error.dead_letters = result.dead_letters[:FAILED_DEAD_LETTERS]
        raise error
