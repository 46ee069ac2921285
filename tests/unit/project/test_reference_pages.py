"""The reference pages say what the code says: they are made from it."""

from __future__ import annotations

import os
from dataclasses import MISSING, fields
from pathlib import Path

import pytest

from icecdc_core.errors import IcecdcError
from icecdc_core.reporting.reports import ManyReport
from tests.reference_pages import ERRORS, PAGES, REPORTS, report_fields

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize("name", PAGES)
def it_is_the_page_that_the_code_makes(name):
    expected = PAGES[name]()
    if os.environ.get("ICECDC_UPDATE_DOCS"):
        (DOCS / name).write_text(expected, encoding="utf-8")
    assert (DOCS / name).read_text(encoding="utf-8") == expected


@pytest.mark.parametrize("kind", [kind for kind in REPORTS if hasattr(kind, "to_dict")])
def it_documents_every_field_of_a_report(kind):
    samples = {"bool": True, "str": "", "int": 0, "dict[str, Any]": {}, "list[IndexStatus]": []}
    given = {
        each.name: samples.get(str(each.type), {})
        for each in fields(kind)
        if each.default is MISSING and each.default_factory is MISSING
    }
    documented = {name for name, _, _ in report_fields(kind)} | {"state"}
    assert set(kind(**given).to_dict()) == documented


def it_documents_every_error():
    page = PAGES["errors.md"]()
    assert [kind.__name__ for kind in ERRORS if f"\n## {kind.__name__}\n" not in page] == []


def it_knows_all_errors_and_reports_of_the_package():
    assert (len(ERRORS) > 30, IcecdcError in ERRORS, ManyReport in REPORTS) == (True, False, True)
