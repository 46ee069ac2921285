"""What an answer to a bulk request says of every operation, and which answers are unusable."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from icecdc_core.errors import IndexNotFoundError, OpenSearchRequestError
from icecdc_core.opensearch.bulk import count_outcomes, item_outcomes
from icecdc_core.opensearch.client import UnusableAnswerError
from icecdc_core.opensearch.counts import Counts

WRITTEN, DELETED = {"index": {"status": 201}}, {"delete": {"status": 200}}
SENT = np.array([True, False])


def failed(status, error):
    return {"errors": True, "items": [{"index": {"status": status, "error": error}}, DELETED]}


class DescribeItemOutcomes:
    def it_gives_operation_and_outcome_in_the_order_of_the_request(self):
        answer = {"errors": False, "items": [WRITTEN, DELETED]}
        assert item_outcomes(answer, SENT) == [("index", {"status": 201}), ("delete", {"status": 200})]

    @pytest.mark.parametrize("error", [None, {}, {"type": "x", "reason": None, "caused_by": None}])
    def it_accepts_the_errors_that_opensearch_gives(self, error):
        assert item_outcomes(failed(400, error), SENT)[0] == ("index", {"status": 400, "error": error})

    @pytest.mark.parametrize(
        "items",
        [
            *([], [WRITTEN], [WRITTEN, WRITTEN, DELETED], [WRITTEN, WRITTEN], [{**WRITTEN, **DELETED}, DELETED], None),
            *([WRITTEN, {"create": {"status": 201}}], [WRITTEN, {"delete": {}}], [WRITTEN, None]),
        ],
    )
    def it_refuses_other_items_than_one_of_each_operation(self, items):
        for answer in ({"errors": False, "items": items}, {"message": "ok"}, [], None):
            with pytest.raises(UnusableAnswerError):
                item_outcomes(answer, SENT)

    @pytest.mark.parametrize(
        ("status", "error"),
        [(200, {"type": "x", "reason": "y"}), (201, {}), (400, "x"), (302, None), (True, None), ("201", None)],
    )
    def it_refuses_every_other_status_or_error(self, status, error):
        with pytest.raises(UnusableAnswerError):
            item_outcomes(failed(status, error), SENT)


def action(number, operation="index"):
    head = f'{{"{operation}":{{"_id":"{number}","version":3,"version_type":"external"}}}}\n'
    return head + ("{}\n" if operation == "index" else "")


ACTIONS = pa.array([action(1), action(2, "delete")])


def applied_to(index, delete=None, max_rejected_documents=0, highest_version=100):
    """What an answer with these outcomes of the index and the delete operation achieved."""
    items = [{"index": index}, {"delete": delete or {"status": 200}}]
    return count_outcomes(
        {"errors": True, "items": items}, ACTIONS, "t--write", max_rejected_documents, highest_version
    )


def error(kind, reason="why", cause=None):
    return {"type": kind, "reason": reason, **({"caused_by": {"reason": cause}} if cause else {})}


class DescribeCountOutcomes:
    @pytest.mark.parametrize(
        ("index", "delete", "counts"),
        [
            ({"status": 201}, {"status": 200}, Counts(upserts=1, deletes=1)),
            ({"status": 200}, {"status": 404}, Counts(upserts=1, already_applied=1)),
            ({"status": 409, "error": error("version_conflict")}, {"status": 409}, Counts(already_applied=2)),
            ({"status": 400, "error": error("mapper_parsing")}, None, Counts(deletes=1, rejected=1)),
        ],
    )
    def it_counts_each_outcome_once(self, index, delete, counts):
        result, again, _ = applied_to(index, delete)
        assert (result.counts, len(again), result.failure) == (counts, 0, None)

    @pytest.mark.parametrize("status", [429, 502, 503, 504])
    def it_sends_operations_again_under_back_pressure(self, status):
        result, again, reason = applied_to({"status": status, "error": error("busy")})
        assert (again.to_pylist(), reason["type"], result.counts) == ([action(1)], "busy", Counts(deletes=1))

    @pytest.mark.parametrize(
        ("index", "kind"),
        [
            ({"status": 404, "error": error("index_not_found")}, IndexNotFoundError),
            ({"status": 400, "error": error("index_closed_exception")}, OpenSearchRequestError),
            ({"status": 403, "error": error("cluster_block_exception")}, OpenSearchRequestError),
            ({"status": 500}, OpenSearchRequestError),
        ],
    )
    def it_fails_for_what_is_about_the_index_and_not_the_document(self, index, kind):
        result, *_ = applied_to(index)
        assert (type(result.failure), result.counts.rejected) == (kind, 0)

    def it_keeps_the_action_and_the_reason_of_a_rejected_document(self):
        result = applied_to({"status": 400, "error": error("mapper_parsing", "why", "deeper")})[0]
        letter = {"action": action(1), "status": 400, "reason": "mapper_parsing: why (deeper)"}
        sample = {"id": "1", "status": 400, "reason": "mapper_parsing: why (deeper)"}
        assert (result.dead_letters, result.rejected_samples) == ([letter], [sample])

    @pytest.mark.parametrize(
        ("current", "counts"), [(3, Counts(already_applied=2)), (7, Counts(already_applied=2)), (8, Counts(rejected=2))]
    )
    def it_rejects_what_meets_a_version_that_icecdc_did_not_give(self, current, counts):
        reason = f"[1]: version conflict, current version [{current}] is higher or equal to the one provided [3]"
        conflict = {"status": 409, "error": error("version_conflict_engine_exception", reason)}
        result = applied_to(conflict, conflict, highest_version=7)[0]
        shown = [
            (sample["id"], sample["status"], f"has version {current} " in sample["reason"])
            for sample in result.rejected_samples
        ]
        assert (result.counts, shown) == (counts, [("1", 409, True), ("2", 409, True)] * bool(counts.rejected))

    def it_rejects_what_an_ingest_pipeline_dropped(self):
        result = applied_to({"status": 200, "result": "noop"}, {"status": 200, "result": "deleted"})[0]
        assert (result.counts, result.rejected_samples[0]["reason"]) == (
            Counts(deletes=1, rejected=1),
            "dropped: an ingest pipeline dropped the document",
        )

    def it_notes_the_newest_version_that_a_conflict_names(self):
        older = {"status": 409, "error": error("x", "[2]: current version [7] is higher")}
        newer = {"status": 409, "error": error("x", "[current version [99]]: current version [8] is higher")}
        result = applied_to(newer, older)[0]
        assert (result.newest_version, result.newest_id) == (8, "1")
