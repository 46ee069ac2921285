"""Which files of a range are read, and how little is planned to know it: from texts of files, without Spark."""

import pytest
from hypothesis import given, settings, strategies as st

from icecdc_core.changes.scan_planning import compare_scans, file_bytes, is_insert_only, plan_scans
from icecdc_core.changes.steps import Step
from icecdc_core.errors import HistoryGapError
from tests.unit.changes.file_lists import History, shown

ALL = None


def sides(scans):
    """The files that are read of the older and of the newer state, step by step."""
    return [
        tuple(shown(sorted(file for tasks in side for file in tasks)) for side in (scan.read_older, scan.read_newer))
        for scan in scans
    ]


def planned(history, start, end, mode="net", **more):
    return sides(plan_scans(history, history.metadata, start, end, mode, **more))


# The files of each state, those that are read of both sides in each step, and what is planned for that.
RANGES = {
    "an append": (["a", "a b"], [("", "b")], []),
    "two appends": (["a", "a b", "a b c"], [("", "b c")], []),
    "what came and went": (["a", "a b", "a"], [], []),
    "a rewritten file": (["a b", "c b"], [("a", "c")], []),
    "a removed file": (["a b", "b"], [("a", "")], []),
    "a rewritten file with deletes": (["a+x b", "c b"], [("a+x", "c")], []),
    "deletes in a new file": (["a b", "c+x b"], [("a", "c+x")], []),
    "deletes in an old file": (["a b", "a+x b"], [("a", "a+x")], [(2, "a")]),
    "deletes replaced": (["a+x b", "a+y b"], [("a+x", "a+y")], [(2, "a")]),
    "deletes removed": (["a+x b", "a b"], [("a+x", "a")], [(2, "a")]),
    "removed deletes that do not say of which file": (["a+?x b", "a b"], [("a+?x", "a")], [(2, "a")]),
    "deletes that came and went": (["a", "a+x", "a"], [], [(3, "a")]),
    "deletes and a rewritten file": (["a b", "a+x c"], [("a b", "a+x c")], [(2, "a")]),
    "a commit without files": (["a", "a"], [], []),
    # The commits do not say enough, so both ends are planned.
    "a file that was added twice": (["a", "a b", "a b b"], [("", "b b")], [(3, "b")]),
    "a file that one commit added twice": (["a", "a b b"], [("", "b b")], [(2, "b")]),
    "a file that was added again": (["a", "b", "a"], [], [(1, "a b"), (3, "a b")]),
    "deletes that may apply anywhere": (["a b", "a+*x b"], [("a", "a+*x")], [(1, ""), (2, ""), (1, "a")]),
    "such deletes that are removed": (["a+*x b", "a b"], [("a+*x", "a")], [(1, ""), (2, ""), (2, "a")]),
    "such deletes from before": (["a+*x b", "a+*x c"], [("b", "c")], [(1, "b c"), (2, "b c")]),
}


class DescribePlanScans:
    @pytest.mark.parametrize(("states", "expected", "plans"), RANGES.values(), ids=RANGES)
    def it_takes_the_files_from_the_commits_or_else_from_both_ends(self, states, expected, plans):
        history = History(*states)
        assert planned(history, 1, len(states)) == expected
        assert history.planned == plans

    @pytest.mark.parametrize(
        ("history", "start", "end", "expected"),
        [
            # An appended file is older than the range, so deletes may apply to it.
            (History("a+*x", "a+*x b@1+*x"), 1, 2, [("", "b+*x")]),
            # To the common ancestor and on to another branch.
            (History("a", "a b", "a c", parents={3: 1}), 2, 3, [("b", "c")]),
            # A compaction is not read.
            (History("a b", "a b c", "ab c", "ab c d", operations={3: "replace"}), 1, 4, [("", "c"), ("", "d")]),
        ],
    )
    def it_reads_no_more_than_it_needs_of_odd_ranges(self, history, start, end, expected):
        assert planned(history, start, end) == expected

    def it_reads_only_inserts_from_before_the_first_snapshot(self):
        history = History("a b", "a+x c")
        assert planned(history, None, 2) == [("", "a+x c")]
        assert is_insert_only(plan_scans(history, history.metadata, None, 2, "net"))

    @pytest.mark.parametrize(
        ("states", "expected"),
        [(["a", "a b"], [("b", "")]), (["a b", "c b"], [("c", "a")]), (["a", "a+x"], [("a+x", "a")])],
    )
    def it_goes_back_over_a_rollback(self, states, expected):
        history = History(*states)
        assert planned(history, 2, 1) == expected
        assert all(wanted is not ALL for _, wanted in history.planned)

    def it_plans_both_states_in_full_if_it_does_not_know_what_lies_between(self):
        history = History("a b", "b c", parents={1: 7, 2: 8})
        assert planned(history, 1, 2) == [("a", "c")]
        assert history.planned == [(1, ALL), (2, ALL)]

    def it_has_a_step_for_each_snapshot_that_changes_rows(self):
        history = History("a", "b", "ab", "ab c", operations={3: "replace"})
        assert planned(history, None, 4, "snapshot") == [("", "a"), ("a", "b"), ("", "c")]

    def it_counts_bytes_and_notices_a_gap_also_later(self):
        history = History("a b", "c b", "c b d")
        planned(history, 1, 3)
        assert history.read_snapshots == {1, 3}  # only the ends
        assert file_bytes(history, plan_scans(history, history.metadata, 1, 2, "net")) == 2
        with pytest.raises(HistoryGapError, match="snapshot 5"):
            planned(History("a"), 5, 1)


KINDS = st.sampled_from(["add", "remove", "delete", "?", "*", "undelete"])
COMMITS = st.lists(st.tuples(KINDS, st.sets(st.sampled_from("abcd"))), min_size=2, max_size=6)


def states_of(commits):
    """The files after each commit; a delete file that may apply anywhere hits these files, as far as they exist."""
    state: dict[str, set[str]] = {}
    for number, (kind, names) in enumerate(commits):
        known = names & state.keys()
        if kind == "add":
            state |= {name: set() for name in names - state.keys()}
        elif kind == "remove":
            state = {name: deletes for name, deletes in state.items() if name not in known}
        elif kind == "undelete":
            state |= {name: set() for name in known if not any(each.startswith("*") for each in state[name])}
        else:
            file = {name: f"{kind}{number}" if kind == "*" else f"{kind}{name}{number}" for name in known}
            state |= {name: state[name] | {file[name]} for name in known}
        yield " ".join("+".join([name, *sorted(deletes)]) for name, deletes in sorted(state.items()))


@settings(max_examples=300, deadline=None)
@given(COMMITS)
def it_finds_in_the_commits_what_a_comparison_of_all_files_finds(commits):
    history, end = History(*states_of(commits)), len(commits)
    before, after = history.states[1], history.states[end]
    everything = compare_scans(history, history.metadata, Step(0, 1, end, None), before, after)
    expected = [each for each in sides([everything]) if each != ("", "")]
    assert planned(history, 1, end) == planned(history, 1, end, trust_commits=False) == expected
