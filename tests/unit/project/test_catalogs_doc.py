"""The examples of catalogs in docs/indexes.md are what the code takes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from icecdc_core.config import SyncConfig
from icecdc_core.session.catalog import catalog_settings
from icecdc_core.session.jars import needed_bundles

PAGE = (Path(__file__).parents[3] / "docs" / "indexes.md").read_text(encoding="utf-8")
CATALOGS = PAGE.partition("\n## Catalogs\n")[2].partition("\n## ")[0]
EXAMPLES = [
    pytest.param(section.split("\n")[0], example, id=f"{section.split(chr(10))[0]}-{number}")
    for section in CATALOGS.split("\n### ")
    for number, example in enumerate(re.findall(r"```json\n(.*?)```", section, flags=re.DOTALL))
]


@pytest.mark.parametrize(("section", "example"), EXAMPLES)
def it_becomes_the_settings_of_a_catalog_without_a_reference_and_shows_no_secret(section, example, monkeypatch):
    for name in re.findall(r"env:(\w+)", example):
        monkeypatch.setenv(name, f"the {name}")
    monkeypatch.setenv("DATABRICKS", "the secret")
    config = SyncConfig(
        table="lake.shop.orders", catalog_properties=re.sub(r"secret:[\w/-]+", "env:DATABRICKS", example)
    )
    settings = catalog_settings(config)
    assert [value for value in settings.values() if value.startswith(("env:", "secret:"))] == []
    assert [key for key, value in config.redacted()["catalog_properties"].items() if value == "***"] == []


@pytest.mark.parametrize(("section", "example"), [each for each in EXAMPLES if "s3" in each.values[1].lower()])
def it_gets_the_jar_of_the_store_by_itself(section, example):
    assert len(needed_bundles(json.loads(example))) == 1


def it_has_an_example_of_each_catalog():
    assert len({section for section, _ in (each.values for each in EXAMPLES)}) == 9
