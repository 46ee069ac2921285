"""What lets a begun export start over, and data files in groups."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from icecdc_core.commits.position import Batch
from icecdc_core.errors import IdentifierColumnsError
from icecdc_core.jobs.export import changed_since, file_groups
from tests.given.table_metadata import metadata
from tests.unit.changes.file_lists import File, History, shown

BEGUN = Batch("export", 2, None, 8, "t--2", "u", {"columns": []}, "{}", rejected=1, index_uuid="i")
BEGUN = replace(BEGUN, on_duplicate_identifier="fail")


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
        ({"index_uuid": ""}, {}, {}, "it did not record its index"),
        ({"on_duplicate_identifier": ""}, {}, {}, "on_duplicate_identifier changed"),
        ({}, {"table_uuid": "v", "schema_json": "{ }", **LATER}, {}, "the table was created again"),
        ({}, {"stored_selection": {"columns": ["id"]}}, {}, "the selection changed"),
        ({}, {"schema_json": "{ }"}, {}, "the table's schema changed"),
        ({}, LATER, {}, "its snapshot expired"),
        ({}, {}, {"on_duplicate_identifier": "last"}, "on_duplicate_identifier changed"),
        ({}, {}, {"max_rejected_documents": 0}, "max_rejected_documents is now below what was rejected"),
        ({"rejected": 0}, {}, {"max_rejected_documents": 0}, ""),
        ({}, {}, {"max_rejected_documents": 5, "number_of_shards": 3}, ""),
        ({"to_snapshot_id": None}, {}, {}, ""),
        ({"groups_done": 2, "groups_digest": "g", "index_digest": "d"}, {}, {}, ""),
    ],
)
def it_names_what_changed_since_an_export_began(begun, table, given, expected):
    assert changed_since(replace(BEGUN, **begun), source(**table), config(**given)) == expected


class Table(History):
    """The file b7 has seven bytes."""

    has_row_lineage, name = True, "lake.ns.t"

    def sizes(self, tasks: list[File]) -> list[int]:
        return [int(file.location[1:]) for file in tasks]


def groups(files, group_bytes, on_duplicate="fail", identifier_columns=("id",), snapshot_id=1):
    source = SimpleNamespace(table=Table(files), identifier_columns=list(identifier_columns))
    return file_groups(source, snapshot_id, group_bytes, on_duplicate)


class DescribeAnExport:
    @pytest.mark.parametrize(
        ("files", "group_bytes", "expected"),
        [
            ("a3 b3 c3", 3, ["a3", "b3", "c3"]), ("c3 a3 b3", 6, ["a3 b3", "c3"]), ("a3 b3 c3", 7, ["a3 b3 c3"]),
            ("a1 b9 c1", 2, ["a1 b9", "c1"]), ("a0 b0 c1", 1, ["a0 b0 c1"]), ("a3+x b3", 3, ["a3+x", "b3"]),
            ("", 3, []),
        ],
    )  # fmt: skip
    def it_has_groups_in_order_of_location_that_are_full_at_the_size(self, files, group_bytes, expected):
        assert [shown(tasks) for tasks in groups(files, group_bytes)[0]] == expected

    def it_has_one_group_when_the_last_row_of_an_identifier_counts_and_none_without_a_snapshot(self):
        assert [shown(tasks) for tasks in groups("c3 a3 b3", 1, "last")[0]] == ["a3 b3 c3"]
        assert groups("a3", 3, snapshot_id=None)[0] == []


def it_has_the_digest_of_its_data_files_and_groups():
    for files, group_bytes, is_same in (
        # Planned in another order, another size with the same groups, delete files.
        *(("b3 c3 a3", 6, True), ("a3 b3 c3", 4, True), ("a3+x b3 c3", 6, True)),
        # One less, one more, another file, other groups, none.
        *(("a3 b3", 6, False), ("a3 b3 c3 d3", 6, False), ("a3 b3 d3", 6, False)),
        *(("a3 b3 c3", 3, False), ("", 6, False)),
    ):
        assert (groups(files, group_bytes)[1] == groups("a3 b3 c3", 6)[1]) is is_same


def it_refuses_an_export_without_identifier_columns_when_rows_have_no_position_of_their_own(monkeypatch):
    with pytest.raises(IdentifierColumnsError, match="have no row id yet"):
        groups("a3", 3, identifier_columns=())
    monkeypatch.setattr(Table, "has_row_lineage", False)
    with pytest.raises(IdentifierColumnsError, match="a data file twice"):
        groups("a3 b3 a3", 3, identifier_columns=())
    assert groups("", 3, identifier_columns=())[0] == []
