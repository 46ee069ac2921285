"""Which files of two states hold changes, and whether values must be compared: from lists of files, without Spark."""

import pytest

from icecdc_core.changes.scan_planning import compare_scans
from icecdc_core.changes.steps import Step
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
            ("a b", "a b", "", ""),
            ("a", "a b", "", "b"),
            ("a b", "b", "a", ""),
            ("a b", "c b", "a", "c"),
            ("a+x", "a+x", "", ""),
            ("a+x+y", "a+y+x", "", ""),
            ("", "", "", ""),
        ],
    )
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


class DescribeHowChangedRowsAreTold:
    @pytest.mark.parametrize(
        ("before", "after", "by_value"),
        [
            ("a", "b", True),
            ("a", "a b", False),
            ("a b", "a", False),
            ("a", "a+x", False),
            ("a+x", "a", False),
            ("a b", "a+x c", True),
        ],
    )
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

    def it_compares_values_if_one_file_has_no_row_ids(self):
        before, after = files("a", has_row_ids=True), [*files("b", has_row_ids=True), *files("c")]
        scan = compare_scans(Table(), LINE, STEP, before, after)
        assert (scan.unchanged_until, scan.by_value) == (None, True)

    def it_takes_rows_for_unchanged_only_since_the_snapshot_that_both_states_descend_from(self):
        scan = compared("a", "b", step=Step(0, 2, 3, None), has_row_ids=True)
        assert scan.unchanged_until == 1

    def it_compares_values_if_the_states_descend_from_no_known_snapshot(self):
        scan = compared("a", "b", step=Step(0, None, 2, None), has_row_ids=True)
        assert (scan.unchanged_until, scan.by_value) == (None, True)

    def it_compares_values_if_a_shared_file_was_added_again_since(self):
        before = files("a s", has_row_ids=True)
        after = [*files("b", has_row_ids=True), *files("s+x", has_row_ids=True, sequence_number=2)]
        scan = compare_scans(Table(), LINE, STEP, before, after)
        assert (scan.unchanged_until, scan.by_value) == (None, True)
