"""How a column of actions is cut into requests."""

from __future__ import annotations

import pyarrow as pa
import pytest

from icecdc_core.opensearch.bulk import are_upserts, bulk_requests, document_id_of, request_body


def texts(*sizes, kind=None):
    """Actions of these sizes in bytes, each of another letter."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    return pa.array([letters[n % 26] * size for n, size in enumerate(sizes)], kind or pa.string())


def cut(actions, bulk_bytes):
    return [bytes(request_body(part)).decode() for part in bulk_requests(actions, bulk_bytes)]


class DescribeRequests:
    @pytest.mark.parametrize(
        ("sizes", "bulk_bytes", "expected"),
        [
            ([], 10, []),
            ([3, 3, 3], 9, ["aaabbbccc"]),
            ([3, 3, 3], 8, ["aaabbb", "ccc"]),
            ([3, 3, 3], 1, ["aaa", "bbb", "ccc"]),
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

    def it_cuts_a_slice_that_ends_early_several_chunks_and_bytes_instead_of_characters(self):
        assert cut(texts(3, 4, 5, 6)[1:3], 100) == ["bbbbccccc"]
        assert cut(pa.chunked_array([texts(3), texts(3)]), 4) == ["aaa", "aaa"]
        assert cut(pa.array(["éé", "éé"]), 6) == ["éé", "éé"]

    def it_shares_the_memory_of_the_column(self):
        column = texts(30, 30)
        addresses = {part.buffers()[2].address for part in bulk_requests(column, 30)}
        assert addresses == {column.buffers()[2].address}

    def it_distinguishes_upserts_from_deletes(self):
        actions = pa.array(['{"index":{"_id":"1"}}\n{}\n', '{"delete":{"_id":"2"}}\n', '{"index":{"_id":"3"}}\n{}\n'])
        assert (are_upserts(actions).tolist(), are_upserts(actions[1:]).tolist()) == (
            [True, False, True],
            [False, True],
        )

    @pytest.mark.parametrize("action", ['{"index":{"_id":"\\u00e9|"}}\n{"a":"\\n"}\n', '{"delete":{"_id":"é|"}}\n'])
    def it_finds_the_document_of_an_action(self, action):
        assert document_id_of(action) == "é|"

    def it_sends_only_the_selected_actions_again(self):
        again = texts(3, 4, 5).take(pa.array([0, 2]))
        assert bytes(request_body(again)) == b"aaaccccc"
