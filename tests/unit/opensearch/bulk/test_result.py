"""How results are added, and how many rejected documents are too many."""

from __future__ import annotations

from dataclasses import fields

import pytest

from icecdc_core.errors import RejectedDocumentsError
from icecdc_core.opensearch.bulk import BulkResult, require_accepted
from icecdc_core.opensearch.counts import Counts


class DescribeCounts:
    def it_adds_every_counter(self):
        ones = range(1, len(fields(Counts)) + 1)
        tens = [10 * number for number in ones]
        assert Counts(*ones) + Counts(*tens) == Counts(*(11 * number for number in ones))


class DescribeBulkResult:
    def it_counts_the_operations_that_are_done(self):
        assert Counts(upserts=1, deletes=20, already_applied=300, rejected=4000, retries=9).operations == 4321

    def it_adds_counts_and_keeps_some_samples_and_the_first_failure(self):
        one = BulkResult(Counts(upserts=1, rejected=15), [{"id": "a"}] * 15, failure={"error": "first"})
        total = one + BulkResult(Counts(upserts=2, rejected=15), [{"id": "b"}] * 15, failure={"error": "second"})
        assert (total.counts.upserts, total.counts.rejected, len(total.rejected_samples), total.failure) == (
            3,
            30,
            20,
            {"error": "first"},
        )

    def it_keeps_the_document_with_the_newest_version(self):
        total = BulkResult(newest_version=3, newest_id="a") + BulkResult(newest_version=2, newest_id="b")
        assert (total.newest_version, total.newest_id) == (3, "a")

    def it_is_read_as_it_was_written(self):
        result = BulkResult(Counts(1, 2, 3, 4), [{"id": "a"}], [{"action": "é"}], {"error": "x"}, 5, "b")
        assert BulkResult.from_json(result.to_json()) == result


class DescribeRequireAccepted:
    def it_accepts_as_many_rejected_documents_as_allowed(self):
        require_accepted(BulkResult(Counts(rejected=2), [{"id": "7", "status": 400, "reason": "too odd"}]), 2)

    def it_refuses_more_naming_the_first_and_the_remedy(self):
        result = BulkResult(Counts(rejected=3), [{"id": "7", "status": 400, "reason": "too odd"}])
        with pytest.raises(RejectedDocumentsError, match=r"'7': too odd \[max_rejected_documents=2\]\. Remedy: "):
            require_accepted(result, 2)
