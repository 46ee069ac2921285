"""Which two snapshots are compared, by what a person wrote."""

import pytest

from icecdc_core.errors import ConfigError
from icecdc_core.explore.view import choose_snapshots
from tests.table_metadata import metadata_of


def metadata(*snapshots, **branches):
    return metadata_of([(*each[:3], n * 1000, each[3]) for n, each in enumerate(snapshots, 1)], branches)


LINE = [(11, None, "append", {}), (12, 11, "append", {}), (13, 12, "append", {}), (14, 13, "overwrite", {})]
TABLE = metadata(*LINE, main=14, audit=12)


def chosen(from_snapshot="", to_snapshot="", position=None, table=TABLE, head=14):
    return choose_snapshots(table, head, position, from_snapshot, to_snapshot)[:2]


class DescribeTheDefault:
    @pytest.mark.parametrize(
        ("position", "expected"), [(12, (12, 14)), (14, (13, 14)), (None, (13, 14)), (99, (13, 14))]
    )
    def it_is_what_the_index_lacks_else_the_last_snapshot(self, position, expected):
        assert chosen(position=position) == expected

    def it_is_everything_if_there_is_one_snapshot_and_nothing_for_an_empty_table(self):
        assert chosen(table=metadata(LINE[0], main=11), head=11) == (None, 11)
        assert chosen(table=metadata(), head=None) == (None, None)

    def it_looks_past_compactions(self):
        table = metadata(*LINE, (15, 14, "replace", {}), (16, 15, "replace", {}), main=16)
        assert chosen(position=16, table=table, head=16) == (13, 16)

    def it_is_nothing_if_the_snapshot_before_has_expired(self):
        _, end, note = choose_snapshots(metadata(LINE[3], main=14), 14, 14, "", "")
        assert (end, "has expired" in note) == (None, True)


class DescribeAName:
    @pytest.mark.parametrize(
        ("given", "expected"),
        [
            (("12", "13"), (12, 13)), (("-3",), (11, 14)), (("-1", "0"), (13, 14)), (("audit",), (12, 14)),
            (("earliest", "-1"), (None, 13)), (("position", "current"), (13, 14)), (("current", "audit"), (14, 12)),
            (("", "12"), (11, 12)),
        ],
    )  # fmt: skip
    def it_is_an_id_a_branch_a_place_or_a_count(self, given, expected):
        assert chosen(*given, position=13) == expected

    @pytest.mark.parametrize(
        ("name", "value", "position"),
        [
            *(("from_snapshot", value, None) for value in ("77", "-9", "position")),
            *(("to_snapshot", "yesterday", None), ("from_snapshot", "position", 99)),
        ],
    )
    def it_is_refused_unless_there_is_one(self, name, value, position):
        with pytest.raises(ConfigError, match=f"{name}='{value}'.*Remedy: use the id of a snapshot"):
            chosen(**{name: value}, position=position)

    def it_is_refused_if_the_first_snapshots_expired_or_there_are_none(self):
        with pytest.raises(ConfigError, match="has expired"):
            chosen("earliest", table=metadata(*LINE[2:], main=14))
        with pytest.raises(ConfigError, match="has no such snapshot"):
            chosen("12", table=metadata(), head=None)
