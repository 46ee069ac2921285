"""What lets a begun export start over, by its position, the table and the parameters alone."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from icecdc_core.commits.position import Batch
from icecdc_core.jobs.export import changed_since
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
    facts = {"stored_selection": {"columns": []}, "schema_json": "{}", "metadata": snapshots, "nested": {}} | changed
    facts["metadata"] = replace(facts["metadata"], table_uuid=changed.get("table_uuid", "u"))
    return SimpleNamespace(**facts)


def config(**changed):
    return SimpleNamespace(**{"on_duplicate_identifier": "fail", "max_rejected_documents": 1} | changed)


LATER = {"metadata": metadata((9, 8, "append"), current=9)}


@pytest.mark.parametrize(
    ("begun", "table", "given", "expected"),
    [
        ({"failure": "rejected"}, {}, {}, "its rows were refused when it ran last"),
        ({"to_snapshot_id": 6}, {}, {}, "its snapshot expired"),
        ({"index_uuid": ""}, {}, {}, "it did not record its index"),
        ({"on_duplicate_identifier": ""}, {}, {}, "on_duplicate_identifier changed"),
        ({"rejected": 2}, {}, {}, "max_rejected_documents is now below what was rejected"),
        ({}, {"table_uuid": "v"}, {}, "the table was created again"),
        ({}, {"table_uuid": "v", "schema_json": "{ }", **LATER}, {}, "the table was created again"),
        ({}, {"stored_selection": {"columns": ["id"]}}, {}, "the selection changed"),
        ({}, {"schema_json": "{ }"}, {}, "the table's schema changed"),
        ({}, LATER, {}, "its snapshot expired"),
        ({}, {}, {"on_duplicate_identifier": "last"}, "on_duplicate_identifier changed"),
        ({}, {}, {"max_rejected_documents": 0}, "max_rejected_documents is now below what was rejected"),
        ({}, {}, {}, ""),
        ({"rejected": 0}, {}, {"max_rejected_documents": 0}, ""),
        ({}, {}, {"max_rejected_documents": 5, "number_of_shards": 3}, ""),
        ({"to_snapshot_id": None}, {}, {}, ""),
        ({"groups_done": 2, "groups_digest": "g", "index_digest": "d"}, {}, {}, ""),
    ],
)
def it_names_what_changed_since_an_export_began(begun, table, given, expected):
    assert changed_since(replace(BEGUN, **begun), source(**table), config(**given)) == expected
