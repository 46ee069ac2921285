"""Data files in groups, by lists of files whose names end with their bytes."""

from types import SimpleNamespace

import pytest

from icecdc_core.errors import IdentifierColumnsError
from icecdc_core.jobs.export import file_groups
from tests.unit.changes.file_lists import File, History, shown


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
            ("a3 b3 c3", 1, ["a3", "b3", "c3"]), ("a3 b3 c3", 3, ["a3", "b3", "c3"]), ("a3 b3 c3", 4, ["a3 b3", "c3"]),
            ("a3 b3 c3", 6, ["a3 b3", "c3"]), ("a3 b3 c3", 7, ["a3 b3 c3"]), ("a9 b1 c1", 2, ["a9", "b1 c1"]),
            ("a1 b9 c1", 2, ["a1 b9", "c1"]), ("a0 b0 c1", 1, ["a0 b0 c1"]), ("c3 a3 b3", 6, ["a3 b3", "c3"]),
            ("a3+x b3", 3, ["a3+x", "b3"]), ("", 3, []),
        ],
    )  # fmt: skip
    def it_has_groups_in_order_of_location_that_are_full_at_the_size(self, files, group_bytes, expected):
        assert [shown(tasks) for tasks in groups(files, group_bytes)[0]] == expected

    def it_has_one_group_when_the_last_row_of_an_identifier_counts_and_none_without_a_snapshot(self):
        assert [shown(tasks) for tasks in groups("c3 a3 b3", 1, "last")[0]] == ["a3 b3 c3"]
        assert groups("a3", 3, snapshot_id=None)[0] == []


@pytest.mark.parametrize(
    ("files", "group_bytes", "is_same"),
    [
        # Planned in another order, another size with the same groups, delete files.
        *(("b3 c3 a3", 6, True), ("a3 b3 c3", 4, True), ("a3+x b3 c3", 6, True)),
        # One less, one more, another file, other groups, none.
        *(("a3 b3", 6, False), ("a3 b3 c3 d3", 6, False), ("a3 b3 d3", 6, False)),
        *(("a3 b3 c3", 3, False), ("", 6, False)),
    ],
)
def it_has_the_digest_of_its_data_files_and_groups(files, group_bytes, is_same):
    assert (groups(files, group_bytes)[1] == groups("a3 b3 c3", 6)[1]) is is_same


def it_refuses_an_export_without_identifier_columns_when_rows_have_no_position_of_their_own(monkeypatch):
    with pytest.raises(IdentifierColumnsError, match="have no row id yet"):
        groups("a3", 3, identifier_columns=())
    monkeypatch.setattr(Table, "has_row_lineage", False)
    with pytest.raises(IdentifierColumnsError, match="a data file twice"):
        groups("a3 b3 a3", 3, identifier_columns=())
    assert groups("", 3, identifier_columns=())[0] == []
