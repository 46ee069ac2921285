"""How actions are cut into requests, what an answer says of every operation, and how results are added."""

import pyarrow as pa
import pytest

from icecdc_core.errors import IcecdcError, IndexNotFoundError, OpenSearchRequestError
from icecdc_core.opensearch.bulk import BulkResult, bulk_requests, count_outcomes, parse_action, request_body
from icecdc_core.opensearch.counts import Counts


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
            ([], 10, []), ([3, 3, 3], 9, ["aaabbbccc"]), ([3, 3, 3], 8, ["aaabbb", "ccc"]),
            ([3, 3, 3], 1, ["aaa", "bbb", "ccc"]), ([2, 20, 2, 2], 10, ["aa", "b" * 20, "ccdd"]),
            ([20, 2, 20], 10, ["a" * 20, "bb", "c" * 20]),
        ],
    )  # fmt: skip
    @pytest.mark.parametrize("kind", [pa.string(), pa.large_string()], ids=str)
    def it_cuts_by_bytes_and_never_inside_an_action(self, sizes, bulk_bytes, expected, kind):
        assert cut(texts(*sizes, kind=kind), bulk_bytes) == expected

    def it_cuts_slices_of_a_column_and_bytes_instead_of_characters(self):
        column = texts(3, 4, 5, 6, 7)
        for begin in (0, 1, 2, 4):
            assert cut(column[begin:], 9) == cut(pa.array(column[begin:].to_pylist(), pa.string()), 9)
        assert cut(texts(3, 4, 5, 6)[1:3], 100) == ["bbbbccccc"]
        assert cut(pa.array(["éé", "éé"]), 6) == ["éé", "éé"]

    @pytest.mark.parametrize("action", ['{"index":{"_id":"\\u00e9|"}}\n{"a":"\\n"}\n', '{"delete":{"_id":"é|"}}\n'])
    def it_finds_the_document_of_an_action(self, action):
        assert parse_action(action)[1]["_id"] == "é|"


def action(number, operation="index"):
    head = f'{{"{operation}":{{"_id":"{number}","version":3,"version_type":"external"}}}}\n'
    return head + ("{}\n" if operation == "index" else "")


ACTIONS = pa.array([action(1), action(2, "delete")])


def applied_to(index, delete=None, max_rejected_documents=0, highest_version=100):
    """What an answer with these outcomes of the index and the delete operation achieved."""
    answer = {"errors": True, "items": [{"index": index}, {"delete": delete or {"status": 200}}]}
    return count_outcomes(answer, ACTIONS, "t--WRITE", max_rejected_documents, highest_version)


def error(kind, reason="why", cause=None):
    return {"type": kind, "reason": reason, **({"caused_by": {"reason": cause}} if cause else {})}


ILLEGAL = "illegal_argument_exception"


class DescribeCountOutcomes:
    def it_counts_each_outcome_once(self):
        for index, delete, counts in (
            ({"status": 201}, {"status": 200}, Counts(upserts=1, deletes=1)),
            ({"status": 200}, {"status": 404}, Counts(upserts=1, already_applied=1)),
            ({"status": 409, "error": error("version_conflict")}, {"status": 409}, Counts(already_applied=2)),
            ({"status": 400, "error": error(ILLEGAL)}, None, Counts(deletes=1, rejected=1)),
            ({"status": 500, "error": error("fail_processor_exception")}, None, Counts(deletes=1, rejected=1)),
        ):
            result, again, _ = applied_to(index, delete)
            assert (result.counts, len(again), result.failure) == (counts, 0, None)

    def it_fails_for_what_is_about_the_index_and_not_the_document(self):
        for index, kind in (
            ({"status": 404, "error": error("index_not_found_exception")}, IndexNotFoundError),
            ({"status": 400, "error": error("invalid_index_name_exception")}, IndexNotFoundError),
            ({"status": 404, "error": error("resource_not_found_exception")}, OpenSearchRequestError),  # of a pipeline
            *(
                ({"status": 400, "error": error(ILLEGAL, reason)}, OpenSearchRequestError)
                for reason in (
                    *("no write index is defined for [t]", "pipeline with id [gone] does not exist"),
                    "Number of documents in shard [[t][0]] exceeds the limit of [2147483519] documents per shard",
                )
            ),
            ({"status": 400, "error": error("index_closed_exception")}, OpenSearchRequestError),
            ({"status": 403, "error": error("cluster_block_exception")}, OpenSearchRequestError),
            ({"status": 500}, OpenSearchRequestError),
        ):
            result, *_ = applied_to(index)
            assert (type(result.failure), result.counts.rejected) == (kind, 0)

    def it_keeps_the_action_and_the_reason_of_a_rejected_document(self):
        result = applied_to({"status": 400, "error": error("mapper_parsing", "why", "deeper")})[0]
        sample = {"id": "1", "status": 400, "reason": "mapper_parsing: why (deeper)"}
        document = action(1).partition("\n")[2].strip()
        assert (result.dead_letters[0]["document"], result.rejected_samples) == (document, [sample])
        # Not all of one that repeats the document.
        result = applied_to({"status": 400, "error": error("x", "y" * 200_000)})[0]
        assert "200" in result.dead_letters[0]["reason"]
        assert len(result.dead_letters[0]["reason"] + result.rejected_samples[0]["reason"]) < 8000

    @pytest.mark.parametrize(
        ("current", "counts"), [(3, Counts(already_applied=2)), (7, Counts(already_applied=2)), (8, Counts(rejected=2))]
    )
    def it_rejects_what_meets_a_version_that_icecdc_did_not_give(self, current, counts):
        reason = f"[1]: version conflict, current version [{current}] is higher or equal to the one provided [3]"
        conflict = {"status": 409, "error": error("version_conflict_engine_exception", reason)}
        result = applied_to(conflict, conflict, highest_version=7)[0]
        shown = [(each["id"], each["status"], "version 8 " in each["reason"]) for each in result.rejected_samples]
        assert (result.counts, shown) == (counts, [("1", 409, True), ("2", 409, True)] * bool(counts.rejected))

    def it_rejects_what_an_ingest_pipeline_dropped(self):
        result = applied_to({"status": 200, "result": "noop"}, {"status": 200, "result": "deleted"})[0]
        assert result.rejected_samples[0]["reason"] == "dropped: an ingest pipeline dropped the document"
        assert result.counts == Counts(deletes=1, rejected=1)

    def it_notes_the_newest_version_that_a_conflict_names(self):
        older = {"status": 409, "error": error("x", "[2]: current version [7] is higher")}
        newer = {"status": 409, "error": error("x", "[current version [99]]: current version [8] is higher")}
        result = applied_to(newer, older)[0]
        assert result.newest == (8, "1")


LETTER = {"document_id": "7", "status": 400, "reason": "too odd"}
FIRST, SECOND = IcecdcError("first"), IcecdcError("second")


class DescribeBulkResult:
    def it_adds_counts_and_keeps_some_samples_the_first_failure_and_the_newest_version(self):
        assert Counts(upserts=1, deletes=20, already_applied=300, rejected=4000, retries=9).operations == 4321
        one = BulkResult(Counts(upserts=1, rejected=15), [LETTER] * 15, failure=FIRST)
        total = one + BulkResult(Counts(upserts=2, rejected=15), [LETTER] * 15, failure=SECOND)
        assert (total.counts.upserts, total.counts.rejected) == (3, 30)
        assert (len(total.rejected_samples), total.failure) == (20, FIRST)
        assert (BulkResult(newest=(3, "a")) + BulkResult(newest=(2, "b"))).newest == (3, "a")
