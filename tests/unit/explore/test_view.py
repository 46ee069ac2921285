"""What a view hides, a report of parts, and which two snapshots are compared."""

from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from icecdc_core.commits.position import Position
from icecdc_core.errors import ConfigError, DuplicateIdentifierError
from icecdc_core.explore import report
from icecdc_core.explore.config import ExploreConfig
from icecdc_core.explore.view import Part, View, choose_snapshots
from tests.given.table_metadata import metadata_of

CONFIG = ExploreConfig(table="lake.ns.t", opensearch_url="http://search:9200")
DOCUMENT = {"id": 1, "email": "jane"}


def view(stored, row_filter="", columns=()):
    wanted = {"columns": list(columns), "row_filter": row_filter}
    facts = {"chosen_columns": list(columns), "row_filter": row_filter, "stored_selection": wanted}
    source = SimpleNamespace(projection=None, schema=SimpleNamespace(names=["id"]), **facts)
    return View(None, CONFIG, source, None, SimpleNamespace(selection={"columns": [], "row_filter": "", **stored}))


class DescribeHiddenDocuments:
    @pytest.mark.parametrize(
        ("stored", "parameters", "expected"),
        [
            ({}, {}, DOCUMENT), ({"row_filter": "id > 0"}, {}, DOCUMENT), ({}, {"row_filter": "email <> 'jane'"}, {}),
            ({"row_filter": "id > 0"}, {"row_filter": "id > 0"}, DOCUMENT), ({}, {"columns": ["id"]}, {}),
            ({"columns": ["id"]}, {"columns": ["id"]}, {"id": 1}), ({"nest": {"owner": {"table": "t"}}}, {}, {}),
        ],
    )  # fmt: skip
    def it_may_be_of_an_index_that_other_parameters_made(self, stored, parameters, expected):
        assert view(stored, **parameters).visible_fields(DOCUMENT) == expected

    def it_shows_the_nested_fields_of_a_pipeline(self):
        made = view({"columns": ["id"]}, columns=["id"])
        config = made.config.replace(pipeline_fields=["meta.model"], mapping={"meta.model": {"type": "keyword"}})
        document = {**DOCUMENT, "meta": {"model": "m"}}
        assert replace(made, config=config).visible_fields(document) == {"id": 1, "meta": {"model": "m"}}


def it_reports_no_value_of_a_row_when_the_dry_run_fails(monkeypatch):
    error = DuplicateIdentifierError("2 rows share jane", remedy="remove one")
    monkeypatch.setattr(report, "sync_changes", Mock(side_effect=error))
    source = SimpleNamespace(head=12, nested={})
    view = View(None, CONFIG, source, None, Position("t", "lake.ns.t", ""))
    found, part = report.dry_run_next_sync(view), Part({}, [])
    next_sync = report.explore_report(view, part, found, part, part, part)["next_sync"]
    assert ("jane" in str(found), next_sync["state"], "jane" in str(next_sync)) == (True, "data", False)


def metadata(*snapshots, **branches):
    return metadata_of([(*each[:3], n * 1000, each[3]) for n, each in enumerate(snapshots, 1)], branches)


LINE = [(11, None, "append", {}), (12, 11, "append", {}), (13, 12, "append", {}), (14, 13, "overwrite", {})]
TABLE = metadata(*LINE, main=14, audit=12)


def chosen(from_snapshot="", to_snapshot="", position=None, table=TABLE, head=14):
    return choose_snapshots(table, head, position, from_snapshot, to_snapshot)[:2]


COMPACTED = metadata(*LINE, (15, 14, "replace", {}), (16, 15, "replace", {}), main=16)


class DescribeTheDefault:
    @pytest.mark.parametrize(
        ("table", "head", "position", "expected"),
        [
            (TABLE, 14, 12, (12, 14)), *((TABLE, 14, position, (13, 14)) for position in (14, None, 99)),
            (metadata(LINE[0], main=11), 11, None, (None, 11)), (metadata(), None, None, (None, None)),
            (COMPACTED, 16, 16, (13, 16)),
        ],
    )  # fmt: skip
    def it_is_what_the_index_lacks_else_the_last_change(self, table, head, position, expected):
        assert chosen(position=position, table=table, head=head) == expected

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

    def it_is_refused_unless_there_is_one(self):
        for name, value, position in (
            *(("from_snapshot", value, None) for value in ("77", "-9", "position")),
            *(("to_snapshot", "yesterday", None), ("from_snapshot", "position", 99)),
        ):
            with pytest.raises(ConfigError, match=f"{name}='{value}'.*Remedy: use the id of a snapshot"):
                chosen(**{name: value}, position=position)
        for value, table, head in (("earliest", metadata(*LINE[2:], main=14), 14), ("12", metadata(), None)):
            with pytest.raises(ConfigError, match="has no such snapshot, or it has expired"):
                chosen(value, table=table, head=head)
