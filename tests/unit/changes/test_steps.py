"""Lineage, steps and cuts over hand-made metadata; no Spark."""

import pytest

from icecdc_core.changes.steps import Step, cut_at_replaces, plan_steps
from icecdc_core.errors import HistoryGapError
from tests.table_metadata import metadata

LINE = ((1, None, "append"), (2, 1, "overwrite"), (3, 2, "replace"), (4, 3, "append"))


class DescribePlanSteps:
    def it_compares_the_two_ends_once_in_net_mode(self):
        assert plan_steps(metadata(*LINE, current=4), 1, 4) == [Step(0, 1, 4, (2, 3, 4))]

    def it_makes_no_step_when_start_and_end_are_the_same(self):
        assert plan_steps(metadata(*LINE, current=4), 4, 4) == []

    def it_starts_from_the_empty_table_without_a_start(self):
        assert plan_steps(metadata(*LINE, current=4), None, 4) == [Step(0, None, 4, (1, 2, 3, 4))]

    def it_makes_one_step_for_each_snapshot_that_is_not_a_replace(self):
        assert plan_steps(metadata(*LINE, current=4), 1, 4, "snapshot") == [Step(0, 1, 2, (2,)), Step(1, 3, 4, (4,))]

    def it_goes_back_and_forth_over_a_rollback(self):
        forked = metadata((1, None, "append"), (2, 1, "append"), (3, 1, "append"), current=3)
        assert plan_steps(forked, 2, 3) == [Step(0, 2, 3, (2, 3))]

    def it_first_undoes_in_snapshot_mode_when_the_start_is_no_ancestor(self):
        forked = metadata((1, None, "append"), (2, 1, "append"), (3, 1, "append"), current=3)
        assert plan_steps(forked, 2, 3, "snapshot") == [Step(0, 2, 1, (2,)), Step(1, 1, 3, (3,))]

    def it_goes_back_to_an_ancestor(self):
        assert plan_steps(metadata(*LINE, current=1), 2, 1) == [Step(0, 2, 1, (2,))]

    def it_does_not_know_the_path_when_snapshots_between_have_expired(self):
        expired = metadata((1, None, "append"), (4, 3, "append"), current=4)
        assert plan_steps(expired, 1, 4) == [Step(0, 1, 4, None)]

    def it_names_an_expired_start_and_the_remedy(self):
        with pytest.raises(HistoryGapError, match="on_history_gap=reexport"):
            plan_steps(metadata(*LINE[1:], current=4), 1, 4)

    def it_refuses_snapshot_mode_from_the_start_when_the_start_has_expired(self):
        with pytest.raises(HistoryGapError, match="before the first snapshot"):
            plan_steps(metadata(*LINE[1:], current=4), None, 4, "snapshot")

    def it_reads_the_whole_table_in_net_mode_even_when_its_start_has_expired(self):
        assert plan_steps(metadata(*LINE[1:], current=4), None, 4) == [Step(0, None, 4, None)]


class DescribeCutAtReplaces:
    def it_leaves_a_compaction_unread(self):
        files = {
            2: ({"b": 10}, {}),
            3: ({"ab": 110}, {"a": 100, "b": 10}),
            4: ({"c": 5}, {}),
        }
        table = metadata(*LINE, current=4)
        assert cut_at_replaces(table, plan_steps(table, 1, 4)[0], files) == [Step(0, 1, 2, (2,)), Step(1, 3, 4, (4,))]

    def it_does_not_cut_where_reading_across_is_cheaper(self):
        files = {
            2: ({"b": 100, "c": 100}, {}),
            3: ({"bc": 10}, {"b": 100, "c": 100}),
            4: ({"d": 5}, {}),
        }
        table = metadata(*LINE, current=4)
        step = plan_steps(table, 1, 4)[0]
        assert cut_at_replaces(table, step, files) == [step]

    def it_makes_no_step_of_a_range_that_is_only_a_replace(self):
        table = metadata(*LINE, current=3)
        files = {3: ({"ab": 110}, {"a": 100})}
        assert cut_at_replaces(table, Step(0, 2, 3, (3,)), files) == []

    def it_chooses_the_cheapest_of_several_cuts(self):
        table = metadata(*LINE, (5, 4, "replace"), (6, 5, "append"), current=6)
        files = {
            2: ({"b": 10}, {}),
            3: ({"big": 1000}, {"a": 900}),
            4: ({"c": 10, "d": 10}, {}),
            5: ({"cd": 1}, {"c": 10, "d": 10}),
            6: ({"e": 5}, {}),
        }
        steps = cut_at_replaces(table, plan_steps(table, 1, 6)[0], files)
        assert steps == [Step(0, 1, 2, (2,)), Step(1, 3, 6, (4, 5, 6))]

    def it_never_cuts_a_range_that_begins_with_the_empty_table(self):
        table = metadata(*LINE, current=4)
        step = plan_steps(table, None, 4)[0]
        assert cut_at_replaces(table, step, {}) == [step]
