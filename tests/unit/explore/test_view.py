"""What a view hides, a document's content, and a report of parts; made by hand."""

from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from pyspark.sql import types as T

from icecdc_core.errors import DuplicateIdentifierError
from icecdc_core.explore import report
from icecdc_core.explore.config import ExploreConfig
from icecdc_core.explore.differences import Differences
from icecdc_core.explore.documents import DocumentView, QueryResult, _indexed, is_same
from icecdc_core.explore.view import TimeLine, View
from icecdc_core.opensearch.checksums import WHOLE

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
            ({}, {}, DOCUMENT),
            ({"row_filter": "id > 0"}, {}, DOCUMENT),
            ({}, {"row_filter": "email <> 'jane'"}, {}),
            ({"row_filter": "id > 0"}, {"row_filter": "id > 0"}, DOCUMENT),
            ({"columns": ["id"]}, {"columns": ["id"]}, {"id": 1}),
            ({}, {"columns": ["id"]}, {}),
            ({"nest": {"owner": {"table": "lake.ns.owner"}}}, {}, {}),
        ],
    )
    def it_may_be_of_an_index_that_other_parameters_made(self, stored, parameters, expected):
        assert view(stored, **parameters).visible_fields(DOCUMENT) == expected

    def it_shows_the_nested_fields_of_a_pipeline(self):
        made = view({"columns": ["id"]}, columns=["id"])
        config = made.config.replace(pipeline_fields=["meta.model"], mapping={"meta.model": {"type": "keyword"}})
        document = {**DOCUMENT, "meta": {"model": "m"}}
        assert replace(made, config=config).visible_fields(document) == {"id": 1, "meta": {"model": "m"}}


SCHEMA = T.StructType().add("id", T.LongType()).add("place", T.StructType().add("city", T.StringType()))
ROW = {"id": 1, "place": {"city": "Rome"}}


@pytest.mark.parametrize(
    ("indexed", "expected"),
    [
        (ROW, True), ({**ROW, "name": None}, True), ({**ROW, "meta": {"model": "m"}}, True),
        ({**ROW, "meta.model": "m"}, True), ({"id": 1, "place": {"city": "Rome", "country": "IT"}}, True),
        ({**ROW, "meta": {"model": "m", "other": 1}}, False), ({**ROW, "id": 2}, False),
    ],
)  # fmt: skip
def it_leaves_out_what_an_ingest_pipeline_makes(indexed, expected):
    assert is_same(indexed, ROW, ["meta.model", "place.country"], SCHEMA) is expected


def it_reports_no_value_of_a_row_when_the_dry_run_fails(monkeypatch):
    error = DuplicateIdentifierError("2 rows share jane", remedy="remove one")
    monkeypatch.setattr(report, "sync_changes", Mock(side_effect=error))
    source = SimpleNamespace(head=12, nested={})
    view = SimpleNamespace(spark=None, config=CONFIG, source=source, position=None, position_snapshot_id=None)
    found = report.dry_run_next_sync(view)
    parts = TimeLine((), 0), found, Differences(), DocumentView(), QueryResult({})
    next_sync = report.explore_report(view, *parts)["next_sync"]
    assert ("jane" in str(found), next_sync["state"], "jane" in str(next_sync)) == (True, "data", False)


def it_is_searched_without_the_pipelines_of_readers():
    asked = {}
    client = SimpleNamespace(search=lambda **given: asked.update(given) or {"hits": {"hits": []}})
    assert _indexed(client, SimpleNamespace(config=SimpleNamespace(index="t")), "1") == {}
    assert asked["params"] == WHOLE
