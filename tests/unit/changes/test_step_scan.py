"""Which files of two states hold changes, and whether values must be compared: from lists of files."""

from dataclasses import replace

import pytest

from icecdc_core.changes.net_changes import PlannedRange
from icecdc_core.changes.scan_planning import compare_scans
from icecdc_core.changes.steps import Step
from icecdc_core.errors import HistoryGapError
from icecdc_core.table.source import Selection
from tests.table_metadata import metadata
from tests.unit.changes.file_lists import Table, files, shown

LINE = metadata((1, None, "append"), (2, 1, "overwrite"), (3, 1, "overwrite"), current=2)
STEP = Step(0, 1, 2, (2,))


def compared(before, after, table=None, step=STEP, **more):
    return compare_scans(table or Table(), LINE, step, files(before, **more), files(after, **more))


class DescribeCompareScans:
    @pytest.mark.parametrize(
        ("before", "after", "only_before", "only_after"),
        [
            ("a b", "a b", "", ""), ("a", "a b", "", "b"), ("a b", "b", "a", ""), ("a b", "c b", "a", "c"),
            ("a+x", "a+x", "", ""), ("a+x+y", "a+y+x", "", ""), ("", "", "", ""),
        ],
    )  # fmt: skip
    def it_leaves_out_files_that_both_states_have(self, before, after, only_before, only_after):
        scan = compared(before, after)
        assert (shown(scan.only_older), shown(scan.only_newer)) == (only_before, only_after)
        assert not any(files.older or files.newer for files in scan.shared)

    def it_sorts_shared_files_by_what_happened_to_their_deletes(self):
        scan = compared("same+x added removed+x changed+x more+x", "more+x+y changed+y removed added+x same+x")
        actual = [(shown(files.older), shown(files.newer)) for files in scan.shared]
        assert actual == [("added", "added+x"), ("removed+x", "removed"), ("changed+x more+x", "changed+y more+x+y")]
        assert (scan.only_older, scan.only_newer) == ([], [])

    def it_reads_a_file_that_was_added_twice_on_both_sides(self):
        scan = compared("a b", "a a b", has_row_ids=True)
        assert (shown(scan.only_older), shown(scan.only_newer)) == ("a", "a a")
        assert (scan.by_value, scan.unchanged_until) == (True, None)

    def it_refuses_a_file_that_was_overwritten_and_added_again(self):
        with pytest.raises(HistoryGapError, match=r"overwritten and added again.*on_history_gap=reexport"):
            compare_scans(Table(), LINE, STEP, files("a b"), [*files("a"), *files("b", size=2)])


class DescribeHowChangedRowsAreTold:
    @pytest.mark.parametrize(
        ("before", "after", "by_value"),
        [("a", "b", True), ("a", "a b", False), ("a b", "a", False), ("a", "a+x", False), ("a+x", "a", False),
         ("a b", "a+x c", True)],
    )  # fmt: skip
    def it_compares_values_only_of_rewritten_files(self, before, after, by_value):
        scan = compared(before, after)
        assert (scan.by_value, scan.unchanged_until) == (by_value, None)

    @pytest.mark.parametrize(("before", "after"), [("a", "a+x"), ("a+x", "a"), ("a+x", "a+y")])
    def it_compares_values_if_deleted_rows_cannot_be_read(self, before, after):
        assert compared(before, after, Table(marks_deletes=False)).by_value

    @pytest.mark.parametrize(
        ("before", "after", "marks_deletes", "until"),
        [
            ("a", "b", True, 1),
            ("a b", "b+x c", True, 1),
            # Deleted rows are read at once, row ids twice.
            ("a", "a+x", True, None),
            ("a", "a+x", False, 1),
            ("a", "a b", True, None),
        ],
    )
    def it_uses_row_ids_if_every_file_has_them(self, before, after, marks_deletes, until):
        scan = compared(before, after, Table(marks_deletes), has_row_ids=True)
        assert (scan.unchanged_until, scan.by_value) == (until, False)

    def it_takes_rows_for_unchanged_only_since_the_snapshot_that_both_states_descend_from(self):
        assert compared("a", "b", step=Step(0, 2, 3, None), has_row_ids=True).unchanged_until == 1

    def it_compares_values_if_row_ids_do_not_say_enough(self):
        a, b = (files(name, has_row_ids=True) for name in "ab")
        added_again = files("s+x", has_row_ids=True, sequence_number=2)
        scans = (
            compare_scans(Table(), LINE, STEP, a, [*b, *files("c")]),  # a file has none
            compare_scans(Table(), LINE, Step(0, None, 2, None), a, b),  # no snapshot of both states is known
            compare_scans(Table(), LINE, STEP, [*a, *files("s", has_row_ids=True)], [*b, *added_again]),
        )
        assert [(scan.unchanged_until, scan.by_value) for scan in scans] == [(None, True)] * 3


SELECTION = Selection(("id", "name"))


class Joined(Table):
    def union(self, *parts):
        return [file for part in parts for file in part]


def planned(*steps, selection=SELECTION, has_row_ids=False):
    """A range of steps; each is the files of its older and of its newer state."""
    table = Joined()
    scans = [
        compare_scans(table, LINE, Step(n, 1, 2, (2,)), *(files(side, has_row_ids=has_row_ids) for side in sides))
        for n, sides in enumerate(steps)
    ]
    return PlannedRange(table, scans, ["id"], 1, selection)


def it_is_of_one_step_or_of_several():
    one, two = planned(("a", "b")), planned(("a", "b"), ("b", "b c"))
    assert (one.only_step, two.only_step) == (0, None)


@pytest.mark.parametrize(
    ("steps", "needs_values"),
    [([("a", "b")], True), ([("a", "a c")], False), ([("a", "a c"), ("a", "b")], True), ([("a", "a+x")], False)],
)
def it_needs_values_if_files_of_a_step_were_rewritten(steps, needs_values):
    assert planned(*steps).needs_values is needs_values


@pytest.mark.parametrize(
    ("steps", "more", "counts"),
    [
        ([("a b", "c")], {}, (20, 10)),
        ([("a", "b"), ("b", "b c")], {}, (10, 20)),
        # Only a part of the rows is read: because of deletes, row ids or a condition.
        ([("a+x", "b")], {}, None),
        ([("a", "b")], {"has_row_ids": True}, None),
        ([("a", "b")], {"selection": replace(SELECTION, row_filter="id > 1")}, None),
    ],
)
def it_knows_the_rows_of_both_sides_if_all_are_read(steps, more, counts):
    assert planned(*steps, **more).side_counts() == counts


@pytest.mark.parametrize(
    ("steps", "has_row_ids", "count"),
    [([("a b", "c"), ("c", "c d")], True, 20), ([("a", "b")], False, None), ([("a+x", "b")], True, None)],
)
def it_knows_the_rows_of_older_states_with_row_ids_and_without_deletes(steps, has_row_ids, count):
    assert planned(*steps, has_row_ids=has_row_ids).older_row_count() == count
