"""Which files of a range are read, and whether values must be compared: from texts of files, without Spark."""

from dataclasses import replace
from unittest.mock import Mock

import pytest

from icecdc_core.changes.scan_planning import compare_scans, is_insert_only, plan_scans
from icecdc_core.changes.steps import Step, cut_at_replaces
from icecdc_core.errors import HistoryGapError
from tests.given.table_metadata import metadata
from tests.unit.changes.file_lists import History, Table, files, shown


def sides(scans):
    """The files that are read of the older and of the newer state, step by step."""
    return [
        tuple(shown(sorted(file for tasks in side for file in tasks)) for side in (scan.read_older, scan.read_newer))
        for scan in scans
    ]


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
            # Back over a rollback.
            (History("a", "a+x"), 2, 1, [("a+x", "a")]),
            # A compaction is not read.
            (History("a b", "a b c", "ab c", "ab c d", operations={3: "replace"}), 1, 4, [("", "c"), ("", "d")]),
            # Across it there are fewer bytes.
            (SMALL, 1, 4, [("a", "abcd e")]),
            # Of two compactions only the second is cheaper to read across.
            (TWICE, 1, 6, [("", "e"), ("", "fghi j")]),
            (History("a b", "ab", operations={2: "replace"}), 1, 2, []),
            # What begins with the empty table is only inserted.
            (History("a", "a b", "ab+x", operations={3: "replace"}), None, 3, [("", "ab+x")]),
        ):
            scans = plan_scans(history, history.metadata, start, end, "net")
            found = sides(scans)
            assert (found, is_insert_only(scans)) == (expected, not any(older for older, _ in expected))

    def it_looks_at_each_commit_once_for_each_compaction_before_it(self):
        path, looked_at = range(1, 200), []
        line = metadata(*((each, each - 1 or None, ("append", "replace")[each % 2]) for each in path), current=199)
        files = Mock(get=lambda *given: looked_at.append(given) or ({}, {}))
        cut_at_replaces(line, Step(0, 1, path[-1], tuple(path[1:])), files)
        assert len(looked_at) <= 100 * 200


LINE = metadata((1, None, "append"), (2, 1, "overwrite"), (3, 1, "overwrite"), current=2)
STEP = Step(0, 1, 2, (2,))


class DescribeCompareScans:
    def it_refuses_a_file_that_was_overwritten_and_added_again(self):
        with pytest.raises(HistoryGapError, match=r"overwritten and added again.*on_history_gap=reexport"):
            compare_scans(Table(), LINE, STEP, files("a b"), [*files("a"), *files("b", size=2)])

    def it_compares_values_only_where_files_were_rewritten_and_have_no_row_ids(self):
        # Whether files have row ids, and what shows the changed rows: values, or row ids up to a commit, or the files.
        for before, after, has_row_ids, by_value, until in (
            ("a", "b", False, True, None), ("a b", "a+x c", False, True, None), ("a", "a b", False, False, None),
            ("a b", "a", False, False, None), ("a", "a+x", False, False, None), ("a+x", "a", False, False, None),
            ("a", "b", True, False, 1), ("a b", "b+x c", True, False, 1), ("a", "a+x", True, False, None),
        ):  # fmt: skip
            sides = (files(each, has_row_ids=has_row_ids) for each in (before, after))
            scan = compare_scans(Table(), LINE, STEP, *sides)
            assert (scan.by_value, scan.unchanged_until) == (by_value, until)


def it_compares_values_if_sequence_numbers_do_not_grow():
    flat = replace(LINE, snapshots=tuple(replace(each, sequence_number=1) for each in LINE.snapshots))
    scan = compare_scans(Table(), flat, STEP, files("a", has_row_ids=True), files("b", has_row_ids=True))
    assert (scan.unchanged_until, scan.by_value) == (None, True)
