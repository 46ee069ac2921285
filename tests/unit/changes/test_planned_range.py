"""What the planned files alone show of a range's changes, from lists of files, without Spark."""

from dataclasses import replace

import pytest

from icecdc_core.changes.net_changes import PlannedRange
from icecdc_core.changes.scan_planning import compare_scans
from icecdc_core.changes.steps import Step
from icecdc_core.table.source import Selection
from tests.table_metadata import metadata
from tests.unit.changes.file_lists import Table, files

LINE = metadata((1, None, "append"), (2, 1, "overwrite"), current=2)
SELECTION = Selection(("id", "name"))


class TenRows(Table):
    """A table whose data files have ten rows each."""

    def union(self, *parts):
        return [file for part in parts for file in part]

    def row_counts(self, tasks):
        return [10] * len(tasks)


def planned(*steps, selection=SELECTION, has_row_ids=False):
    """A range of steps; each is the files of its older and of its newer state."""
    table = TenRows()
    scans = [
        compare_scans(table, LINE, Step(n, 1, 2, (2,)), *(files(side, has_row_ids=has_row_ids) for side in sides))
        for n, sides in enumerate(steps)
    ]
    return PlannedRange(table, scans, ["id"], 1, selection)


class DescribePlannedRange:
    def it_is_of_one_step_or_of_several(self):
        one, two = planned(("a", "b")), planned(("a", "b"), ("b", "b c"))
        assert (one.only_step, two.only_step) == (0, None)

    @pytest.mark.parametrize(
        ("steps", "needs_values"),
        [([("a", "b")], True), ([("a", "a c")], False), ([("a", "a c"), ("a", "b")], True), ([("a", "a+x")], False)],
    )
    def it_needs_values_if_files_of_a_step_were_rewritten(self, steps, needs_values):
        assert planned(*steps).needs_values is needs_values


class DescribeSideCounts:
    @pytest.mark.parametrize(("steps", "counts"), [([("a b", "c")], (20, 10)), ([("a", "b"), ("b", "b c")], (10, 20))])
    def it_is_the_rows_of_all_files(self, steps, counts):
        assert planned(*steps).side_counts() == counts

    @pytest.mark.parametrize(
        ("sides", "more"),
        [
            (("a+x", "b"), {}),
            (("a", "b"), {"has_row_ids": True}),
            (("a", "b"), {"selection": replace(SELECTION, row_filter="id > 1")}),
        ],
        ids=["deletes", "row lineage", "row filter"],
    )
    def it_is_not_known_if_a_part_of_the_rows_is_read(self, sides, more):
        assert planned(sides, **more).side_counts() is None


class DescribeOlderRowCount:
    def it_is_the_rows_of_the_older_states(self):
        assert planned(("a b", "c"), ("c", "c d"), has_row_ids=True).older_row_count() == 20

    @pytest.mark.parametrize(
        ("sides", "has_row_ids"), [(("a", "b"), False), (("a+x", "b"), True)], ids=["no row lineage", "deletes"]
    )
    def it_is_not_known_without_row_lineage_or_with_deletes(self, sides, has_row_ids):
        assert planned(sides, has_row_ids=has_row_ids).older_row_count() is None
