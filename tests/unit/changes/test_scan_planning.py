"""Which files of a range are read, and whether values must be compared: from texts of files, without Spark."""

from dataclasses import replace
from unittest.mock import Mock

import pytest

from icecdc_core.changes.net_changes import PlannedRange
from icecdc_core.changes.scan_planning import compare_scans, file_bytes, is_insert_only, plan_scans
from icecdc_core.changes.steps import Step, cut_at_replaces
from icecdc_core.errors import HistoryGapError
from icecdc_core.table.source import Selection
from tests.table_metadata import metadata
from tests.unit.changes.file_lists import History, Table, files, shown


def sides(scans):
    """The files that are read of the older and of the newer state, step by step."""
    return [
        tuple(shown(sorted(file for tasks in side for file in tasks)) for side in (scan.read_older, scan.read_newer))
        for scan in scans
    ]


def planned(history, start, end, mode="net", **more):
    return sides(plan_scans(history, history.metadata, start, end, mode, **more))


SMALL = History("a", "a b c d", "abcd", "abcd e", operations={3: "replace"})
STATES_OF_TWICE = "a b c d", "a b c d e", "abcde", "abcde f g h i", "abcde fghi", "abcde fghi j"
TWICE = History(*STATES_OF_TWICE, operations={3: "replace", 5: "replace"})


class DescribePlanScans:
    def it_reads_no_more_than_it_needs_of_odd_ranges(self):
        for history, start, end, expected in (
            # An appended file is older than the range, so deletes may apply to it.
            (History("a+*x", "a+*x b@1+*x"), 1, 2, [("", "b+*x")]),
            # To the common ancestor and on to another branch.
            (History("a", "a b", "a c", parents={3: 1}), 2, 3, [("b", "c")]),
            # A compaction is not read.
            (History("a b", "a b c", "ab c", "ab c d", operations={3: "replace"}), 1, 4, [("", "c"), ("", "d")]),
            # Across it there are fewer bytes.
            (SMALL, 1, 4, [("a", "abcd e")]),
            # Of two compactions only the second is cheaper to read across.
            (TWICE, 1, 6, [("", "e"), ("", "fghi j")]),
            (History("a b", "ab", operations={2: "replace"}), 1, 2, []),
            # What begins with the empty table is only inserted.
            (History("a", "a b", "ab", operations={3: "replace"}), None, 3, [("", "ab")]),
        ):
            assert planned(history, start, end) == expected

    def it_looks_at_each_commit_once_for_each_compaction_before_it(self):
        path, looked_at = range(1, 200), []
        line = metadata(*((each, each - 1 or None, ("append", "replace")[each % 2]) for each in path), current=199)
        files = Mock(get=lambda *given: looked_at.append(given) or ({}, {}))
        cut_at_replaces(line, Step(0, 1, path[-1], tuple(path[1:])), files)
        assert len(looked_at) <= 100 * 200

    def it_reads_no_compaction_if_nothing_identifies_rows(self):
        assert planned(SMALL, 1, 4, cut_everywhere=True) == [("", "b c d"), ("", "e")]

    def it_reads_only_inserts_from_before_the_first_snapshot(self):
        history = History("a b", "a+x c")
        assert planned(history, None, 2) == [("", "a+x c")]
        assert is_insert_only(plan_scans(history, history.metadata, None, 2, "net"))

    def it_goes_back_over_a_rollback(self):
        for states, expected in (
            (["a", "a b"], [("b", "")]),
            (["a b", "c b"], [("c", "a")]),
            (["a", "a+x"], [("a+x", "a")]),
        ):
            history = History(*states)
            assert planned(history, 2, 1) == expected

    def it_has_a_step_for_each_snapshot_that_changes_rows(self):
        history = History("a", "b", "ab", "ab c", operations={3: "replace"})
        assert planned(history, None, 4, "snapshot") == [("", "a"), ("a", "b"), ("", "c")]
        forked = History("a", "a b", "a c", parents={3: 1})
        assert planned(forked, 2, 3, "snapshot") == [("b", ""), ("", "c")]

    def it_counts_bytes_and_notices_a_gap_also_later(self):
        history = History("a b", "c b", "c b d")
        planned(history, 1, 3)
        assert history.read_snapshots == {1, 3}  # only the ends
        assert file_bytes(history, plan_scans(history, history.metadata, 1, 2, "net")) == 2
        with pytest.raises(HistoryGapError, match="snapshot 5"):
            planned(History("a"), 5, 1)


LINE = metadata((1, None, "append"), (2, 1, "overwrite"), (3, 1, "overwrite"), current=2)
STEP = Step(0, 1, 2, (2,))


def compared(before, after, table=None, step=STEP, **more):
    return compare_scans(table or Table(), LINE, step, files(before, **more), files(after, **more))


