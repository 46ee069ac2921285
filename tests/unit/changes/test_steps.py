"""Lineage, steps and cuts over hand-made metadata; no Spark."""

import pytest

from icecdc_core.changes.steps import Step, cut_at_replaces, plan_steps
from icecdc_core.errors import HistoryGapError
from tests.table_metadata import metadata

LINE = ((1, None, "append"), (2, 1, "overwrite"), (3, 2, "replace"), (4, 3, "append"))


FORKED = ((1, None, "append"), (2, 1, "append"), (3, 1, "append"))
EXPIRED = ((1, None, "append"), (4, 3, "append"))


class DescribePlanSteps:
    @pytest.mark.parametrize(
        ("lineage", "start", "stop", "mode", "expected"),
        [
            (LINE, 1, 4, "net", [Step(0, 1, 4, (2, 3, 4))]),
            (LINE, 4, 4, "net", []),
            # From the empty table.
            (LINE, None, 4, "net", [Step(0, None, 4, (1, 2, 3, 4))]),
            # A step for each snapshot that is not a replace.
            (LINE, 1, 4, "snapshot", [Step(0, 1, 2, (2,)), Step(1, 3, 4, (4,))]),
            # Back and forth over a rollback.
            (FORKED, 2, 3, "net", [Step(0, 2, 3, (2, 3))]),
            (FORKED, 2, 3, "snapshot", [Step(0, 2, 1, (2,)), Step(1, 1, 3, (3,))]),
            (LINE, 2, 1, "net", [Step(0, 2, 1, (2,))]),
            # The path is not known.
            (EXPIRED, 1, 4, "net", [Step(0, 1, 4, None)]),
            (LINE[1:], None, 4, "net", [Step(0, None, 4, None)]),
        ],
    )
    def it_compares_two_ends_or_each_snapshot(self, lineage, start, stop, mode, expected):
        assert plan_steps(metadata(*lineage, current=stop), start, stop, mode) == expected

    def it_refuses_a_start_that_has_expired(self):
        for start, mode, words in (
            (1, "net", "on_history_gap=reexport"),
            (None, "snapshot", "before the first snapshot"),
        ):
            with pytest.raises(HistoryGapError, match=words):
                plan_steps(metadata(*LINE[1:], current=4), start, 4, mode)


class DescribeCutAtReplaces:
    def it_leaves_a_compaction_unread_where_that_is_cheaper(self):
        for files, expected in (
            # The compaction is not read.
            ({2: ({"b": 10}, {}), 3: ({"ab": 110}, {"a": 100, "b": 10}), 4: ({"c": 5}, {})},
             [Step(0, 1, 2, (2,)), Step(1, 3, 4, (4,))]),
            # To read across it is cheaper.
            ({2: ({"b": 100, "c": 100}, {}), 3: ({"bc": 10}, {"b": 100, "c": 100}), 4: ({"d": 5}, {})},
             [Step(0, 1, 4, (2, 3, 4))]),
        ):  # fmt: skip
            table = metadata(*LINE, current=4)
            assert cut_at_replaces(table, plan_steps(table, 1, 4)[0], files) == expected

    def it_makes_no_step_of_a_range_that_is_only_a_replace_and_never_cuts_one_that_begins_with_the_empty_table(self):
        files = {3: ({"ab": 110}, {"a": 100})}
        assert cut_at_replaces(metadata(*LINE, current=3), Step(0, 2, 3, (3,)), files) == []
        table = metadata(*LINE, current=4)
        (step,) = plan_steps(table, None, 4)
        assert cut_at_replaces(table, step, {}) == [step]

    def it_chooses_the_cheapest_of_several_cuts(self):
        table = metadata(*LINE, (5, 4, "replace"), (6, 5, "append"), current=6)
        compacted = {3: ({"big": 1000}, {"a": 900}), 5: ({"cd": 1}, {"c": 10, "d": 10})}
        files = {2: ({"b": 10}, {}), 4: ({"c": 10, "d": 10}, {}), 6: ({"e": 5}, {}), **compacted}
        steps = cut_at_replaces(table, plan_steps(table, 1, 6)[0], files)
        assert steps == [Step(0, 1, 2, (2,)), Step(1, 3, 6, (4, 5, 6))]
