"""What lets a begun export start over, by its position, the table and the parameters alone."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from icecdc_core.commits.position import Batch
from icecdc_core.runs.plan import changed_since
from tests.table_metadata import metadata

BEGUN = Batch(
    "export",
    epoch=2,
    from_snapshot_id=None,
    to_snapshot_id=8,
    physical_index="t--2",
    table_uuid="u",
    selection={"columns": []},
    schema="{}",
    rejected=1,
    on_duplicate_identifier="fail",
    index_uuid="i",
)


def source(**changed):
    snapshots = metadata((7, None, "append"), (8, 7, "append"), (9, 8, "append"), current=9)
    facts = {"table_uuid": "u", "stored_selection": {"columns": []}, "schema_json": "{}", "metadata": snapshots}
    return SimpleNamespace(**facts | changed)


def config(**changed):
    return SimpleNamespace(**{"on_duplicate_identifier": "fail", "max_rejected_documents": 1} | changed)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"failure": "rejected"}, "documents were rejected when it ran last"),
        ({"to_snapshot_id": 6}, "its snapshot expired"),
        ({"index_uuid": ""}, "it did not record its index"),
        ({"on_duplicate_identifier": ""}, "on_duplicate_identifier changed"),
        ({"rejected": 2}, "max_rejected_documents is now below what was rejected"),
    ],
)
def it_names_what_the_begun_export_lacks(changed, expected):
    assert changed_since(replace(BEGUN, **changed), source(), config()) == expected


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"table_uuid": "v"}, "the table was created again"),
        ({"stored_selection": {"columns": ["id"]}}, "the selection changed"),
        ({"schema_json": "{ }"}, "the table's schema changed"),
        ({"metadata": metadata((9, 8, "append"), current=9)}, "its snapshot expired"),
    ],
)
def it_names_what_changed_in_the_table(changed, expected):
    assert changed_since(BEGUN, source(**changed), config()) == expected


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"on_duplicate_identifier": "last"}, "on_duplicate_identifier changed"),
        ({"max_rejected_documents": 0}, "max_rejected_documents is now below what was rejected"),
    ],
)
def it_names_the_parameter_that_changed(changed, expected):
    assert changed_since(BEGUN, source(), config(**changed)) == expected


@pytest.mark.parametrize(
    ("begun", "given"),
    [
        (BEGUN, {}),
        (replace(BEGUN, rejected=0), {"max_rejected_documents": 0}),
        (BEGUN, {"max_rejected_documents": 5, "number_of_shards": 3}),
        (replace(BEGUN, to_snapshot_id=None), {}),
        (replace(BEGUN, groups_done=2, groups_digest="g", index_digest="d"), {}),
    ],
    ids=["nothing changed", "nothing rejected", "other parameters", "of an empty table", "groups were written"],
)
def it_is_empty_when_nothing_it_depends_on_changed(begun, given):
    assert changed_since(begun, source(), config(**given)) == ""


def it_names_a_new_table_before_what_follows_from_it():
    other = source(table_uuid="v", schema_json="{ }", metadata=metadata((1, None, "append"), current=1))
    assert changed_since(BEGUN, other, config()) == "the table was created again"