class DescribeCompareScans:
    def it_sorts_shared_files_by_what_happened_to_their_deletes(self):
        scan = compared("same+x added removed+x changed+x more+x", "more+x+y changed+y removed added+x same+x")
        assert [*map(shown, scan.read_older)] == ["", "added", "removed+x", "changed+x more+x"]
        assert [*map(shown, scan.read_newer)] == ["", "added+x", "removed", "changed+y more+x+y"]

    def it_reads_a_file_that_was_added_twice_on_both_sides(self):
        scan = compared("a b", "a a b", has_row_ids=True)
        assert (shown(scan.read_older[0]), shown(scan.read_newer[0])) == ("a", "a a")
        assert (scan.by_value, scan.unchanged_until) == (True, None)

    def it_refuses_a_file_that_was_overwritten_and_added_again(self):
        with pytest.raises(HistoryGapError, match=r"overwritten and added again.*on_history_gap=reexport"):
            compare_scans(Table(), LINE, STEP, files("a b"), [*files("a"), *files("b", size=2)])


class DescribeHowChangedRowsAreTold:
    def it_compares_values_only_of_rewritten_files(self):
        for before, after, by_value in (
            ("a", "b", True), ("a", "a b", False), ("a b", "a", False), ("a", "a+x", False), ("a+x", "a", False),
            ("a b", "a+x c", True),
        ):  # fmt: skip
            scan = compared(before, after)
            assert (scan.by_value, scan.unchanged_until) == (by_value, None)

    def it_compares_values_if_deleted_rows_cannot_be_read(self):
        for before, after in (("a", "a+x"), ("a+x", "a"), ("a+x", "a+y")):
            assert compared(before, after, Table(marks_deletes=False)).by_value

    def it_uses_row_ids_if_every_file_has_them(self):
        for before, after, marks_deletes, until in (
            ("a", "b", True, 1),
            ("a b", "b+x c", True, 1),
            # Deleted rows are read at once, row ids twice.
            ("a", "a+x", True, None),
            ("a", "a+x", False, 1),
            ("a", "a b", True, None),
        ):
            scan = compared(before, after, Table(marks_deletes), has_row_ids=True)
            assert (scan.unchanged_until, scan.by_value) == (until, False)

    def it_takes_rows_for_unchanged_only_since_the_snapshot_that_both_states_descend_from(self):
        assert compared("a", "b", step=Step(0, 2, 3, (2, 3)), has_row_ids=True).unchanged_until == 1

    def it_compares_values_if_row_ids_do_not_say_enough(self):
        a, b = (files(name, has_row_ids=True) for name in "ab")
        added_again = files("s+x", has_row_ids=True, sequence_number=2)
        flat = replace(LINE, snapshots=tuple(replace(each, sequence_number=1) for each in LINE.snapshots))
        scans = (
            compare_scans(Table(), LINE, STEP, a, [*b, *files("c")]),  # a file has none
            compare_scans(Table(), LINE, Step(0, None, 2, None), a, b),  # no snapshot of both states is known
            compare_scans(Table(), flat, STEP, a, b),  # sequence numbers do not grow
            compare_scans(Table(), LINE, STEP, [*a, *files("s", has_row_ids=True)], [*b, *added_again]),
        )
        assert [(scan.unchanged_until, scan.by_value) for scan in scans] == [(None, True)] * 4


SELECTION = Selection(("id", "name"))


def ranged(*steps, selection=SELECTION, has_row_ids=False):
    """A range of steps; each is the files of its older and of its newer state."""
    table = Table()
    scans = [
        compare_scans(table, LINE, Step(n, 1, 2, (2,)), *(files(side, has_row_ids=has_row_ids) for side in sides))
        for n, sides in enumerate(steps)
    ]
    return PlannedRange(table, scans, ["id"], 1, selection)


def it_knows_the_rows_of_both_sides_if_all_are_read():
    assert ranged(("a b", "c")).side_counts() == (20, 10)
    assert ranged(("a", "b"), ("b", "b c")).side_counts() == (10, 20)
    # Only a part of the rows is read: because of deletes, row ids or a condition.
    assert ranged(("a+x", "b")).side_counts() is None
    for more in ({"has_row_ids": True}, {"selection": replace(SELECTION, row_filter="id > 1")}):
        assert ranged(("a", "b"), **more).side_counts() is None


def it_knows_the_rows_of_older_states_with_row_ids_and_without_deletes():
    assert ranged(("a b", "c"), ("c", "c d"), has_row_ids=True).older_row_count() == 20
    assert ranged(("a", "b")).older_row_count() is None
    assert ranged(("a+x", "b"), has_row_ids=True).older_row_count() is None
