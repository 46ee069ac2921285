"""A recorded trace in the vocabulary of the specification."""

from __future__ import annotations

import copy
import json

import pytest

from tests.model.tlc import HERE
from tests.model.translation import translate


@pytest.fixture
def recorded():
    """An export of 100 rows in 5 groups that one run began and another one finished."""
    return json.loads((HERE / "traces" / "resumed-export.json").read_text(encoding="utf-8"))


def place_of(recorded, kind):
    return next(number for number, event in enumerate(recorded["events"]) if event["event"] == kind)


class DescribeTranslation:
    def it_names_runs_epochs_and_identifiers_in_their_order(self, recorded):
        trace = translate(recorded)
        assert (trace.runs, trace.epochs, trace.groups) == (2, 1, {1: [{2}, {5}, {3}, {1}, {4}]})
        assert (trace.ids, trace.counts["operations"], trace.counts["resumed exports"]) == (5, 100, 1)

    @pytest.mark.parametrize(
        ("status", "end"),
        [(201, ""), (429, ""), (400, "OpenSearch rejected a document")],
    )
    def it_ends_where_a_document_is_rejected(self, recorded, status, end):
        recorded["events"][place_of(recorded, "bulk")]["items"][0][3] = status
        assert translate(recorded).end == end

    def it_ends_where_somebody_else_changes_the_position(self, recorded):
        foreign = copy.deepcopy(recorded["events"][0]) | {"foreign": True}
        foreign["position"]["epoch"] = 7
        recorded["events"].insert(2, foreign)
        trace = translate(recorded)
        assert (len(trace.events), trace.end) == (2, "somebody else changed the position")

    def it_ends_where_the_rows_of_a_snapshot_are_unknown(self, recorded):
        snapshot = recorded["events"][place_of(recorded, "snapshot")]
        del snapshot["rows"]
        snapshot["unknown"] = "it cannot be read"
        assert translate(recorded).end == "a snapshot is unknown: it cannot be read"

    @pytest.mark.parametrize(("starts_over", "end"), [(True, "a run starts its own export over"), (False, "")])
    def it_ends_where_a_run_starts_its_own_export_over(self, recorded, starts_over, end):
        events = recorded["events"]
        begun = [each for each in events if each["event"] == "position" and each["position"]["batch"]]
        again = copy.deepcopy(begun[0])
        again["position"]["batch"]["epoch"] += starts_over
        events.insert(events.index(begun[0]) + 1, again)
        assert translate(recorded).end.startswith(end)
