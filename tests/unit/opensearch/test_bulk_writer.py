"""How a column of actions is cut into requests, and what counts as too many rejected documents."""

from __future__ import annotations

import pyarrow as pa
import pytest

from icecdc_core.errors import RejectedDocumentsError
from icecdc_core.opensearch.bulk_writer import BulkResult, _data, _requests, require_accepted


def texts(*sizes, kind=None):
    """Actions of these sizes in bytes, each of another letter."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    return pa.array([letters[n % 26] * size for n, size in enumerate(sizes)], kind or pa.string())


def cut(actions, bulk_bytes):
    return [bytes(_data(part)).decode() for part in _requests(actions, bulk_bytes)]


class DescribeRequests:
    @pytest.mark.parametrize(
        ("sizes", "bulk_bytes", "expected"),
        [
            ([], 10, []),
            ([3], 10, ["aaa"]),
            ([3, 3, 3], 9, ["aaabbbccc"]),
            ([3, 3, 3], 8, ["aaabbb", "ccc"]),
            ([3, 3, 3], 6, ["aaabbb", "ccc"]),
            ([3, 3, 3], 1, ["aaa", "bbb", "ccc"]),
            ([20], 10, ["a" * 20]),
            ([2, 20, 2, 2], 10, ["aa", "b" * 20, "ccdd"]),
            ([20, 2, 20], 10, ["a" * 20, "bb", "c" * 20]),
        ],
    )
    @pytest.mark.parametrize("kind", [pa.string(), pa.large_string()], ids=str)
    def it_cuts_by_bytes_and_never_inside_an_action(self, sizes, bulk_bytes, expected, kind):
        assert cut(texts(*sizes, kind=kind), bulk_bytes) == expected

    @pytest.mark.parametrize("begin", [0, 1, 2, 4])
    def it_cuts_a_slice_of_a_column_as_if_it_were_a_column(self, begin):
        column = texts(3, 4, 5, 6, 7)
        assert cut(column[begin:], 9) == cut(pa.array(column[begin:].to_pylist(), pa.string()), 9)

    def it_takes_a_slice_that_ends_before_the_column_does(self):
        assert cut(texts(3, 4, 5, 6)[1:3], 100) == ["bbbbccccc"]

    def it_takes_a_column_of_several_chunks(self):
        assert cut(pa.chunked_array([texts(3), texts(3)]), 4) == ["aaa", "aaa"]

    def it_counts_bytes_and_not_characters(self):
        assert cut(pa.array(["éé", "éé"]), 6) == ["éé", "éé"]

    def it_shares_the_memory_of_the_column(self):
        column = texts(30, 30)
        addresses = {part.buffers()[2].address for part in _requests(column, 30)}
        assert addresses == {column.buffers()[2].address}

    def it_takes_just_the_actions_that_are_sent_again(self):
        again = texts(3, 4, 5).take(pa.array([0, 2]))
        assert bytes(_data(again)) == b"aaaccccc"


class DescribeSinkResult:
    def it_adds_counts_and_keeps_some_samples_and_the_first_failure(self):
        total = BulkResult(upserts=1, rejected=15, rejected_samples=[{"id": "a"}] * 15, failure={"error": "first"})
        total.add(BulkResult(upserts=2, rejected=15, rejected_samples=[{"id": "b"}] * 15, failure={"error": "second"}))
        assert (total.upserts, total.rejected, len(total.rejected_samples), total.failure) == (
            3,
            30,
            20,
            {"error": "first"},
        )


class DescribeRequireAccepted:
    def it_accepts_as_many_rejected_documents_as_allowed(self):
        require_accepted(BulkResult(rejected=2, rejected_samples=[{"id": "7", "reason": "too odd"}]), 2)

    def it_refuses_more_naming_the_first_and_the_remedy(self):
        result = BulkResult(rejected=3, rejected_samples=[{"id": "7", "reason": "too odd"}])
        with pytest.raises(RejectedDocumentsError, match=r"'7': too odd \[max_rejected_documents=2\]\. Remedy: "):
            require_accepted(result, 2)
