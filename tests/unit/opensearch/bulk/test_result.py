"""How results are added, and how many rejected documents are too many."""

from __future__ import annotations

import pickle
from dataclasses import fields, replace

import pytest

from icecdc_core.errors import IcecdcError, IndexNotFoundError, RejectedDocumentsError
from icecdc_core.opensearch.bulk import BulkResult, require_accepted
from icecdc_core.opensearch.counts import Counts

LETTER = {"action": '{"index":{"_id":"7"}}\n{}\n', "status": 400, "reason": "too odd"}
FIRST, SECOND = IcecdcError("first"), IcecdcError("second")


class DescribeCounts:
    def it_adds_every_counter(self):
        ones = range(1, len(fields(Counts)) + 1)
        tens = [10 * number for number in ones]
        assert Counts(*ones) + Counts(*tens) == Counts(*(11 * number for number in ones))


class DescribeBulkResult:
    def it_counts_the_operations_that_are_done(self):
        assert Counts(upserts=1, deletes=20, already_applied=300, rejected=4000, retries=9).operations == 4321

    def it_adds_counts_and_keeps_some_samples_and_the_first_failure(self):
        one = BulkResult(Counts(upserts=1, rejected=15), [LETTER] * 15, failure=FIRST)
        total = one + BulkResult(Counts(upserts=2, rejected=15), [LETTER] * 15, failure=SECOND)
        assert (total.counts.upserts, total.counts.rejected, len(total.rejected_samples), total.failure) == (
            3,
            30,
            20,
            FIRST,
        )

    def it_keeps_the_document_with_the_newest_version(self):
        total = BulkResult(newest_version=3, newest_id="a") + BulkResult(newest_version=2, newest_id="b")
        assert (total.newest_version, total.newest_id) == (3, "a")

    def it_travels_from_an_executor_with_its_failure(self):
        failure = IndexNotFoundError("gone", subject="index", value="t", remedy="export")
        result = BulkResult(Counts(1, 2, 3, 4), [{"action": "é"}], failure, 5, "b")
        read = pickle.loads(pickle.dumps(result))
        assert (replace(read, failure=None), str(read.failure)) == (replace(result, failure=None), str(failure))


def it_refuses_more_rejected_documents_than_allowed_naming_the_first_and_the_remedy():
    result = BulkResult(Counts(rejected=3), [LETTER])
    require_accepted(result, 3)
    with pytest.raises(RejectedDocumentsError, match=r"'7': too odd \[max_rejected_documents=2\]\. Remedy: "):
        require_accepted(result, 2)
