"""Lineage, steps and cuts over hand-made metadata; no Spark."""

from __future__ import annotations

import pytest
from pyiceberg.table.metadata import TableMetadata

from icecdc_core.errors import HistoryGapError
from icecdc_core.table.snapshots import (
    SnapshotFiles,
    Step,
    cut_at_replaces,
    head_snapshot_id,
    plan_steps,
    row_count,
    rows_added,
    rows_removed,
    sequence_number,
    snapshot_as_of,
)
from tests.table_metadata import metadata_of


def metadata(
    *snapshots: tuple[int, int | None, str], current: int, branches: dict[str, int] | None = None
) -> TableMetadata:
    """Table metadata with these (id, parent, operation) snapshots; snapshot n is committed at n seconds."""
    made = [(*each, each[0] * 1000, {"total-records": str(each[0] * 1000)}) for each in snapshots]
    return metadata_of(made, {"main": current, **(branches or {})})


LINE = ((1, None, "append"), (2, 1, "overwrite"), (3, 2, "replace"), (4, 3, "append"))


class DescribeRowsOfASnapshot:
    @pytest.mark.parametrize(
        ("summary", "expected"),
        [
            ({}, (0, 0)),
            ({"added-records": "60", "deleted-records": "61"}, (60, 61)),
            ({"added-position-deletes": "7", "removed-position-deletes": "3"}, (0, 4)),
            ({"removed-position-deletes": "3", "added-records": "9", "deleted-records": "12"}, (9, 12)),
            ({"added-equality-deletes": "2", "added-records": "2"}, (2, 2)),
        ],
    )
    def it_counts_the_deletes_of_a_replaced_delete_file_once(self, summary, expected):
        snapshot = metadata_of([(1, None, "overwrite", 1000, summary)], {"main": 1}).snapshots[0]
        assert (rows_added(snapshot), rows_removed(snapshot)) == expected


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
            2: SnapshotFiles(added={"b": 10}),
            3: SnapshotFiles(added={"ab": 110}, removed={"a": 100, "b": 10}),
            4: SnapshotFiles(added={"c": 5}),
        }
        table = metadata(*LINE, current=4)
        assert cut_at_replaces(table, plan_steps(table, 1, 4)[0], files) == [Step(0, 1, 2, (2,)), Step(1, 3, 4, (4,))]

    def it_does_not_cut_where_reading_across_is_cheaper(self):
        files = {
            2: SnapshotFiles(added={"b": 100, "c": 100}),
            3: SnapshotFiles(added={"bc": 10}, removed={"b": 100, "c": 100}),
            4: SnapshotFiles(added={"d": 5}),
        }
        table = metadata(*LINE, current=4)
        step = plan_steps(table, 1, 4)[0]
        assert cut_at_replaces(table, step, files) == [step]

    def it_makes_no_step_of_a_range_that_is_only_a_replace(self):
        table = metadata(*LINE, current=3)
        files = {3: SnapshotFiles(added={"ab": 110}, removed={"a": 100})}
        assert cut_at_replaces(table, Step(0, 2, 3, (3,)), files) == []

    def it_chooses_the_cheapest_of_several_cuts(self):
        table = metadata(*LINE, (5, 4, "replace"), (6, 5, "append"), current=6)
        files = {
            2: SnapshotFiles(added={"b": 10}),
            3: SnapshotFiles(added={"big": 1000}, removed={"a": 900}),
            4: SnapshotFiles(added={"c": 10, "d": 10}),
            5: SnapshotFiles(added={"cd": 1}, removed={"c": 10, "d": 10}),
            6: SnapshotFiles(added={"e": 5}),
        }
        steps = cut_at_replaces(table, plan_steps(table, 1, 6)[0], files)
        assert steps == [Step(0, 1, 2, (2,)), Step(1, 3, 6, (4, 5, 6))]

    def it_never_cuts_a_range_that_begins_with_the_empty_table(self):
        table = metadata(*LINE, current=4)
        step = plan_steps(table, None, 4)[0]
        assert cut_at_replaces(table, step, {}) == [step]


class DescribeHeads:
    def it_finds_the_head_of_a_branch(self):
        assert head_snapshot_id(metadata(*LINE, current=4, branches={"audit": 2}), "audit") == 2

    def it_names_the_branches_there_are(self):
        with pytest.raises(HistoryGapError, match="audit, main"):
            head_snapshot_id(metadata(*LINE, current=4, branches={"audit": 2}), "nope")

    def it_finds_the_snapshot_of_a_moment(self):
        assert snapshot_as_of(metadata(*LINE, current=4), 3500) == 3

    def it_finds_none_before_the_first_snapshot(self):
        assert snapshot_as_of(metadata(*LINE, current=4), 500) is None

    def it_refuses_a_moment_whose_history_has_expired(self):
        with pytest.raises(HistoryGapError, match="start_from"):
            snapshot_as_of(metadata(*LINE[1:], current=4), 1500)

    @pytest.mark.parametrize(("snapshot_id", "expected"), [(3, 3000), (9, 0), (None, 0)])
    def it_takes_the_rows_from_the_summary(self, snapshot_id, expected):
        assert row_count(metadata(*LINE, current=4), snapshot_id) == expected

    def it_knows_the_sequence_number(self):
        assert sequence_number(metadata(*LINE, current=4), 3) == 3
