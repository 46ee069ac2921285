"""Which answers to a bulk request are outcomes of every operation, and which are unusable."""

from __future__ import annotations

import numpy as np
import pytest

from icecdc_core.opensearch.answers import UnusableAnswerError
from icecdc_core.opensearch.bulk_answers import outcomes

WRITTEN, DELETED = {"index": {"status": 201}}, {"delete": {"status": 200}}
SENT = np.array([True, False])


def failed(status, error):
    return {"errors": True, "items": [{"index": {"status": status, "error": error}}, DELETED]}


class DescribeOutcomes:
    def it_gives_operation_and_outcome_in_the_order_of_the_request(self):
        answer = {"errors": False, "items": [WRITTEN, DELETED]}
        assert outcomes(answer, SENT) == [("index", {"status": 201}), ("delete", {"status": 200})]

    @pytest.mark.parametrize(
        "error",
        [
            None,
            {},
            {"type": "x", "reason": "y"},
            {"type": "x", "reason": None},
            {"type": "x", "reason": "y", "caused_by": {"reason": "z"}},
            {"type": "x", "reason": "y", "caused_by": None},
        ],
    )
    def it_accepts_the_errors_that_opensearch_gives(self, error):
        assert outcomes(failed(400, error), SENT)[0] == ("index", {"status": 400, "error": error})

    @pytest.mark.parametrize(
        ("status", "error"),
        [
            (200, {"type": "x", "reason": "y"}),
            (201, {}),
            (400, "x"),
            (400, ["x"]),
            (409, {"type": "x", "reason": 5}),
            (400, {"type": ["x"], "reason": "y"}),
            (400, {"type": "x", "reason": "y", "caused_by": "s"}),
            (400, {"type": "x", "reason": "y", "caused_by": {"reason": 5}}),
            (302, None),
            (True, None),
            ("201", None),
        ],
    )
    def it_refuses_every_other_status_or_error(self, status, error):
        with pytest.raises(UnusableAnswerError):
            outcomes(failed(status, error), SENT)
