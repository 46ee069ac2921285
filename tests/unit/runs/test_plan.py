"""What a sync does next, by position and parameters alone."""

from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from icecdc_core.changes.row_changes import INSERT_ONLY, NetChanges
from icecdc_core.commits.position import Batch, Position
from icecdc_core.errors import ConfigError
from icecdc_core.runs.batch import has_few_texts
from icecdc_core.runs.plan import start_position

TABLE = SimpleNamespace(name="lake.ns.t")
SOURCE = SimpleNamespace(head=9, schema_json="{}", selection={}, table_uuid="u", table=TABLE, branch="main", nested={})
NEW = Position("t", "lake.ns.t", "u")
THERE = replace(NEW, snapshot_id=7, physical_index="t--1", schema="{}")
EXPORT = Batch("export", 2, None, 8, "t--2")
SYNC = Batch("sync", 2, 7, 8, "t--1", schema="{}", on_duplicate_identifier="fail")
REPAIR = Batch("repair", 2, 7, 7, "t--1")


def config(**more):
    return SimpleNamespace(**{"table": "lake.ns.t", "start_point": None, "on_duplicate_identifier": "fail", **more})


def it_has_few_texts_to_look_up_vectors_of_after_an_append_of_few_rows():
    source = SimpleNamespace(table=SimpleNamespace(row_counts=lambda tasks: tasks))
    plan = SimpleNamespace(scans=[SimpleNamespace(read_older=[], read_newer=[[150], [50]])], nested_scans={})
    counted = (NetChanges(strategy="diff", upserts=each) for each in (0, 200, 201))
    found = [has_few_texts(source, plan, each) for each in (NetChanges(strategy=INSERT_ONLY), *counted)]
    assert found == [True, True, True, False]


@pytest.mark.parametrize("point", [42, datetime(2020, 1, 1, tzinfo=UTC)])
def it_refuses_a_start_that_the_table_does_not_have(point):
    snapshot = SimpleNamespace(snapshot_id=9, parent_snapshot_id=8, timestamp_ms=1_700_000_000_000)
    refs = {"main": 9}
    metadata = SimpleNamespace(snapshots=[snapshot], by_id={9: snapshot}, refs=refs, current_snapshot_id=9)
    source = SimpleNamespace(**{**vars(SOURCE), "metadata": metadata})
    with pytest.raises(ConfigError, match=r"oldest is 9 of 2023.*start_from='(42|2020).*Remedy: .*latest"):
        start_position(NEW, source, config(start_point=point, branch="main"))
