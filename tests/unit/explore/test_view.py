"""What a view hides, and what it says about the index and its table; made by hand."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from icecdc_core.explore.config import ExploreConfig
from icecdc_core.explore.view import View

CONFIG = ExploreConfig(table="lake.ns.t", opensearch_url="http://search:9200")
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
