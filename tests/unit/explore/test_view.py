"""What a view hides, and what it says about the index and its table; made by hand."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from icecdc_core.explore import view as module
from icecdc_core.explore.config import ExploreConfig
from icecdc_core.explore.view import View
from tests.unit.explore.metadata import metadata

CONFIG = ExploreConfig(table="lake.ns.t", opensearch_url="http://search:9200")
TABLE = metadata((11, None, "append", {}), (12, 11, "append", {}), (13, 12, "append", {}), main=12)
DOCUMENT = {"id": 1, "email": "jane"}


def view(stored, row_filter="", columns=()):
    wanted = {"columns": list(columns), "row_filter": row_filter}
    source = SimpleNamespace(
        projection=None,
        chosen_columns=list(columns),
        row_filter=row_filter,
        stored_selection=wanted,
        schema=SimpleNamespace(names=["id"]),
    )
    return View(None, CONFIG, source, None, SimpleNamespace(selection={"columns": [], "row_filter": "", **stored}))


class DescribeHiddenDocuments:
    @pytest.mark.parametrize(
        ("stored", "parameters", "expected"),
        [
            ({}, {}, DOCUMENT),
            ({"row_filter": "id > 0"}, {}, DOCUMENT),
            ({}, {"row_filter": "email <> 'jane'"}, {}),
            ({"row_filter": "id > 0"}, {"row_filter": "id > 0"}, DOCUMENT),
            ({"columns": ["id"]}, {"columns": ["id"]}, {"id": 1}),
            ({}, {"columns": ["id"]}, {}),
        ],
    )
    def it_may_be_of_an_index_that_other_parameters_made(self, stored, parameters, expected):
        assert view(stored, **parameters).visible_fields(DOCUMENT) == expected

    def it_shows_the_nested_fields_of_a_pipeline(self):
        made = view({"columns": ["id"]}, columns=["id"])
        config = made.config.replace(pipeline_fields=["meta.model"], mapping={"meta.model": {"type": "keyword"}})
        document = {**DOCUMENT, "meta": {"model": "m"}}
        assert replace(made, config=config).visible_fields(document) == {"id": 1, "meta": {"model": "m"}}


class DescribeNotes:
    @pytest.mark.parametrize(
        ("position", "expected"),
        [(12, "up to date"), (11, "is 1 snapshots and"), (13, "rolled back"), (None, "is 2 snapshots and")],
    )
    def it_says_where_the_index_stands(self, monkeypatch, position, expected):
        monkeypatch.setattr(module, "check_preconditions", lambda *_: None)
        source = SimpleNamespace(
            identifier_columns=["id"], metadata=TABLE, head=12, snapshot_ids=frozenset({11, 12, 13})
        )
        (note,) = module.index_notes(source, SimpleNamespace(snapshot_id=position))
        assert expected in note

    def it_does_not_count_snapshots_since_one_that_expired(self, monkeypatch):
        failed = "expired"
        monkeypatch.setattr(module, "check_preconditions", lambda *_: failed)
        source = SimpleNamespace(
            identifier_columns=["id"], metadata=TABLE, head=12, snapshot_ids=frozenset({11, 12, 13})
        )
        assert list(module.index_notes(source, SimpleNamespace(snapshot_id=5))) == [
            "The next sync cannot continue from the position: expired"
        ]
